"""`fairerclip export`: writes a fitted model as ONNX or for torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a fitted model, of any method.")]
Output = Annotated[
    Path, options.writes("--output", "-o", help="File, .onnx or .pt2; with --part all a folder.")
]
Format = Annotated[
    str,
    typer.Option(
        metavar="onnx|torch",
        help="onnx: a file that onnxruntime runs. torch: an archive that torch.export.load opens.",
    ),
]
Part = Annotated[
    str | None,
    typer.Option(
        metavar="classifier|image|text|all",
        help="Function of the model: class scores and label, embeddings of images, embeddings of prompts, or a folder "
        "with a file for each that it has. Default: classifier, or image for a mitigator.",
    ),
]


def export(
    model: Model,
    output: Output,
    format: Format = "onnx",  # noqa: A002 - the name of the option
    part: Part = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Write a fitted model for other programs: as ONNX, or as an archive of torch. Neither needs fairerclip to run."""
    import time
    from dataclasses import asdict

    from fairerclip.cli import show
    from fairerclip.export.model_files import export_model

    began = time.perf_counter()
    with show.warnings_as_lines() as warned:
        files = export_model(model, output, format=format, part=part, overwrite=overwrite)
    seconds = time.perf_counter() - began
    if json:
        found = {"output": str(output), "format": format, "files": [asdict(file) for file in files]}
        show.print_json({**found, "seconds": seconds, "warnings": warned})
        return
    for file in files:
        show.say(f"{file.part} written to {file.path} ({file.bytes} bytes)")
