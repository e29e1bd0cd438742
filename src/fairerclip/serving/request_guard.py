"""Limits of a request and its trace: bytes, time, a request id, a line in the log, counters, and errors as JSON."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from typing import Any

from fairerclip.serving.connections import CONNECTION, TRUNCATED
from fairerclip.serving.problems import Problem
from fairerclip.serving.service_log import log
from fairerclip.serving.service_state import Service

EXCHANGE = "fairerclip.exchange"
"""Key of the scope of a request: its `Exchange`."""
SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
ENDPOINTS = {
    **{f"/v1/{name}": name for name in ("classify", "rank", "embed", "mitigate", "model")},
    **{f"/{name}": name for name in ("healthz", "readyz", "metrics", "docs", "openapi.json")},
}
"""Names of the endpoints in logs and metrics."""
LINGER_SECONDS = 1.0
"""How long the rest of a refused body is read and dropped: a peer that is still sending could not read the answer."""
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
        Headers of the request; of repeated ones the first.
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
            self.headers.setdefault(name, value)
        given = self.headers.get(b"x-request-id", b"")
        self.request_id = given.decode() if SANE_ID.fullmatch(given) else os.urandom(16).hex()
        self.endpoint = ENDPOINTS.get(scope["path"], "other")
        self.started = asyncio.get_running_loop().time()
        self.deadline = self.started + service.limits.seconds
        self.rows, self.status, self.held = 0, 0, 0
        self.code: str | None = None
        self._unread = b"transfer-encoding" in self.headers or self.headers.get(b"content-length", b"0") != b"0"
        self._length = 0

    async def body(self, most: int) -> bytearray:
        """Read the body; its size and time are checked while it arrives."""
        limits, service = self._service.limits, self._service
        too_large = f"the body has more than {most} bytes; send fewer rows, or .npy in place of JSON"
        if int(self.headers.get(b"content-length", b"0")) > most:
            raise Problem("body_too_large", too_large)
        body = bytearray()
        try:
            async with asyncio.timeout_at(min(self.deadline, self.started + limits.body_seconds)):
                while True:
                    message = await self._next()
                    part = message.get("body", b"")
                    if len(body) + len(part) > most:
                        raise Problem("body_too_large", too_large)
                    if service.held_bytes + len(part) > limits.held_bytes:
                        raise Problem("busy", "the service holds too many bytes of other requests; try again later")
                    service.held_bytes += len(part)
                    self.held += len(part)
                    body += part
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise Problem(
                "slow_body", f"the body did not arrive within {limits.body_seconds} seconds"
            ) from None
        if self.scope.get(TRUNCATED):
            raise Problem("incomplete_body", f"the connection was closed after {len(body)} bytes of the body")
        return body

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
        try:
            async with asyncio.timeout_at(self.deadline):
                await self._send(message)
        except TimeoutError:  # the peer does not read
            connection = self.scope.get(CONNECTION)
            if connection is not None:
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

    async def send_problem(self, problem: Problem) -> None:
        """Answer with an error."""
        self.code = problem.code
        body = problem.document(self.request_id)
        headers = [
            *problem.headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await self.send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def finish(self) -> None:
        """Count and log the request, and release what it held."""
        self._service.held_bytes -= self.held
        seconds = asyncio.get_running_loop().time() - self.started
        status = self.status or 499  # as proxies write it where the peer did not wait for an answer
        self._service.metrics.finished(self.endpoint, status, seconds, self.rows)
        if self._service.access_log and not (self.endpoint in QUIET and status == 200):
            fields = {"code": self.code} if self.code else {}
            log(
                "request",
                request_id=self.request_id,
                endpoint=self.endpoint,
                method=self.scope["method"][:16],
                status=status,
                rows=self.rows,
                ms=int(1e5 * seconds) / 100,
                **fields,
            )


class RequestGuard:
    """ASGI application around another one."""

    def __init__(self, app: Any, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request; whatever happens, it gets an answer and a line in the log."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, self._service)
        scope[EXCHANGE] = exchange
        self._service.metrics.in_progress.inc()
        try:
            await self._app(scope, receive, exchange.send)
        except PeerGoneError:
            exchange.code = "peer_gone"
        except Exception:  # noqa: BLE001 - a bug of ours must not show its traceback to the peer
            log("internal error", logging.ERROR, trace=True, request_id=exchange.request_id)
            if not exchange.status:
                await exchange.send_problem(Problem("internal", "the service failed; its log has the cause"))
        finally:
            self._service.metrics.in_progress.dec()
            exchange.finish()


