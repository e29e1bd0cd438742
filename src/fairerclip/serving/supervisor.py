"""`serve`: the processes that share a socket, and how they end."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

from fairerclip._util.extras import require
from fairerclip.errors import FairerClipError, ModelFileError, WorkFailedError
from fairerclip.serving.listening_socket import Address, open_socket
from fairerclip.serving.served_model import REPLACED
from fairerclip.serving.service_log import log, log_to_standard_error
from fairerclip.serving.service_settings import METRICS_FOLDER, ServiceSettings

LIBRARIES = ("fastapi", "uvicorn", "prometheus_client")
MOST_RESTARTS = 10
"""Restarts of processes within `RESTART_SECONDS` after which the service gives up."""
RESTART_SECONDS = 60.0
MOST_FAILURES, FIRST_PAUSE = 5, 0.5
"""New processes in a row that may fail to become ready, and seconds before the next one, which double each time."""
EXTRA_SECONDS = 5.0
"""Time beyond the grace time after which a process is killed."""


def serve(settings: ServiceSettings, on_ready: Callable[[Address], Any]) -> int:
    """Serve a model until SIGTERM or Ctrl-C.

    Parameters
    ----------
    settings : ServiceSettings
        What to serve and where.
    on_ready : callable
        Called once with the address, when all processes are ready.

    Returns
    -------
    number : int
        Number of the signal that ended the service.

    Raises
    ------
    ParameterError
        The address cannot be used.
    FairerClipError
        The model or the encoder cannot be loaded.
    WorkFailedError
        Processes ended again and again.
    """
    with _own_metrics(shared=settings.workers > 1):
        for library in LIBRARIES:
            require(library, "serve", "fairerclip serve")
        return _serve(settings, on_ready)


def _serve(settings: ServiceSettings, on_ready: Callable[[Address], Any]) -> int:
    with log_to_standard_error(), open_socket(settings) as (listening, address):
        if settings.workers > 1:
            return _Supervisor(settings, listening).run(lambda: on_ready(address))
        from fairerclip.serving.service_process import run_process

        arrived = run_process(settings, listening, lambda _: on_ready(address))
        return arrived[0] if arrived else int(signal.SIGTERM)


@dataclass(eq=False)
class _ServingProcess:
    """A process, what it has told, and when it may be started again after it has ended."""

    process: Any
    messages: Connection
    ready: bool = False
    failure: Any = None
    due: float | None = None


class _Supervisor:
    """Processes that accept from one socket; those that die are replaced."""

    def __init__(self, settings: ServiceSettings, listening: socket.socket) -> None:
        self._settings, self._listening = settings, listening
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_ServingProcess] = []
        self._identity: str | None = None
        self._arrived: list[int] = []
        self._restarts: deque[float] = deque(maxlen=MOST_RESTARTS)
        self._failures = 0

    def run(self, on_ready: Callable[[], Any]) -> int:
        """Start the processes, and wait for a signal."""
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {n: signal.signal(n, self._note) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._workers = [self._start() for _ in range(self._settings.workers)]
            self._wait_until_ready(on_ready)
            while not self._arrived:
                self._watch()
        except FairerClipError as error:
            log("the service ends", logging.ERROR, cause=str(error))
            raise
        finally:
            self._stop_all()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._arrived[0]

    def _note(self, number: int, frame: Any) -> None:
        self._arrived.append(number)

    def _start(self) -> _ServingProcess:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=work,
            args=(self._settings, self._listening, theirs, self._identity),
            name="fairerclip-serve",
            daemon=False,
        )
        process.start()
        theirs.close()
        return _ServingProcess(process, ours)

    def _wait_until_ready(self, on_ready: Callable[[], Any]) -> None:
        for worker in self._workers:
            while not self._arrived and not worker.messages.poll(0.2):
                pass
            if self._arrived:
                return
            self._hear(worker)
            if not worker.ready:
                failure = worker.failure or "a process ended while it loaded the model"
                raise failure if isinstance(failure, FairerClipError) else WorkFailedError(str(failure))
        on_ready()

    def _hear(self, worker: _ServingProcess) -> None:
        """Read what a process has told: the identity of its model when it is ready, or why it ends."""
        try:
            ready, told = worker.messages.recv()
        except (EOFError, OSError):
            return
        if not ready:
            worker.failure = told
            return
        if self._identity not in (None, told):
            raise WorkFailedError(
                "the model was replaced while the processes loaded it; start the service again"
            )
        self._identity, self._failures = told, 0
        worker.ready = True

    def _watch(self) -> None:
        """Wait a moment for a process to tell something or to end, and start others in place of those that ended."""
        running = [worker for worker in self._workers if worker.due is None]
        signs: list[Any] = [worker.process.sentinel for worker in running]
        signs += [worker.messages for worker in running if not worker.ready]
        happened = connection.wait(signs, timeout=0.5)
        for place, worker in enumerate(self._workers):
            if self._arrived:
                return
            if worker.due is None and worker.process.sentinel in happened:
                self._ended(worker)
            elif worker.due is None and worker.messages in happened:
                self._hear(worker)
            if worker.due is not None and worker.due <= time.monotonic():
                self._workers[place] = self._start()

    def _ended(self, worker: _ServingProcess) -> None:
        """Log why a process ended, and plan its replacement; raise if there have been too many."""
        from prometheus_client.multiprocess import mark_process_dead

        worker.process.join()
        for _ in range(2):  # it may have told that it was ready, and then why it ended
            self._hear(worker)
        mark_process_dead(worker.process.pid)
        worker.messages.close()
        cause = str(worker.failure or "it was killed, or ended without a word")
        log(
            "a process died",
            logging.ERROR,
            died=worker.process.pid,
            exit_code=worker.process.exitcode,
            cause=cause,
        )
        if isinstance(worker.failure, ModelFileError) and worker.failure.reason == REPLACED:
            raise WorkFailedError(cause)
        now = time.monotonic()
        if not worker.ready:
            self._failures += 1
            if self._failures == MOST_FAILURES:
                raise WorkFailedError(
                    f"{MOST_FAILURES} new processes in a row ended before they were ready: {cause}"
                )
        elif len(self._restarts) == MOST_RESTARTS and now - self._restarts[0] < RESTART_SECONDS:
            raise WorkFailedError(f"processes died {MOST_RESTARTS} times within {RESTART_SECONDS} seconds")
        else:
            self._restarts.append(now)
        worker.due = now + (FIRST_PAUSE * 2**self._failures if self._failures else 0.0)

    def _stop_all(self) -> None:
        """Accept no more, ask all processes to end, and kill those that do not."""
        self._listening.close()
        for worker in self._workers:
            worker.process.terminate()
        until = time.monotonic() + self._settings.limits.grace_seconds + EXTRA_SECONDS
        for worker in self._workers:
            worker.process.join(max(0.0, until - time.monotonic()))
            if worker.process.is_alive():
                log("a process did not end in time", logging.ERROR, killed=worker.process.pid)
                worker.process.kill()
                worker.process.join()
            worker.messages.close()


@contextmanager
def _own_metrics(*, shared: bool) -> Iterator[None]:
    """Let several processes share their counters in a folder of their own; a folder of the user's is not used."""
    before = os.environ.pop(METRICS_FOLDER, None)
    with tempfile.TemporaryDirectory(prefix="fairerclip-metrics-") as folder:
        if shared:
            os.environ[METRICS_FOLDER] = folder
        try:
            yield
        finally:
            os.environ.pop(METRICS_FOLDER, None)
            if before is not None:
                os.environ[METRICS_FOLDER] = before


def work(
    settings: ServiceSettings, listening: socket.socket, messages: Connection, identity: str | None
) -> None:
    """Run one process of several; send (True, identity of the model) when it is ready, (False, why) if it fails."""
    from fairerclip.serving.service_process import run_process

    threading.Thread(target=_end_with_parent, args=(messages,), daemon=True).start()
    try:
        with log_to_standard_error():
            run_process(settings, listening, lambda found: messages.send((True, found)), identity)
    except BaseException as error:
        failure = error if isinstance(error, FairerClipError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            messages.send((False, failure))
        if not isinstance(error, FairerClipError):
            raise
        sys.exit(1)


def _end_with_parent(messages: Connection) -> None:
    """End the process in order if the parent is gone."""
    with suppress(EOFError, OSError):
        messages.recv()
    os.kill(os.getpid(), signal.SIGTERM)
