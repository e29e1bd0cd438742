"""An exception that ends a command in order after Ctrl-C (SIGINT) or SIGTERM."""

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
"""Seconds in which a second signal counts as the same one: `timeout` and some shells send it twice."""
LATER = 0.05
"""Seconds after which an exception that was lost is raised again."""


class Stopped(BaseException):
    """Raised in the main thread when a signal asks the command to end.

    It is not a KeyboardInterrupt, for which typer would end the command without a message. Notes (`add_note`) are
    added to the message.
    """


class Stops:
    """Handlers of the signals that end the command.

    Attributes
    ----------
    arrived : list of int
        Numbers of the signals that came.
    """

    def __init__(self) -> None:
        self.arrived: list[int] = []
        self._last = -math.inf
        self._handled: list[int] = []

    def handle(self) -> None:
        """Raise `Stopped` in the main thread when a signal comes, except for signals that the parent had ignored."""
        if threading.current_thread() is not threading.main_thread():
            return  # Python sets handlers only in the main thread
        sys.unraisablehook = self._unraisable
        for number in NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._handled.append(number)
                signal.signal(number, self._raise)

    def ignore(self) -> None:
        """Ignore signals from now on: the process is about to end, and its exit code is decided."""
        for number in self._handled:
            signal.signal(number, signal.SIG_IGN)

    def _raise(self, number: int, frame: Any) -> None:
        self.arrived.append(number)
        now = time.monotonic()
        if now - self._last > REPEAT:
            self._last = now
            raise Stopped

    def _unraisable(self, unraisable: Any) -> None:
        """Raise `Stopped` again where Python could only print it, e.g. in a finalizer."""
        if not isinstance(unraisable.exc_value, Stopped):
            sys.__unraisablehook__(unraisable)
            return
        self._last = -math.inf
        again = threading.Timer(LATER, _send, [self.arrived[-1]])
        again.daemon = True
        again.start()


def _send(number: int) -> None:
    """Send a signal to the main thread."""
    if sys.platform == "win32":
        _thread.interrupt_main(number)
    else:  # this also interrupts a system call that the main thread waits in
        signal.pthread_kill(threading.main_thread().ident or 0, number)


@contextmanager
def kept_when_stopped(runs: Path | None, how: str = "run the same command to continue") -> Iterator[None]:
    """Add to the message of `Stopped` where finished runs are kept, if there are any, and how to continue."""
    try:
        yield
    except Stopped as stop:
        if runs is not None and any(runs.rglob("*.json")):
            stop.add_note(f"finished runs are kept in {runs}: {how}")
        raise
