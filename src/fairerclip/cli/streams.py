"""Standard output and standard error, between the commands and whoever reads them.

Commands print through `fairerclip.cli.show`, which is drawn by a library; what is told before that is loaded, and
when it cannot be, is written here. Little is imported, so that an interrupt in the first moment can be told of.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
import traceback
import warnings
from contextlib import suppress
from typing import Any, TextIO

from fairerclip.report.clean_text import clean, shorten

LONGEST_LINE = 8_000
"""Characters of a line that are shown: more than any path has."""
READER_GONE, NOT_WRITTEN = 141, 1
"""Exit codes where all went well but standard output: 128 and the number of SIGPIPE, or a full disk, say."""
FORMS = {
    **{"τ": "tau", "λ": "lambda", "→": ">", "•": "*", "×": "x", "±": "+-", "·": ".", "∞": "inf", "█": "#"},
    **dict.fromkeys("−–—─━╸╺", "-"),
    **{"…": "...", "≤": "<=", "≥": ">=", "\u00a0": " ", "\u202f": " ", "\N{REPLACEMENT CHARACTER}": "?"},
}
"""What the program's own signs become where the encoding has none of them."""


def _plain_form(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(FORMS.get(c) or c.encode("ascii", "backslashreplace").decode() for c in signs), error.end


codecs.register_error("fairerclip.plain", _plain_form)


class Stream(io.TextIOBase):
    """A text stream that may be written to whatever becomes of its reader.

    Signs that its encoding lacks are written in ASCII. Once writing fails, the rest is dropped: a command goes on, and
    its files are written.

    Attributes
    ----------
    problem : the first error of writing, or None.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.problem: OSError | None = None
        self._stream = stream or io.StringIO()  # None where it was closed from the start: nobody reads it

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of what is written."""
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        """Whether a person reads it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Its number in this process."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Write it if that is possible."""
        if self.problem is None:
            try:
                try:
                    self._stream.write(text)
                except UnicodeEncodeError:
                    self._stream.write(text.encode(self.encoding, "fairerclip.plain").decode(self.encoding))
            except OSError as problem:
                self._give_up(problem)
        return len(text)

    def flush(self) -> None:
        """Hand over what waits."""
        if self.problem is None:
            try:
                self._stream.flush()
            except OSError as problem:
                self._give_up(problem)

    def _give_up(self, problem: OSError) -> None:
        self.problem = problem
        with suppress(OSError):  # what waits in the buffer would fail again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


class Streams:
    """Both streams, and Python's own warnings, for as long as a command runs."""

    def __enter__(self) -> Streams:
        for number in range(3):
            try:
                os.fstat(number)
            except OSError:  # closed by who started us: the next file would be opened under its number
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        self._before = sys.stdout, sys.stderr, warnings.showwarning
        self.out, self.err = Stream(sys.stdout), Stream(sys.stderr)
        sys.stdout, sys.stderr = self.out, self.err
        warnings.showwarning = _show_warning
        return self

    def __exit__(self, *_: object) -> None:
        self.out.flush()
        self.err.flush()
        sys.stdout, sys.stderr, warnings.showwarning = self._before

    def end(self, code: int) -> int:
        """The exit code of a command: its own, or what became of standard output."""
        self.out.flush()
        problem = self.out.problem
        if code or problem is None:
            return code
        if problem.errno == errno.EPIPE:
            return READER_GONE
        tell(f"standard output could not be written: {problem.strerror}; the work is done")
        return NOT_WRITTEN


def tell(message: str) -> None:
    """One line on standard error, whatever characters it holds."""
    sys.stderr.write(f"fairerclip: {one_line(message)}\n")


def one_line(text: str) -> str:
    """Foreign text as one line that can be printed."""
    return " ".join(clean(shorten(text, LONGEST_LINE)).split())


def write(text: str) -> None:
    """Lines of text on standard output; each is cleaned."""
    sys.stdout.write("".join(f"{clean(line)}\n" for line in text.split("\n")))


def write_json(value: Any) -> None:
    """One JSON document on standard output, in ASCII."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    sys.stderr.write(f"warning: {one_line(f'{category.__name__}: {message}')}\n")


def show_traceback(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """What Python prints of an error that nobody caught, for `sys.excepthook`: its message may hold foreign text."""
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write("\n".join(map(clean, text.split("\n"))))
