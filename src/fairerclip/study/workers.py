"""A pool of worker processes that end with the process that started them.

`concurrent.futures` is not used: when interrupted, its pool waits for running calls, and if one process dies, all calls
fail.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from typing import Any, Generic, TypeVar

from fairerclip.errors import LostWorkerError

T = TypeVar("T")
ATTEMPTS = 2
"""How often a call is started if its process dies."""
GRACE = 1.0
"""Seconds that the system may take to remove a killed process."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """A module's function and its keyword arguments; both, and what the function returns, must pickle.

    A call that is ``fresh`` is the first one of its process, so that the peak memory of the process is its own.
    """

    function: Callable[..., T]
    arguments: Mapping[str, Any]
    fresh: bool = False


@dataclass(frozen=True)
class Returned(Generic[T]):
    """The value that a call returned, and its warnings without repetitions."""

    value: T
    warned: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """The error of a call that failed."""

    error: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Make a failure from an exception, with the name of its class."""
        return cls(f"{type(error).__name__}: {error}")


def run_calls(
    calls: Sequence[Call[T]],
    answered: Callable[[int, Returned[T] | Failure], None],
    *,
    processes: int | None = None,
    calls_per_process: int | None = None,
) -> None:
    """Run calls on one core each, and pass on each answer as soon as it is there.

    On any exception, KeyboardInterrupt included, the processes are killed and the exception is raised.

    Parameters
    ----------
    calls : sequence of Call
        Calls to run.
    answered : callable
        Called in this process with the index of a call and what it returned, or a `Failure`. A call whose process died
        is first tried once more; the other calls go on.
    processes : int, optional
        Number of processes; None for one per core. A single process is this one, unless `calls_per_process` is set.
    calls_per_process : int, optional
        Number of calls after which a process is replaced; None for never.
    """
    count = min(processes or os.cpu_count() or 1, len(calls))
    if count > 1 or (calls and calls_per_process is not None):
        _Pool(calls, answered, count, calls_per_process).run()
        return
    for number, call in enumerate(calls):
        answered(number, guarded(call))


def guarded(call: Call[T]) -> Returned[T] | Failure:
    """Run a call on one core, and return its value and warnings, or its error."""
    import scipy.linalg  # noqa: F401 - its BLAS must be loaded before it can be limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = call.function(**call.arguments)
        except Exception as error:  # noqa: BLE001 - one failing call is reported and does not stop the rest
            return Failure.of(error)
    return Returned(value, tuple(dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught)))


def is_lost(error: str) -> bool:
    """Return whether the error text of a failed call means that its process died."""
    return f"{LostWorkerError.__name__}: " in error


class _Worker:
    """A process and this side of its pipe. It sends None when it is ready for its first call."""

    def __init__(self, number: int) -> None:
        context = get_context("spawn")
        self.number = number
        self.calls = 0
        self.pipe, theirs = context.Pipe()
        # Daemonic: at exit Python kills it; it would wait for another process.
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, call: Call[Any]) -> None:
        self.calls += 1
        self.pipe.send((call.function, call.arguments))


class _Pool:
    """The processes of one `run_calls`."""

    def __init__(
        self,
        calls: Sequence[Call[Any]],
        answered: Callable[[int, Any], None],
        count: int,
        calls_per_process: int | None,
    ) -> None:
        self.calls, self.answered = calls, answered
        self.count, self.limit = count, calls_per_process
        self.todo = deque(range(len(calls)))
        self.losses = [0] * len(calls)
        self.working: list[_Worker] = []
        self.leaving: list[_Worker] = []

    def run(self) -> None:
        try:
            while self.todo or self.working:
                while self.todo and len(self.working) < self.count:
                    self._start(self.todo.popleft())
                for worker in _heard(self.working):
                    self._listen(worker)
        finally:
            with _signals_held():
                self._stop()

    def _start(self, number: int) -> None:
        # Signals wait until the process is in the list: otherwise it could not be killed.
        with _signals_held(), _interrupt_blocked():
            self.working.append(_Worker(number))

    def _listen(self, worker: _Worker) -> None:
        """Receive an answer or the end of a worker, and send it the next call."""
        try:
            if not worker.pipe.poll():
                raise EOFError  # the process has ended, but another process keeps its pipe open
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            self._lose(worker)
            return
        if answer is not None:
            self.answered(worker.number, answer)
            if not self.todo or worker.calls == self.limit or self.calls[self.todo[0]].fresh:
                self._retire(worker)
                return
            worker.number = self.todo.popleft()
        try:
            worker.send(self.calls[worker.number])
        except OSError:
            self._lose(worker)
        except Exception as error:  # noqa: BLE001 - a call that cannot be pickled fails alone
            self._retire(worker)
            self.answered(worker.number, Failure.of(error))

    def _lose(self, worker: _Worker) -> None:
        self._retire(worker)
        self.losses[worker.number] += 1
        if self.losses[worker.number] < ATTEMPTS:
            self.todo.appendleft(worker.number)
        else:
            self.answered(worker.number, Failure.of(_lost(worker)))

    def _retire(self, worker: _Worker) -> None:
        self.working.remove(worker)
        self.leaving.append(worker)
        worker.pipe.close()  # a process that waits for a call ends now

    def _stop(self) -> None:
        """Kill the processes that still run; answers are kept in this process, so that nothing is lost."""
        workers = [*self.working, *self.leaving]
        for worker in workers:
            worker.process.kill()
        for worker in workers:
            worker.process.join(GRACE)
            worker.pipe.close()


def _heard(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait until workers send something or end, and return these workers."""
    ready = {*connection.wait([item for w in workers for item in (w.pipe, w.process.sentinel)])}
    return [worker for worker in workers if ready & {worker.pipe, worker.process.sentinel}]


def _lost(worker: _Worker) -> LostWorkerError:
    worker.process.join(GRACE)
    code = worker.process.exitcode
    how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
    hint = "; the system kills processes when memory is short: fewer --jobs need less" if code == -9 else ""
    return LostWorkerError(f"its process ended without an answer ({how}), {ATTEMPTS} times{hint}")


def _serve(pipe: Any) -> None:
    """Answer calls until the pipe is closed; this is the main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it handles interrupts
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(None)
    while True:
        try:
            function, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        except Exception as error:  # noqa: BLE001 - a call that cannot be unpickled fails alone
            answer: Any = Failure.of(error)
        else:
            answer = guarded(Call(function, arguments))
        try:
            pipe.send(answer)
        except OSError:
            return
        except Exception as error:  # noqa: BLE001 - an answer that cannot be pickled fails alone
            pipe.send(Failure.of(error))


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended, in whatever way."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Delay signals that have a handler in Python until the block is done."""
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    arrived: list[int] = []
    handlers: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, lambda came, frame: arrived.append(came))
        yield
    finally:
        for held, handler in handlers.items():
            signal.signal(held, handler)
        if arrived:
            signal.raise_signal(arrived[0])


@contextmanager
def _interrupt_blocked() -> Iterator[None]:
    """Block Ctrl-C for processes that are started in the block, also while Python starts in them.

    A handler set in the process itself would be too late. Processes inherit the blocked signals of this thread.
    """
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
