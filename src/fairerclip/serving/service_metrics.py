"""Counters and histograms of the service in the text format of Prometheus.

With several processes the values are files in the folder ``PROMETHEUS_MULTIPROC_DIR``, and any process can give the
sums over all of them.
"""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from fairerclip.serving.service_settings import METRICS_FOLDER

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = tuple(float(2**k) for k in range(13))


class ServiceMetrics:
    """All values of one process.

    Labels have few values: endpoints by name ("other" for paths that do not exist), and statuses.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = {"registry": self.registry}
        self.requests = Counter("fairerclip_requests", "Requests.", ["endpoint", "status"], **own)
        self.seconds = Histogram(
            "fairerclip_request_seconds",
            "Seconds from the head to the answer.",
            ["endpoint"],
            buckets=SECONDS,
            **own,
        )
        self.rows = Counter("fairerclip_rows", "Rows that were answered.", ["endpoint"], **own)
        self.batch_rows = Histogram(
            "fairerclip_batch_rows", "Rows of a call of the model.", ["operation"], buckets=ROWS, **own
        )
        self.batch_requests = Histogram(
            "fairerclip_batch_requests",
            "Requests of a call of the model.",
            ["operation"],
            buckets=ROWS[:9],
            **own,
        )
        self.call_seconds = Histogram(
            "fairerclip_call_seconds",
            "Seconds of a call of the model.",
            ["operation"],
            buckets=SECONDS,
            **own,
        )
        live = {"multiprocess_mode": "livesum", **own}
        self.in_progress = Gauge(
            "fairerclip_requests_in_progress", "Requests that are not answered yet.", **live
        )
        self.ready = Gauge("fairerclip_workers_ready", "Processes that are ready.", **live)
        self._children: dict[tuple[str, ...], Any] = {}

    def finished(self, endpoint: str, status: int, seconds: float, rows: int) -> None:
        """Count an answered request."""
        self._child(self.requests, endpoint, str(status)).inc()
        self._child(self.seconds, endpoint).observe(seconds)
        if rows and status == 200:
            self._child(self.rows, endpoint).inc(rows)

    def called(self, operation: str, rows: int, requests: int, seconds: float) -> None:
        """Count a call of the model."""
        self._child(self.batch_rows, operation).observe(rows)
        self._child(self.batch_requests, operation).observe(requests)
        self._child(self.call_seconds, operation).observe(seconds)

    def page(self) -> tuple[bytes, str]:
        """Return the values of all processes, and the type of the text."""
        registry = self.registry
        if METRICS_FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry), CONTENT_TYPE_LATEST

    def _child(self, metric: Any, *labels: str) -> Any:
        key = (metric._name, *labels)
        if key not in self._children:
            self._children[key] = metric.labels(*labels)
        return self._children[key]
