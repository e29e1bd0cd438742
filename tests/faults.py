"""Kill a process before its n-th change to files, in a fork, so that nothing has to be imported anew."""

from __future__ import annotations

import os
import signal
import sys
import warnings

EVENTS = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
}
"""Audit events that change files; what raises none (fsync) is counted by a wrapper."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def killed_before(number, action) -> bool:
    """Run an action in a fork that kills itself before so many changes to files; False where it has fewer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork of a process with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            _count_down(number)
            action()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the action failed"
    return os.WIFSIGNALED(status)


def _count_down(number: int) -> None:
    left = [number]

    def change():
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(event, arguments):
        if event in EVENTS or (event == "open" and arguments[2] & WRITES):
            change()

    def counted(function):
        def call(*arguments):
            change()
            return function(*arguments)

        return call

    sys.addaudithook(heard)
    os.fsync = counted(os.fsync)
