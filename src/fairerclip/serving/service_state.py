"""State of one process of the service: its model, the threads that call it, and its counters."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fairerclip.serving.micro_batches import MicroBatches, Operation
from fairerclip.serving.problems import RequestProblem
from fairerclip.serving.served_model import ServedModel
from fairerclip.serving.service_log import log
from fairerclip.serving.service_metrics import ServiceMetrics
from fairerclip.serving.service_settings import ServiceLimits


def limit_threads(count: int) -> None:
    """Limit the threads of BLAS, of OpenMP in this thread, and of torch if it is loaded."""
    threadpool_limits(limits=count)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(count)


class Service:
    """What the requests of one process share; none of it depends on earlier requests.

    Parameters
    ----------
    load : callable
        Function that loads the model; it is called once, in a thread.
    limits : ServiceLimits
        Limits of requests.
    access_log : bool
        Log every request.
    threads : int, optional
        Threads of the libraries that compute.

    Attributes
    ----------
    metrics : ServiceMetrics
        Counters.
    held_bytes : int
        Bytes of the bodies of all requests that are not answered yet.
    failure : BaseException or None
        Why the model could not be loaded.
    """

    def __init__(
        self,
        load: Callable[[], ServedModel],
        limits: ServiceLimits,
        *,
        access_log: bool = True,
        threads: int | None = None,
    ) -> None:
        self.limits, self.access_log, self._threads = limits, access_log, threads
        self.metrics = ServiceMetrics()
        self.held_bytes = 0
        self.failure: BaseException | None = None
        self._load = load
        self._model: ServedModel | None = None
        self._calls: MicroBatches | None = None
        self._decoding: MicroBatches | None = None

    @property
    def ready(self) -> bool:
        """Whether the model is loaded, has answered a first call, and can still be called."""
        return self._model is not None and self.works

    @property
    def works(self) -> bool:
        """Whether the threads that call the model run."""
        return all(calls is not None and calls.alive for calls in (self._calls, self._decoding))

    @property
    def model(self) -> ServedModel:
        """The model; a `RequestProblem` before it is ready."""
        if self._model is None:
            raise RequestProblem("not_ready", "the model is being loaded; try again later")
        return self._model

    def start(self, on_end: Callable[[], Any]) -> None:
        """Load the model in a thread; then it is ready, or ``failure`` is set, and ``on_end`` is called in the loop."""
        loop = asyncio.get_running_loop()
        limits = self.limits
        queue = partial(MicroBatches, loop=loop, queue=limits.queue, observe=self.metrics.called)
        self._calls = queue("model", rows=limits.batch_rows, seconds=limits.batch_seconds)
        self._decoding = queue("decoding", rows=1, seconds=0.0)

        def work() -> None:
            model, failure = None, None
            try:
                model = self._load()
                asyncio.run_coroutine_threadsafe(self._warm_up(model), loop).result()
            except BaseException as error:  # noqa: BLE001 - it ends the process, with the message of the error
                failure = error
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._loaded, model, failure, on_end)

        threading.Thread(target=work, name="loading", daemon=True).start()

    async def _warm_up(self, model: ServedModel) -> None:
        """Call the model a first time, in the thread that will call it: some limits are those of a thread."""

        def first(_: Any) -> None:
            if self._threads is not None:
                limit_threads(self._threads)
            model.warm_up()

        assert self._calls is not None  # noqa: S101 - called by `start`
        await self._calls.run(Operation("warm_up", first, joins=False), [None])

    def stop(self) -> None:
        """End the threads."""
        for calls in (self._calls, self._decoding):
            if calls is not None:
                calls.stop()

    async def call(self, operation: Operation, rows: Any, size: int | None = None) -> Any:
        """Return the result of a call of the model, which is finite."""
        assert self._calls is not None  # noqa: S101 - the loop runs after `start`
        result = await self._calls.run(operation, rows, size)
        if isinstance(result, np.ndarray) and not np.isfinite(result).all():
            raise RequestProblem(
                "out_of_range", "the numbers of a row are so large or small that its answer is not finite"
            )
        return result

    async def decode(self, operation: Operation, images: list[bytes]) -> Any:
        """Return the pixels of images, which are decoded one after another beside the model."""
        assert self._decoding is not None  # noqa: S101 - the loop runs after `start`
        return np.stack([await self._decoding.run(operation, image, 1) for image in images])

    def _loaded(
        self, model: ServedModel | None, failure: BaseException | None, on_end: Callable[[], Any]
    ) -> None:
        self._model, self.failure = (None if failure else model), failure
        if model is not None and failure is None:
            self.metrics.ready.set(1)
            log("ready", kind=model.kind, width=model.width)
        on_end()
