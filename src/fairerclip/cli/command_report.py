"""`fairerclip report`: a page, a table or a model card of what an audit found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.auditing.results import AuditResults


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
        options.writes(
            "--output", "-o", help="File to write; a folder for csv. Default: report.FORMAT here."
        ),
    ] = None,
    format: Annotated[  # noqa: A002 - what users type
        str | None,
        typer.Option(
            help="html, md, json, csv or card. Default: by the output's ending; html without --output."
        ),
    ] = None,
    figures: Annotated[
        Path | None, options.writes(help="Also draw figures for papers (PDF and PNG) into this folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    mitigate: options.Mitigate = False,
    after: options.After = None,
    before_only: options.BeforeOnly = False,
    split: Annotated[
        str | None, typer.Option(help="For a task: split to audit. Default: test, else val, else train.")
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            help="For a task: results that a search shows. Default: 1000, or a quarter of the rows."
        ),
    ] = None,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Make one self-contained page with plots and the trade-off explorer, or another form of the same results.

    Of a task: --mitigate, --after, --split, --k and what follows are those of `fairerclip audit`.
    """
    from fairerclip.cli import show
    from fairerclip.report.figures.draw import check_figures, draw_figures
    from fairerclip.report.write import FORMATS, check_output, choose_kind, write_report

    kind = choose_kind(format, output)
    target = output or Path("report" if kind == "csv" else f"report.{FORMATS[kind]}")
    check_output(kind, target, overwrite=overwrite)
    if figures is not None:
        check_figures(figures, overwrite=overwrite)
    about = {"sensitive": sensitive, "classes": classes, "labels": labels, "seed": seed}
    how: dict[str, Any] = {"mitigate": mitigate or None, "after": after, "before_only": before_only or None}
    how |= {"split": split, "k": k}
    results = _results(result, {name: value for name, value in (about | how).items() if value is not None})
    written = write_report(results, target, kind, title=title, overwrite=overwrite)
    drawn = [] if figures is None else draw_figures(results, figures, overwrite=overwrite)
    if json:
        files = {"report": str(written), "format": kind, "figures": [str(file) for file in drawn]}
        show.print_json({**files, "verdict": results.verdict})
        return
    for sentence in results.verdict:
        show.say(f"• {sentence}")
    show.say(f"report written to {written}")
    if drawn:
        show.say(f"{len(drawn)} figures written to {figures}")


def _results(path: Path, given: dict[str, Any]) -> AuditResults:
    """Read results, or audit a task as the options that were given say."""
    from fairerclip.auditing.results import FILE_NAME, read_results
    from fairerclip.cli.command_audit import full_audit
    from fairerclip.errors import ParameterError

    if path.suffix == ".json" or (path / FILE_NAME).is_file():
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ParameterError(f"{names}: these go with a task, not with results, which are what they are")
        return read_results(path)
    experiment = options.load_experiment(path, given.pop("sensitive", None), given.pop("classes", None))
    return full_audit(experiment, source=options.as_text(path), **given)[0]
