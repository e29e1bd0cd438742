"""Limits of a request and its trace: bytes, time, a request id, a line in the log, counters, and errors as JSON."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fairerclip.serving.answer_forms import Reply, as_error
from fairerclip.serving.connections import CONNECTION, LINGER_SECONDS, TASK, TRUNCATED
from fairerclip.serving.problems import RequestProblem, internal
from fairerclip.serving.service_log import log, log_request, new_id
from fairerclip.serving.service_state import Service

EXCHANGE = "fairerclip.exchange"
"""Key of the scope of a request: its `Exchange`."""
SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
ENDPOINTS = {
    **{f"/v1/{name}": name for name in ("classify", "rank", "embed", "mitigate", "model")},
    **{f"/{name}": name for name in ("healthz", "readyz", "metrics", "docs", "openapi.json")},
}
"""Names of the endpoints in logs and metrics."""
QUIET = frozenset({"healthz", "readyz", "metrics"})
"""Endpoints that are asked all the time; only their failures are logged."""


class PeerGoneError(Exception):
    """The peer closed the connection before its request was complete."""


class Exchange:
    """One request and its answer.

    Attributes
    ----------
    request_id : str
        Taken from ``X-Request-ID`` if it is sane, else new.
    headers : dict of bytes to bytes
        Headers of the request; of repeated ones the first, but all of ``Accept``.
    deadline : float
        Time of the loop at which the request has to be answered.
    rows : int
        Rows of the request, for logs and metrics.
    code : str or None
        Code of the error that it is answered with.
    """

    def __init__(self, scope: dict[str, Any], receive: Any, send: Any, service: Service) -> None:
        self.scope, self._receive, self._send, self._service = scope, receive, send, service
        self.headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name == b"accept" and name in self.headers:
                self.headers[name] += b"," + value
            self.headers.setdefault(name, value)
        given = self.headers.get(b"x-request-id", b"")
        self.request_id = given.decode() if SANE_ID.fullmatch(given) else new_id()
        self.endpoint = ENDPOINTS.get(scope["path"], "other")
        self.started = asyncio.get_running_loop().time()
        self.deadline = self.started + service.limits.seconds
        self.rows, self.status, self.held = 0, 0, 0
        self.code: str | None = None
        self._unread = self.headers.get(b"content-length", b"0") != b"0"

    @property
    def is_lost(self) -> bool:
        """Whether the connection is closed."""
        connection = self.scope.get(CONNECTION)
        return connection is not None and connection.is_lost

    async def body(self, most: int) -> bytes:
        """Read the body; its time, and what all requests hold, are checked while it arrives."""
        limits, service = self._service.limits, self._service
        if int(self.headers.get(b"content-length", b"0")) > most:  # no more bytes than these are read
            raise RequestProblem(
                "body_too_large",
                f"the body has more than {most} bytes; send fewer rows, or .npy in place of JSON",
            )
        parts: list[bytes] = []
        length, more = 0, True
        try:
            async with asyncio.timeout_at(min(self.deadline, self.started + limits.body_seconds)):
                while more:
                    message = await self._next()
                    part, more = message.get("body", b""), message.get("more_body", False)
                    length += len(part)
                    if service.held_bytes + len(part) > limits.held_bytes:
                        raise RequestProblem(
                            "busy", "the service holds too many bytes of other requests; try again later"
                        )
                    service.held_bytes += len(part)
                    self.held += len(part)
                    parts.append(part)
        except TimeoutError:
            raise RequestProblem(
                "slow_body", f"the body did not arrive within {limits.body_seconds} seconds"
            ) from None
        if self.scope.get(TRUNCATED):
            raise RequestProblem(
                "incomplete_body", f"the connection was closed after {length} bytes of the body"
            )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _next(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise PeerGoneError
        self._unread = message.get("more_body", False)
        return message

    async def send(self, message: Any) -> None:
        """Send a part of the answer; add the request id, and close the connection if a part of the body is unread."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message["headers"], (b"x-request-id", self.request_id.encode())]
            if self._unread:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        elif self._unread and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._drop_rest()
            message = {"type": "http.response.body", "body": b""}
        connection = self.scope.get(CONNECTION)
        if connection is None or connection.is_writable():
            await self._send(message)
            return
        try:
            async with asyncio.timeout_at(self.deadline):
                await self._send(message)
        except TimeoutError:  # the peer does not read
            connection.abort()
            raise PeerGoneError from None

    async def _drop_rest(self) -> None:
        """Read and drop the rest of a body for a moment, so that a peer that is still sending reads the answer."""
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while self._unread:
                    await self._next()
        except (TimeoutError, PeerGoneError):
            pass

    async def reply(self, reply: Reply) -> None:
        """Send an answer as a whole."""
        headers = [
            (b"content-type", reply.kind.encode()),
            (b"content-length", str(len(reply.body)).encode()),
            *reply.headers,
        ]
        await self.send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": reply.body})

    def error(self, problem: RequestProblem) -> Reply:
        """Return the answer of an error, and keep its code for the log."""
        self.code = problem.code
        return as_error(problem, self.request_id)

    def finish(self) -> None:
        """Count and log the request, and release what it held."""
        self._service.held_bytes -= self.held
        seconds = asyncio.get_running_loop().time() - self.started
        status = self.status or 499  # as proxies write it where the peer did not wait for an answer
        self._service.metrics.finished(self.endpoint, status, seconds, self.rows)
        if self._service.access_log and not (self.endpoint in QUIET and status == 200):
            fields = {"code": self.code} if self.code else {}
            log_request(
                request_id=self.request_id,
                endpoint=self.endpoint,
                method=self.scope["method"][:16],
                status=status,
                rows=self.rows,
                ms=int(1e5 * seconds) / 100,
                **fields,
            )


Endpoint = Callable[[Exchange], Coroutine[Any, Any, Reply]]


class RequestGuard:
    """ASGI application around another one.

    Parameters
    ----------
    app : ASGI application
        Answers all other requests.
    service : Service
        Limits and counters.
    direct : mapping from (method, path) to function
        Endpoints that are called directly: the way through FastAPI takes a tenth of a millisecond.
    """

    def __init__(self, app: Any, service: Service, direct: Mapping[tuple[str, str], Endpoint]) -> None:
        self._app, self._service, self._direct = app, service, direct

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request; whatever happens, it gets an answer and a line in the log."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._service)
        scope[EXCHANGE], scope[TASK] = exchange, asyncio.current_task()
        self._service.metrics.in_progress.inc()
        try:
            endpoint = self._direct.get((scope["method"], scope["path"]))
            if endpoint is None:
                await self._app(scope, receive, exchange.send)
            else:
                await exchange.reply(await endpoint(exchange))
        except PeerGoneError:
            exchange.code = "peer_gone"
        except asyncio.CancelledError:  # the peer is gone, or the grace time after a signal is over
            if exchange.is_lost:
                exchange.code = "peer_gone"
            elif not exchange.status:
                problem = RequestProblem(
                    "stopping", "the service ends before the answer is there; try again later"
                )
                await exchange.reply(exchange.error(problem))
        except Exception:  # noqa: BLE001 - a bug of ours must not show its traceback to the peer
            log("internal error", logging.ERROR, trace=True, request_id=exchange.request_id)
            if not exchange.status:
                await exchange.reply(exchange.error(internal()))
        finally:
            self._service.metrics.in_progress.dec()
            exchange.finish()
