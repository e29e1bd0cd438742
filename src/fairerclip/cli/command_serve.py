"""`fairerclip serve`: a fitted model behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.serving.listening_socket import Address

LEAST_BYTES = 1000
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that fit wrote.")]
Encoder = Annotated[
    str | None,
    typer.Option(
        help=f"CLIP model that embedded the rows of the fit, for texts and images: {options.MODELS}."
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen at.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")]
Uds = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        parser=options.output_path,
        help="Unix socket to listen at, instead of --host and --port.",
    ),
]
Processes = Annotated[int, typer.Option("--workers", min=1, max=256, help="Processes that share the socket.")]
BodySize = Annotated[str, typer.Option("--max-body", metavar="SIZE", help="Largest body of a request.")]
HeldSize = Annotated[
    str,
    typer.Option(
        "--max-held", metavar="SIZE", help="Largest sum of the bodies that a process holds at a time."
    ),
]
MaxRows = Annotated[int, typer.Option(min=1, help="Most rows of a request.")]
MaxImages = Annotated[int, typer.Option(min=1, help="Most images of a request.")]
Seconds = Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds from a request to its answer.")]
BodySeconds = Annotated[
    float,
    typer.Option("--body-timeout", min=0.001, help="Seconds for the head of a request, and for its body."),
]
Connections = Annotated[int, typer.Option("--max-connections", min=1, help="Most connections of a process.")]
Queue = Annotated[
    int, typer.Option(min=1, help="Most requests that wait for the model; more are answered with 503.")
]
BatchRows = Annotated[
    int, typer.Option(min=1, help="Rows of waiting requests that are joined into one call.")
]
BatchWait = Annotated[
    float,
    typer.Option(
        min=0, help="Milliseconds that a call waits for more requests; 0: it joins those that wait."
    ),
]
Grace = Annotated[
    float, typer.Option(min=0.001, help="Seconds for running requests to finish after SIGTERM.")
]
AccessLog = Annotated[
    bool, typer.Option("--access-log/--no-access-log", help="Log each request as a line of JSON.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the address as one line of JSON; errors too.")]


def serve(
    model: Model,
    encoder: Encoder = None,
    weights: options.Weights = None,
    preprocessing: options.Preprocessing = None,
    device: options.Device = "cpu",
    download: options.Download = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    uds: Uds = None,
    workers: Processes = 1,
    max_body: BodySize = "16MB",
    max_held: HeldSize = "512MB",
    max_rows: MaxRows = 1024,
    max_images: MaxImages = 16,
    timeout: Seconds = 30.0,
    body_timeout: BodySeconds = 10.0,
    max_connections: Connections = 1024,
    queue: Queue = 128,
    batch_rows: BatchRows = 256,
    batch_wait: BatchWait = 0.0,
    grace: Grace = 20.0,
    access_log: AccessLog = True,
    json: Json = False,
) -> None:
    """Serve a model over HTTP: classify, rank, mitigate and embed; ends on SIGTERM after what runs is finished."""
    import signal

    from fairerclip._util.checks import as_bytes
    from fairerclip.serving.service_settings import ServiceLimits, ServiceSettings
    from fairerclip.serving.supervisor import serve as run

    limits = ServiceLimits(
        body_bytes=as_bytes(max_body, "--max-body", LEAST_BYTES) or 0,
        held_bytes=as_bytes(max_held, "--max-held", LEAST_BYTES) or 0,
        rows=max_rows,
        images=max_images,
        seconds=timeout,
        body_seconds=body_timeout,
        head_seconds=body_timeout,
        connections=max_connections,
        queue=queue,
        batch_rows=batch_rows,
        batch_seconds=batch_wait / 1000,
        grace_seconds=grace,
    )
    settings = ServiceSettings(
        model=model,
        encoder=_encoder(encoder, weights, preprocessing, device, download),
        host=host,
        port=port,
        uds=uds,
        workers=workers,
        access_log=access_log,
        limits=limits,
    )
    number = run(settings, lambda address: _print_start(settings.model, address, workers, json=json))
    if number == signal.SIGINT:
        signal.raise_signal(number)  # the command line prints that it was interrupted


def _encoder(
    encoder: str | None, weights: str | None, preprocessing: str | None, device: str, download: bool
) -> Any:
    from fairerclip.encoders.choice import ModelChoice
    from fairerclip.errors import ParameterError

    if encoder is not None:
        return ModelChoice(encoder, weights, preprocessing, device, download)
    if weights is not None or preprocessing is not None or device != "cpu" or download:
        raise ParameterError(
            "--weights, --preprocessing, --device and --download set how --encoder is loaded; give --encoder too"
        )
    return None


def _print_start(model: Path, address: Address, workers: int, *, json: bool) -> None:
    """Print where the service is, when it is ready."""
    import json as library
    import os

    from fairerclip.cli import streams

    start = {"url": address.url, "uds": address.uds, "pid": os.getpid(), "workers": workers}
    if json:
        streams.write(library.dumps(start))
    else:
        where = address.url or f"the Unix socket {address.uds}"
        streams.write(f"{model} is served at {where}; Ctrl-C or SIGTERM ends it")
    streams.flush()
