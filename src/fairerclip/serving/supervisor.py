"""`serve`: the socket, the processes that share it, and how they end."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import stat
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from fairerclip._util.extras import require
from fairerclip.errors import FairerClipError, ParameterError, WorkFailedError
from fairerclip.serving.service_log import log, log_to_standard_error
from fairerclip.serving.service_settings import ServiceSettings

LIBRARIES = ("fastapi", "uvicorn", "prometheus_client")
SOCKET_MODE = 0o660
MOST_RESTARTS = 10
"""Restarts of processes within `RESTART_SECONDS` after which the service gives up."""
RESTART_SECONDS = 60.0
EXTRA_SECONDS = 5.0
"""Time beyond the grace time after which a process is killed."""


class Address(NamedTuple):
    """Where the service listens: a URL, or the path of a Unix socket."""

    url: str | None
    uds: str | None


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
    for library in LIBRARIES:
        require(library, "serve", "fairerclip serve")
    with log_to_standard_error(), _listening(settings) as (listening, address):
        if settings.workers > 1:
            return _Supervisor(settings, listening).run(lambda: on_ready(address))
        from fairerclip.serving.service_process import run_process

        arrived = run_process(settings, listening, lambda: on_ready(address))
        return arrived[0] if arrived else int(signal.SIGTERM)


@contextmanager
def _listening(settings: ServiceSettings) -> Iterator[tuple[socket.socket, Address]]:
    """Open the socket; a Unix socket is removed at the end."""
    if settings.uds is not None:
        _remove_stale(settings.uds)
    if settings.uds is not None:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:  # with the protocol, which asyncio asks for before it sends without delay
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    where = str(settings.uds or f"{settings.host}:{settings.port}")
    try:
        if settings.uds is None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((settings.host, settings.port))
        else:
            opened.bind(str(settings.uds))
            os.chmod(settings.uds, SOCKET_MODE)
        opened.set_inheritable(True)
    except (OSError, OverflowError) as error:
        opened.close()
        raise ParameterError(f"cannot listen at {where}: {error}") from None
    try:
        yield opened, _address(settings, opened)
    finally:
        opened.close()
        if settings.uds is not None:
            with suppress(OSError):
                os.unlink(settings.uds)


def _address(settings: ServiceSettings, opened: socket.socket) -> Address:
    if settings.uds is not None:
        return Address(None, str(settings.uds))
    host, port = opened.getsockname()[:2]
    return Address(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", None)


def _remove_stale(path: Path) -> None:
    """Remove the socket that a killed service left; raise if the path is in use or something else."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ParameterError(f"{path} exists and is not a socket; it is left alone")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            os.unlink(path)
            return
    raise ParameterError(f"{path} is the socket of a service that runs")


class _ServingProcess(NamedTuple):
    process: Any
    messages: Connection


class _Supervisor:
    """Processes that accept from one socket; those that die are replaced."""

    def __init__(self, settings: ServiceSettings, listening: socket.socket) -> None:
        self._settings, self._listening = settings, listening
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_ServingProcess] = []
        self._arrived: list[int] = []
        self._restarts: deque[float] = deque(maxlen=MOST_RESTARTS)

    def run(self, on_ready: Callable[[], Any]) -> int:
        """Start the processes, and wait for a signal."""
        from fairerclip.serving.service_metrics import FOLDER

        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {n: signal.signal(n, self._note) for n in (signal.SIGINT, signal.SIGTERM)}
        with tempfile.TemporaryDirectory(prefix="fairerclip-metrics-") as folder:
            os.environ[FOLDER] = folder
            try:
                self._workers = [self._start() for _ in range(self._settings.workers)]
                self._wait_until_ready(on_ready)
                while not self._arrived:
                    self._replace_dead()
            finally:
                self._stop_all()
                del os.environ[FOLDER]
                for number, handler in before.items():
                    signal.signal(number, handler)
        return self._arrived[0]

    def _note(self, number: int, frame: Any) -> None:
        self._arrived.append(number)

    def _start(self) -> _ServingProcess:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=work, args=(self._settings, self._listening, theirs), name="fairerclip-serve", daemon=False
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
            self._expect_ready(worker)
        on_ready()

    def _expect_ready(self, worker: _ServingProcess) -> None:
        try:
            failure = worker.messages.recv()
        except (EOFError, OSError):
            failure = "a process ended while it loaded the model"
        if failure is not None:
            raise failure if isinstance(failure, FairerClipError) else WorkFailedError(str(failure))

    def _replace_dead(self) -> None:
        """Wait a moment for a process to end, and start another in its place."""
        ended = connection.wait([worker.process.sentinel for worker in self._workers], timeout=0.5)
        for place, worker in enumerate(self._workers):
            if worker.process.sentinel not in ended or self._arrived:
                continue
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(worker.process.pid)
            log("a process died", logging.ERROR, died=worker.process.pid, exit_code=worker.process.exitcode)
            worker.messages.close()
            now = time.monotonic()
            if len(self._restarts) == MOST_RESTARTS and now - self._restarts[0] < RESTART_SECONDS:
                raise WorkFailedError(
                    f"processes died {MOST_RESTARTS} times within {RESTART_SECONDS} seconds"
                )
            self._restarts.append(now)
            self._workers[place] = self._start()

    def _stop_all(self) -> None:
        """Ask all processes to end, and kill those that do not."""
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


def work(settings: ServiceSettings, listening: socket.socket, messages: Connection) -> None:
    """Run one process of several; send None when it is ready, or why it cannot be."""
    from fairerclip.serving.service_process import run_process

    threading.Thread(target=_end_with_parent, args=(messages,), daemon=True).start()
    try:
        with log_to_standard_error():
            run_process(settings, listening, lambda: messages.send(None))
    except BaseException as error:
        failure = error if isinstance(error, FairerClipError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):
            messages.send(failure)
        if not isinstance(error, FairerClipError):
            raise


def _end_with_parent(messages: Connection) -> None:
    """End the process in order if the parent is gone."""
    with suppress(EOFError, OSError):
        messages.recv()
    os.kill(os.getpid(), signal.SIGTERM)
