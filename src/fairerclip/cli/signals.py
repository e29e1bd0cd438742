"""Ctrl-C (SIGINT) and SIGTERM as an exception that ends the command in order."""

from __future__ import annotations

import _thread
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM)
REPEAT = 1.0
"""Seconds in which a second signal is taken for the same one: `timeout` and some shells send it twice."""
LATER = 0.05
"""Seconds after which an exception that was lost is raised again."""


class Stopped(BaseException):
    """A signal asks the command to end.

    It is no KeyboardInterrupt: typer would end the command without a word. Notes (`add_note`) tell the user more.
    """


class Stops:
    """Signals that end the command.

    Attributes
    ----------
    arrived : numbers of the signals that came.
    """

    def __init__(self) -> None:
        self.arrived: list[int] = []
        self._last = -math.inf
        self._heeded: list[int] = []

    def heed(self) -> None:
        """Raise `Stopped` in the main thread when a signal comes, except for signals that the parent had ignored."""
        if threading.current_thread() is not threading.main_thread():
            return  # handlers can be set in the main thread alone
        sys.unraisablehook = self._unraisable
        for number in NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._heeded.append(number)
                signal.signal(number, self._raise)

    def ignore(self) -> None:
        """Ignore signals from now on: the process is about to end, and its exit code is settled."""
        for number in self._heeded:
            signal.signal(number, signal.SIG_IGN)

    def _raise(self, number: int, frame: Any) -> None:
        self.arrived.append(number)
        now = time.monotonic()
        if now - self._last > REPEAT:
            self._last = now
            raise Stopped

    def _unraisable(self, told: Any) -> None:
        """Raise again what Python cannot raise where it is, in a finalizer say, and would print and forget."""
        if not isinstance(told.exc_value, Stopped):
            sys.__unraisablehook__(told)
            return
        self._last = -math.inf
        again = threading.Timer(LATER, _send, [self.arrived[-1]])
        again.daemon = True
        again.start()


def _send(number: int) -> None:
    if sys.platform == "win32":
        _thread.interrupt_main(number)
    else:  # this also ends a system call that the main thread waits in
        signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def kept_when_stopped(runs: Path | None, how: str = "the same command goes on") -> Iterator[None]:
    """Say in the line that tells of a stop where finished runs are kept, if there are any, and how to use them."""
    try:
        yield
    except Stopped as stop:
        if runs is not None and any(runs.rglob("*.json")):
            stop.add_note(f"finished runs are kept in {runs}: {how}")
        raise
