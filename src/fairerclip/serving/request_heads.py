"""Heads of requests: limits that are checked before h11 parses them, and bodies that must have a length."""

from __future__ import annotations

import re
from typing import Any

import h11

from fairerclip.serving.problems import RequestProblem

MAX_HEAD_BYTES, MAX_HEAD_LINES = 65536, 100
"""Most bytes and lines of a head; parsing takes some 0.1 ms per line, during which nothing else runs."""
_END = re.compile(rb"\n\r?\n")


class HeadProblemError(Exception):
    """A head that is refused; ``problem`` is its answer."""

    def __init__(self, problem: RequestProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class CheckedHeads(h11.Connection):
    """The state of one connection, with checked heads.

    A body in chunks is refused: each chunk costs the same time, so that one of many chunks of one byte would stop all
    other requests for seconds.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)

    def next_event(self) -> Any:
        """Return the next part of a request; raise a `HeadProblemError` for a head that is refused."""
        if self.their_state is h11.IDLE:
            self._check_size()
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            raise HeadProblemError(
                RequestProblem("length_required", "send the body with Content-Length, not in chunks")
            )
        return event

    def _check_size(self) -> None:
        waiting = self.trailing_data[0]
        end = _END.search(waiting, 0, MAX_HEAD_BYTES)
        size = MAX_HEAD_BYTES if end is None else end.start()
        if (end is None and len(waiting) > size) or waiting.count(b"\n", 0, size) > MAX_HEAD_LINES:
            raise HeadProblemError(
                RequestProblem(
                    "invalid_http",
                    f"the head of a request may have at most {MAX_HEAD_BYTES} bytes and {MAX_HEAD_LINES} lines",
                )
            )
