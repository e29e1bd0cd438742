"""`fairerclip`: the entry point of the command line.

It first imports only what handles interrupts: the imports of the commands take seconds.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from typing import Any

from fairerclip.cli import streams
from fairerclip.cli.signals import Stopped, Stops

WORK_FAILED, BAD_INPUT = 1, 2
"""Exit codes; after a signal it is 128 plus the signal's number: 130 for Ctrl-C, 143 for SIGTERM."""


def main() -> None:
    """Run a command and exit with its exit code; an error or a signal prints one line on standard error."""
    stops = Stops()
    with streams.Streams() as opened:
        try:
            stops.handle()
            from fairerclip.cli.app import app

            code = app(standalone_mode=False, prog_name="fairerclip") or 0
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - after a signal, an interrupted import may raise ImportError
            stops.ignore()
            if stops.arrived or isinstance(error, KeyboardInterrupt):
                code = _stopped(stops.arrived, error)
            else:
                code = _failed(error)
        finally:
            stops.ignore()
        code = opened.end(code)
    sys.exit(code)


def _stopped(arrived: list[int], error: BaseException) -> int:
    """Print that a signal ended the command, and return the exit code."""
    number = arrived[0] if arrived else signal.SIGINT
    word = "interrupted" if number == signal.SIGINT else "terminated"
    notes = getattr(error, "__notes__", ()) if isinstance(error, Stopped) else ()
    return _report("; ".join([word, *notes]), word.capitalize(), 128 + number)


def _failed(error: BaseException) -> int:
    """Print an error that the user can act on and return the exit code; raise any other, which is a bug of ours."""
    import typer

    from fairerclip.cli.app import UsageError
    from fairerclip.errors import FairerClipError, WorkFailedError

    kind = type(error).__name__
    if isinstance(error, UsageError):
        message = getattr(error, "format_message", error.__str__)()
        return _report(f"{message} (--help shows how it is called)", kind, BAD_INPUT)
    if isinstance(error, typer.Abort):
        return _stopped([], error)
    if isinstance(error, WorkFailedError):
        return _report(str(error), kind, WORK_FAILED, error.results)
    if isinstance(error, MemoryError):
        return _report(f"memory ran out: {error}", kind, WORK_FAILED)
    if isinstance(error, FairerClipError | OSError):
        return _report(str(error) or kind, kind, BAD_INPUT)
    _print_json(kind, str(error), WORK_FAILED)
    sys.excepthook = streams.show_traceback
    raise error


def _report(message: str, kind: str, code: int, results: Mapping[str, Any] | None = None) -> int:
    """Print one line on standard error, and with --json a document that holds the results obtained so far."""
    _print_json(kind, streams.one_line(message), code, results)
    streams.print_error(message)
    return code


def _print_json(kind: str, message: str, code: int, results: Mapping[str, Any] | None = None) -> None:
    if "--json" in sys.argv[1:]:
        error = {"error": {"type": kind, "message": message, "exit_code": code}}
        streams.write_json({**error, **(results or {})})
