"""`fairerclip report`: a page, a table or a model card of what an audit found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fairerclip.cli import options

ENDINGS = {".html": "html", ".md": "md", ".json": "json"}


def report(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT",
            help="results.json or its folder; or a task, which is audited first.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; a folder for csv. Default: report.FORMAT here."),
    ] = None,
    format: Annotated[  # noqa: A002 - what users type
        str | None,
        typer.Option(help="html, md, json, csv or card. Default: by the output's ending, else html."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also draw figures for papers (PDF and PNG) into this folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Make one self-contained page with plots and the trade-off explorer, or another form of the same results."""
    from fairerclip.cli import show
    from fairerclip.report.figures import check_figures, draw_figures
    from fairerclip.report.write import FORMATS, check_output, write_report

    kind = format or ENDINGS.get("" if output is None else output.suffix, "html")
    target = output or Path("report" if kind == "csv" else f"report.{FORMATS.get(kind, kind)}")
    check_output(kind, target, overwrite=overwrite)
    if figures is not None:
        check_figures(figures, overwrite=overwrite)
    results = _results(result, labels, sensitive, classes, seed)
    written = write_report(results, target, kind, title=title, overwrite=overwrite)
    drawn = [] if figures is None else draw_figures(results, figures, overwrite=overwrite)
    if json:
        files = {"report": str(written), "format": kind, "figures": [str(file) for file in drawn]}
        show.print_json({**files, "verdict": results["verdict"]})
        return
    for sentence in results["verdict"]:
        show.say(f"• {sentence}")
    show.say(f"report written to {written}")
    if drawn:
        show.say(f"{len(drawn)} figures written to {figures}")


def _results(
    path: Path, labels: str | None, sensitive: str | None, classes: str | None, seed: int | None
) -> dict[str, Any]:
    """Read results, or audit a task."""
    from fairerclip.audit.results import FILE_NAME, read_results
    from fairerclip.cli.audit import full_audit
    from fairerclip.errors import ParameterError

    if path.suffix == ".json" or (path / FILE_NAME).is_file():
        if any(value is not None for value in (labels, sensitive, classes, seed)):
            raise ParameterError(
                "--labels, --sensitive, --classes and --seed go with a task, not with results"
            )
        return read_results(path)
    experiment = options.load_experiment(path, sensitive, classes)
    return full_audit(experiment, source=str(path), labels=labels, seed=seed)[0]
