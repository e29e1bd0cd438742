"""Connections of the service: limits on their number, on heads and on peers that do not read; errors as JSON.

uvicorn has no time limit for the head of a request or for a peer to read its answer, answers a broken head with plain
text, and drops the answer of a peer that has closed its sending side.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from fairerclip.serving.problems import RequestProblem
from fairerclip.serving.request_heads import CheckedHeads, HeadProblemError
from fairerclip.serving.service_log import log_request, new_id
from fairerclip.serving.service_state import Service

CONNECTION = "fairerclip.connection"
TASK = "fairerclip.task"
TRUNCATED = "fairerclip.truncated"
"""Keys of the scope of a request: its connection, its task, and whether the peer stopped sending inside the body."""
LINGER_SECONDS = 1.0
"""How long what a refused peer still sends is read and dropped: it could not read the answer of a closed connection."""
MOST_REFUSED = 128
"""Connections beyond the limit that are told so at a time; others are closed without a word."""


class GuardedConnection(H11Protocol):
    """One connection.

    Parameters
    ----------
    service : Service
        Its limits and metrics.
    **given
        Parameters of uvicorn's class.

    Attributes
    ----------
    is_lost : bool
        Whether it is closed.
    """

    def __init__(self, service: Service, **given: Any) -> None:
        super().__init__(**given)
        self.conn = CheckedHeads()
        self._service = service
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None
        self._refused = self._ended = False
        self.is_lost = False

    def connection_made(self, transport: Any) -> None:
        """Refuse a connection too many; else wait for its first request."""
        super().connection_made(transport)
        most = self._service.limits.connections
        if len(self.connections) > most + MOST_REFUSED:
            transport.abort()
        elif len(self.connections) > most:
            self._refuse(RequestProblem("busy", f"there are {most} connections already; try again later"))
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; after a refusal, drop it."""
        if not self._refused and not self.transport.is_closing():
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        """Go on to a request that has arrived already, if there is one; wait for the peer to read the answer."""
        self._expect_reading()
        super().on_response_complete()
        if self._is_answering():
            self._watch()
        if self._ended and not self._refused and not self.transport.is_closing():
            self._read_rest()

    def eof_received(self) -> bool | None:
        """Answer a peer that has closed its sending side, and then close; one that is gone needs no answer."""
        if self._refused or self._is_gone():
            return None
        self._ended = True
        self._read_rest()
        return self._is_answering() or None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers, and cancel the request, which nobody waits for."""
        self.is_lost = True
        self._stop_timer()
        if self._read_timer is not None:
            self._read_timer.cancel()
        super().connection_lost(exc)
        if self._is_answering() and TASK in self.cycle.scope:
            self.cycle.scope[TASK].cancel()

    def handle_events(self) -> None:
        """Read what has arrived; answer a head that is refused."""
        try:
            super().handle_events()
        except HeadProblemError as error:
            self._refuse(error.problem)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, in place of uvicorn's plain text."""
        self._refuse(RequestProblem("invalid_http", "expected a request of HTTP/1.1"))

    def is_writable(self) -> bool:
        """Return whether the peer has read most of what was sent."""
        return not self.flow.write_paused

    def abort(self) -> None:
        """Close without waiting for a peer that does not read."""
        self.transport.abort()

    def _read_rest(self) -> None:
        """After the end of what the peer sends: answer the requests that are there, and close after the last."""
        waiting = self.conn.trailing_data[0]
        if not self._is_answering():
            if waiting:
                self._refuse(
                    RequestProblem("invalid_http", "the connection was closed inside the head of a request")
                )
            else:
                self.transport.close()
        elif self.cycle.more_body:
            self.cycle.scope[TRUNCATED] = True
            self.cycle.more_body = False
            self.cycle.keep_alive = False
            self.cycle.message_event.set()
        elif not waiting:
            self.cycle.keep_alive = False

    def _is_gone(self) -> bool:
        """Return whether the peer has closed both sides, which Unix sockets tell; TCP tells it to who writes only."""
        if not hasattr(select, "poll"):
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def _expect_reading(self) -> None:
        """Start the time within which the peer has to read what was sent."""
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if self.transport.get_write_buffer_size():
            self._read_timer = self.loop.call_later(self._service.limits.seconds, self._abort_unread)

    def _abort_unread(self) -> None:
        if self.transport.get_write_buffer_size():
            self.abort()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        """Start the time of a head that is not complete; give a request that is complete its connection."""
        if self._refused:
            return
        if self._is_answering():
            self._stop_timer()
            self.cycle.scope[CONNECTION] = self
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self._service.limits.head_seconds, self._slow_head)

    def _slow_head(self) -> None:
        self._head_timer = None
        seconds = self._service.limits.head_seconds
        self._refuse(
            RequestProblem("slow_head", f"the head of a request did not arrive within {seconds} seconds")
        )

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, problem: RequestProblem) -> None:
        """Answer without the application, and close; what the peer still sends is dropped for a moment."""
        self._stop_timer()
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        request_id = new_id()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = problem.document(request_id)
            headers = [
                *problem.headers,
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"x-request-id", request_id.encode()),
                (b"connection", b"close"),
            ]
            reason = STATUS_PHRASES[problem.status]
            for event in (
                h11.Response(status_code=problem.status, headers=headers, reason=reason),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event))
        if self.cycle is not None:
            self.cycle.waiting_for_100_continue = False
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write_eof()
        self._expect_reading()
        self._head_timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)
        self._service.metrics.finished("connection", problem.status, 0.0, 0)
        if self._service.access_log:
            log_request(
                request_id=request_id, endpoint="connection", status=problem.status, code=problem.code
            )
