"""The socket of the service: a TCP port, or a Unix socket that belongs to one service at a time."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from fairerclip.errors import ParameterError
from fairerclip.serving.service_settings import ServiceSettings

SOCKET_MODE = 0o660
BACKLOG = 256
PROBE_SECONDS = 1.0


class Address(NamedTuple):
    """Where the service listens: a URL, or the path of a Unix socket."""

    url: str | None
    uds: str | None


@contextmanager
def open_socket(settings: ServiceSettings) -> Iterator[tuple[socket.socket, Address]]:
    """Open the socket; a Unix socket is removed at the end, if it is still the same.

    Raises
    ------
    ParameterError
        The address cannot be used, or is used by another service.
    """
    if settings.uds is not None:
        _remove_stale(settings.uds)
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:  # with the protocol, which asyncio asks for before it sends without delay
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    own = None
    try:
        if settings.uds is None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((settings.host, settings.port))
        else:
            opened.bind(str(settings.uds))
            own = _identity(settings.uds)
            os.chmod(settings.uds, SOCKET_MODE)
            opened.listen(BACKLOG)  # from now on, others see that it is in use
        opened.set_inheritable(True)
    except (OSError, OverflowError) as error:
        opened.close()
        where = str(settings.uds or f"{settings.host}:{settings.port}")
        raise ParameterError(f"cannot listen at {where}: {error}") from None
    try:
        yield opened, _address(settings, opened)
    finally:
        opened.close()
        if settings.uds is not None and _identity(settings.uds) == own:
            with suppress(OSError):
                os.unlink(settings.uds)


def _address(settings: ServiceSettings, opened: socket.socket) -> Address:
    if settings.uds is not None:
        return Address(None, str(settings.uds))
    host, port = opened.getsockname()[:2]
    return Address(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", None)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and number of a socket; None if there is none."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISSOCK(found.st_mode):
        raise ParameterError(f"{path} exists and is not a socket; it is left alone")
    return found.st_dev, found.st_ino


def _remove_stale(path: Path) -> None:
    """Remove the socket that a killed service left; raise if the path is in use or something else."""
    found = _identity(path)
    if found is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:  # nobody listens
            if _identity(path) == found:
                os.unlink(path)
            return
        except OSError as error:
            raise ParameterError(
                f"{path} is a socket, and it cannot be told whether a service runs: {error}"
            ) from None
    raise ParameterError(f"{path} is the socket of a service that runs")
