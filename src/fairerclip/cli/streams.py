"""Standard output and standard error, wrapped so that writing to them never stops a command.

Commands print through `fairerclip.cli.show`, which needs rich. Messages before rich is imported, and about a failed
import, are written here. This module imports little, so that an early interrupt can still print its message.
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

from fairerclip._util.clean_text import clean, shorten

LONGEST_LINE = 8_000
"""Characters of a line that are printed: more than any path has."""
READER_GONE, NOT_WRITTEN = 141, 1
"""Exit codes where only writing to standard output failed: 128 plus the number of SIGPIPE; or e.g. a full disk."""
FORMS = {
    **{"τ": "tau", "λ": "lambda", "→": ">", "•": "*", "×": "x", "±": "+-", "·": ".", "∞": "inf", "█": "#"},
    **dict.fromkeys("−–—─━╸╺", "-"),
    **{"…": "...", "≤": "<=", "≥": ">=", "\u00a0": " ", "\u202f": " ", "\N{REPLACEMENT CHARACTER}": "?"},
}
"""ASCII replacements of signs that the program prints and the encoding of the output lacks."""


def _plain_form(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace signs that cannot be encoded, as an error handler of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(FORMS.get(c) or c.encode("ascii", "backslashreplace").decode() for c in signs), error.end


codecs.register_error("fairerclip.plain", _plain_form)


class Stream(io.TextIOBase):
    """A text stream whose `write` never raises.

    Signs that its encoding lacks are written in ASCII. After writing has failed once, the rest is dropped: the command
    continues and writes its files.

    Attributes
    ----------
    problem : OSError or None
        The first error of writing.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.problem: OSError | None = None
        self._stream = stream or io.StringIO()  # None where it was closed before the start

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Encoding of the underlying stream."""
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._stream.fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write text, unless writing has failed before."""
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
        """Write out the buffer, unless writing has failed before."""
        if self.problem is None:
            try:
                self._stream.flush()
            except OSError as problem:
                self._give_up(problem)

    def _give_up(self, problem: OSError) -> None:
        self.problem = problem
        with suppress(OSError):  # the rest of the buffer would fail again when Python exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


class Streams:
    """Context manager that replaces standard output, standard error and the printing of warnings by safe ones."""

    def __enter__(self) -> Streams:
        for number in range(3):
            try:
                os.fstat(number)
            except OSError:  # closed by the parent: the next file opened would get this number
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
        """Return the exit code: the command's own, or, if that is 0, the one for a failure of standard output."""
        self.out.flush()
        problem = self.out.problem
        if code or problem is None:
            return code
        if problem.errno == errno.EPIPE:
            return READER_GONE
        print_error(f"standard output could not be written: {problem.strerror}; the work is done")
        return NOT_WRITTEN


def print_error(message: str) -> None:
    """Print one line on standard error."""
    sys.stderr.write(f"fairerclip: {one_line(message)}\n")


def one_line(text: str) -> str:
    """Return foreign text as one printable line."""
    return " ".join(clean(shorten(text, LONGEST_LINE)).split())


def write(text: str) -> None:
    """Print lines of text on standard output, each cleaned."""
    sys.stdout.write("".join(f"{clean(line)}\n" for line in text.split("\n")))


def flush() -> None:
    """Let what was printed appear at once, for a command that goes on."""
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Print one JSON document on standard output, in ASCII."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a Python warning as one line, in place of `warnings.showwarning`."""
    sys.stderr.write(f"warning: {one_line(f'{category.__name__}: {message}')}\n")


def show_traceback(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Print the traceback of an uncaught error with its text cleaned, in place of `sys.excepthook`."""
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write("\n".join(map(clean, text.split("\n"))))
