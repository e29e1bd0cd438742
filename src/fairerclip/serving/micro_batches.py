"""One thread that calls the model, and a bounded queue whose small requests are joined into one call."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fairerclip.serving.problems import RequestProblem
from fairerclip.serving.service_log import log


@dataclass(frozen=True, eq=False)
class Operation:
    """A call of the model.

    Attributes
    ----------
    name : str
        Name in metrics.
    call : callable
        Function of rows whose result has one entry per row. The rows are an array (n, …) or a list.
    joins : bool
        Whether the rows of several requests may be given to one call.
    """

    name: str
    call: Callable[[Any], Any]
    joins: bool = True


@dataclass(eq=False)
class QueuedCall:
    """The rows of one request, and the future of its answer."""

    operation: Operation
    rows: Any
    size: int
    future: asyncio.Future[Any]
    arrived: float = field(default_factory=time.monotonic)

    def joins(self, other: QueuedCall) -> bool:
        """Return whether the rows of another request may go into the same call: of one type and shape."""
        if not self.operation.joins or self.operation is not other.operation:
            return False
        if isinstance(self.rows, np.ndarray):
            return (self.rows.dtype, self.rows.shape[1:]) == (other.rows.dtype, other.rows.shape[1:])
        return True


class MicroBatches:
    """A queue of calls and the thread that makes them, one at a time.

    Requests that arrive while a call runs are joined into the next one, up to ``rows`` rows. Results are cut by
    position, so that each request gets the results of its own rows. If a joined call fails, each of its requests is
    called alone, so that one of them cannot fail the others.

    Parameters
    ----------
    name : str
        Name of the thread.
    loop : event loop
        Where requests wait.
    queue : int
        Most requests that wait.
    rows : int
        Most rows of a joined call; a single request may have more.
    seconds : float
        How long a call with fewer rows waits for more requests.
    observe : callable
        Called after each call with the operation, the number of rows and of requests, and the seconds.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        *,
        queue: int,
        rows: int,
        seconds: float,
        observe: Callable[[str, int, int, float], None],
    ) -> None:
        self._loop, self._queue, self._rows, self._seconds = loop, queue, rows, seconds
        self._observe = observe
        self._waiting: deque[QueuedCall] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        # A daemon: a call that takes longer than the grace time must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._waiting)

    async def run(self, operation: Operation, rows: Any, size: int | None = None) -> Any:
        """Return the result of an operation for the rows of one request.

        Parameters
        ----------
        operation : Operation
            The call.
        rows : array or list
            Its rows, already checked.
        size : int, optional
            Number of rows, if it is not the length of ``rows``.

        Raises
        ------
        RequestProblem
            The queue is full.
        """
        if len(self._waiting) >= self._queue:
            raise RequestProblem("busy", f"{self._queue} requests are waiting already; try again later")
        size = len(rows) if size is None else size
        call = QueuedCall(operation, rows, size, self._loop.create_future())
        with self._changed:
            self._waiting.append(call)
            self._changed.notify()
        try:
            return await call.future
        except asyncio.CancelledError:
            with self._changed, suppress(ValueError):  # it runs already
                self._waiting.remove(call)
            raise

    def stop(self) -> None:
        """End the thread after the calls that are waiting."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(timeout=1.0)

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            try:
                answers = self._answers(batch) if batch else []
            except BaseException as error:  # noqa: BLE001 - the thread goes on, or later requests would wait for ever
                answers = [(call, _as_exception(error)) for call in batch]
            self._deliver(answers)

    def _next(self) -> list[QueuedCall] | None:
        """Wait for calls and return those of the next batch; None after the end."""
        with self._changed:
            while not self._waiting:
                if self._stopped:
                    return None
                self._changed.wait()
            until = self._waiting[0].arrived + self._seconds
            while not self._is_full() and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._taken()

    def _is_full(self) -> bool:
        if not self._waiting:  # requests that gave up meanwhile
            return True
        first = self._waiting[0]
        joined = sum(call.size for call in self._waiting if call is first or first.joins(call))
        return self._stopped or not first.operation.joins or joined >= self._rows

    def _taken(self) -> list[QueuedCall]:
        """Take the oldest call and, in their order, those that join it and fit."""
        batch: list[QueuedCall] = []
        kept: list[QueuedCall] = []
        rows = 0
        for call in self._waiting:
            if not batch or (batch[0].joins(call) and rows + call.size <= self._rows):
                batch.append(call)
                rows += call.size
            else:
                kept.append(call)
        self._waiting = deque(kept)
        return batch

    def _answers(self, batch: Sequence[QueuedCall]) -> list[tuple[QueuedCall, Any]]:
        """Return a result or an exception for each call."""
        start = time.perf_counter()
        try:
            results = _called(batch)
        except BaseException as error:  # noqa: BLE001 - whatever the model raises is the answer of its request alone
            if len(batch) > 1:
                log(
                    "a joined call failed, and its requests are called alone",
                    logging.WARNING,
                    requests=len(batch),
                )
                return [answer for call in batch for answer in self._answers([call])]
            results = [_as_exception(error)]
        rows = sum(call.size for call in batch)
        try:
            self._observe(batch[0].operation.name, rows, len(batch), time.perf_counter() - start)
        except Exception:  # noqa: BLE001 - the answers are right
            log("a call could not be counted", logging.ERROR, trace=True)
        return list(zip(batch, results, strict=True))

    def _deliver(self, answers: list[tuple[QueuedCall, Any]]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(_set_results, answers)


def _as_exception(error: BaseException) -> Exception:
    """Return an error that a future can hold without ending the loop, as SystemExit would."""
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")


def _called(batch: Sequence[QueuedCall]) -> list[Any]:
    """Call an operation once for all rows, and return the part of each request."""
    operation = batch[0].operation
    if len(batch) == 1:
        return [operation.call(batch[0].rows)]
    parts = [call.rows for call in batch]
    joined = (
        np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [row for rows in parts for row in rows]
    )
    result = operation.call(joined)
    if len(result) != len(joined):
        raise ValueError(f"{operation.name} gave {len(result)} results for {len(joined)} rows")
    ends = np.cumsum([call.size for call in batch]).tolist()
    return [result[end - call.size : end] for call, end in zip(batch, ends, strict=True)]


def _set_results(answers: list[tuple[QueuedCall, Any]]) -> None:
    for call, result in answers:
        if call.future.done():  # its request has ended
            continue
        if isinstance(result, Exception):
            call.future.set_exception(result)
        else:
            call.future.set_result(result)
