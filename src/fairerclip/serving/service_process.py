"""One process of the service: uvicorn with our connections, our application and our signals."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from fairerclip.errors import ParameterError
from fairerclip.serving.connections import MOST_REFUSED, GuardedConnection
from fairerclip.serving.listening_socket import BACKLOG
from fairerclip.serving.served_model import load_served
from fairerclip.serving.service_log import log
from fairerclip.serving.service_routes import create_app
from fairerclip.serving.service_settings import ServiceSettings
from fairerclip.serving.service_state import Service

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SPARE_FILES = MOST_REFUSED + BACKLOG + 128
"""Open files of a process besides its connections: those that are refused or just accepted, the model, libraries."""


class ServiceServer(uvicorn.Server):
    """uvicorn's server, which ends after a signal without raising it again.

    Attributes
    ----------
    arrived : list of int
        Numbers of the signals that came.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.arrived: list[int] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals in the main thread; restore the handlers that were there."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop accepting, finish what runs, and end."""
        self.arrived.append(sig)
        self.should_exit = True


def build_server(service: Service, on_ready: Callable[[], Any]) -> ServiceServer:
    """Return a server of a service that is not started; ``on_ready`` is called when the model is ready."""

    def on_end() -> None:
        if service.failure is None:
            on_ready()
        else:
            server.should_exit = True

    config = uvicorn.Config(
        create_app(service, on_end),
        http=partial(GuardedConnection, service),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=service.limits.idle_seconds,
        timeout_graceful_shutdown=service.limits.grace_seconds,
    )
    server = ServiceServer(config)
    return server


def allow_files(count: int) -> None:
    """Raise the limit of open files of this process, if it is lower; where there is none, do nothing."""
    try:
        import resource
    except ImportError:  # not Unix
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in range(count):
        if hard in range(count):
            raise ParameterError(
                f"--max-connections needs {count} open files, and the system allows {hard}: give at most "
                f"{max(1, hard - SPARE_FILES)} connections, or raise the limit (ulimit -n)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def run_process(
    settings: ServiceSettings,
    listening: socket.socket,
    on_ready: Callable[[str], Any],
    identity: str | None = None,
) -> list[int]:
    """Serve until a signal comes; return the numbers of the signals.

    Parameters
    ----------
    settings, listening
        What to serve and where.
    on_ready : callable
        Called with the identity of the model, when it is ready.
    identity : str, optional
        Identity that the model must have.

    Raises
    ------
    FairerClipError
        The model or the encoder cannot be loaded.
    ParameterError
        The process may not open as many files as it has connections.
    """
    allow_files(settings.limits.connections + SPARE_FILES)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    service = Service(
        partial(load_served, settings, identity),
        settings.limits,
        access_log=settings.access_log,
        threads=max(1, cores // settings.workers),
    )
    server = build_server(service, lambda: on_ready(service.model.identity))
    server.run(sockets=[listening])
    if service.failure is not None:
        raise service.failure
    log("stopped", signals=server.arrived)
    return server.arrived
