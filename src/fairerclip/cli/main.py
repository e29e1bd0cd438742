"""`fairerclip`: the command line's entry point.

It imports nothing at first but what it takes to be interrupted in order: the commands' imports take seconds.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from typing import Any

from fairerclip.cli import streams
from fairerclip.cli.signals import Stopped, Stops

WORK_FAILED, BAD_INPUT = 1, 2
"""Exit codes; after a signal it is 128 and the signal's number, 130 for Ctrl-C and 143 for SIGTERM."""


def main() -> None:
    """Run a command and end the process with its exit code; an error or a signal is one line on standard error."""
    stops = Stops()
    with streams.Streams() as written:
        try:
            stops.heed()
            from fairerclip.cli.app import app

            code = app(standalone_mode=False, prog_name="fairerclip") or 0
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - after a signal, an import broken off may say ImportError
            stops.ignore()
            if stops.arrived or isinstance(error, KeyboardInterrupt):
                code = _stopped(stops.arrived, error)
            else:
                code = _failed(error)
        finally:
            stops.ignore()
        code = written.end(code)
    sys.exit(code)


def _stopped(arrived: list[int], error: BaseException) -> int:
    number = arrived[0] if arrived else signal.SIGINT
    word = "interrupted" if number == signal.SIGINT else "terminated"
    notes = getattr(error, "__notes__", ()) if isinstance(error, Stopped) else ()
    return _tell("; ".join([word, *notes]), word.capitalize(), 128 + number)


def _failed(error: BaseException) -> int:
    """Tell of an error that the user can act on; any other is a fault of ours and goes on, with its traceback."""
    import typer

    from fairerclip.cli.app import UsageError
    from fairerclip.errors import FairerClipError, WorkFailedError

    kind = type(error).__name__
    if isinstance(error, UsageError):
        shown = getattr(error, "format_message", error.__str__)()
        return _tell(f"{shown} (--help shows how it is called)", kind, BAD_INPUT)
    if isinstance(error, typer.Abort):
        return _stopped([], error)
    if isinstance(error, WorkFailedError):
        return _tell(str(error), kind, WORK_FAILED, error.results)
    if isinstance(error, MemoryError):
        return _tell(f"memory ran out: {error}", kind, WORK_FAILED)
    if isinstance(error, FairerClipError | OSError):
        return _tell(str(error) or kind, kind, BAD_INPUT)
    _print_json(kind, str(error), WORK_FAILED)
    sys.excepthook = streams.show_traceback
    raise error


def _tell(message: str, kind: str, code: int, results: Mapping[str, Any] | None = None) -> int:
    """One line on standard error; with --json also a document on standard output, with the results there are."""
    _print_json(kind, streams.one_line(message), code, results)
    streams.tell(message)
    return code


def _print_json(kind: str, message: str, code: int, results: Mapping[str, Any] | None = None) -> None:
    if "--json" in sys.argv[1:]:
        told = {"error": {"type": kind, "message": message, "exit_code": code}}
        streams.write_json({**told, **(results or {})})
