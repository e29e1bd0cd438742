"""Settings of the service: what it serves, where, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fairerclip.encoders.choice import ModelChoice
from fairerclip.errors import ParameterError

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable by which prometheus_client shares values between processes, read when it is imported."""
MAX_JSON_BYTES = 4 * 1024**2
"""Most bytes of a JSON body: nothing else runs while one is parsed, about 0.1 s for this size."""


OPTIONS = {
    "body_bytes": "--max-body",
    "held_bytes": "--max-held",
    "rows": "--max-rows",
    "images": "--max-images",
    "seconds": "--timeout",
    "body_seconds": "--body-timeout",
    "connections": "--max-connections",
    "queue": "--queue",
    "batch_rows": "--batch-rows",
    "batch_seconds": "--batch-wait",
    "grace_seconds": "--grace",
}
"""Options of the command line that set a limit, for messages."""


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of one process of the service.

    Attributes
    ----------
    body_bytes : int
        Most bytes of the body of one request; JSON has at most `MAX_JSON_BYTES`.
    held_bytes : int
        Most bytes of the bodies of all requests that are received or answered at a time.
    rows, images, pixels : int
        Most rows and images of one request, and most pixels of one image.
    seconds : float
        Time of a request, from its head to its answer.
    body_seconds, head_seconds : float
        Time for the body and for the head of a request to arrive.
    idle_seconds : float
        Time that a connection may wait for its next request.
    connections : int
        Most connections.
    queue : int
        Most requests that wait for the model.
    batch_rows, batch_seconds : int and float
        Rows that are joined into one call of the model, and how long a call waits for more of them.
    grace_seconds : float
        Time for running requests to finish after SIGTERM.
    """

    body_bytes: int = 16_000_000
    held_bytes: int = 512_000_000
    rows: int = 1024
    images: int = 16
    pixels: int = 12_000_000
    seconds: float = 30.0
    body_seconds: float = 10.0
    head_seconds: float = 10.0
    idle_seconds: float = 60.0
    connections: int = 1024
    queue: int = 128
    batch_rows: int = 256
    batch_seconds: float = 0.0
    grace_seconds: float = 20.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            lowest = 0 if name == "batch_seconds" else 1 if isinstance(value, int) else 1e-3
            if not lowest <= value < 2**63:
                given = OPTIONS.get(name, name)
                raise ParameterError(f"{given} must be at least {lowest} and below 2^63; got {value}")


@dataclass(frozen=True)
class ServiceSettings:
    """What is served and where.

    Attributes
    ----------
    model : Path
        Folder of a saved model.
    encoder : ModelChoice or None
        CLIP model that embeds texts and images.
    host, port : str and int
        Address to listen at; port 0 takes a free one.
    uds : Path or None
        Unix socket to listen at instead.
    workers : int
        Number of processes.
    access_log : bool
        Write a line on standard error for each request.
    limits : ServiceLimits
        Limits of each process.
    """

    model: Path
    encoder: ModelChoice | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    uds: Path | None = None
    workers: int = 1
    access_log: bool = True
    limits: ServiceLimits = field(default_factory=ServiceLimits)
