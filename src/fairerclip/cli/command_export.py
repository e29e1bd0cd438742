"""`fairerclip export`: writes a fitted model as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairerclip.cli import options

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a fitted model, of any method.")]
Output = Annotated[Path, options.writes("--output", "-o", help="File, .onnx; with --part all a folder.")]
Format = Annotated[
    str,
    typer.Option(
        metavar="onnx",
        help="onnx: a file that onnxruntime runs. For torch: fairerclip.export.to_torch, in Python.",
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
    """Write a fitted model for other programs, as ONNX, which needs no fairerclip to run."""
    import time
    from dataclasses import asdict

    from fairerclip._util.checks import check_choice
    from fairerclip.cli import show
    from fairerclip.export.model_files import export_model

    check_choice("format", format, ("onnx",))
    began = time.perf_counter()
    with show.warnings_as_lines() as warned:
        files = export_model(model, output, part=part, overwrite=overwrite)
    seconds = time.perf_counter() - began
    if json:
        found = {"output": str(output), "format": format, "files": [asdict(file) for file in files]}
        show.print_json({**found, "seconds": seconds, "warnings": warned})
        return
    for file in files:
        show.say(f"{file.part} written to {file.path} ({file.bytes} bytes)")
