"""Passes over rows in blocks of a given size and in a given number of threads, for tests on few rows."""

from fairerclip.data import row_pass


def in_blocks(monkeypatch, rows, threads=1):
    """Let every pass over rows that starts now use blocks of so many rows, in so many threads."""

    def blocks(n, *_, **__):
        return [slice(first, min(first + rows, n)) for first in range(0, n, rows)]

    monkeypatch.setattr(row_pass, "row_blocks", blocks)
    monkeypatch.setattr(row_pass, "row_threads", lambda: threads)
