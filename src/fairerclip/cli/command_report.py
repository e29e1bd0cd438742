"""`fairerclip report`: writes the results of an audit as a page, tables or a model card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairerclip.cli import options

if TYPE_CHECKING:
    from fairerclip.auditing.results import AuditResults


Result = Annotated[
    Path,
    typer.Argument(metavar="RESULT", help="results.json or its folder; or a task, which is audited first."),
]
Output = Annotated[
    Path | None,
    options.writes("--output", "-o", help="File to write; a folder for csv. Default: report.FORMAT here."),
]
Format = Annotated[
    str | None,
    typer.Option(help="html, md, json, csv or card. Default: by the output's ending; html without --output."),
]
Figures = Annotated[
    Path | None, options.writes(help="Also draw figures for papers (PDF and PNG) into this folder.")
]
Title = Annotated[str | None, typer.Option(help="Title of the page.")]


def report(
    result: Result,
    output: Output = None,
    format: Format = None,  # noqa: A002 - what users type
    figures: Figures = None,
    title: Title = None,
    mitigate: options.Mitigate = False,
    after: options.After = None,
    split: options.AuditedSplit = None,
    k: options.ResultsShown = None,
    pair: options.Pair = None,
    labels: options.Labels = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    seed: options.Seed = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Make one self-contained page with plots and the trade-off explorer, or another form of the same results.

    --mitigate, --after, --split, --k, --pair, --labels, --sensitive, --classes and --seed go with a task, as in
    `fairerclip audit`.
    """
    from fairerclip.auditing.recommendation import recommend
    from fairerclip.cli import show
    from fairerclip.report.figures.draw import check_figures, draw_figures
    from fairerclip.report.write import FORMATS, check_output, choose_kind, write_report

    kind = choose_kind(format, output)
    target = output or Path("report" if kind == "csv" else f"report.{FORMATS[kind]}")
    check_output(kind, target, overwrite=overwrite)
    if figures is not None:
        check_figures(figures, overwrite=overwrite)
    audit: dict[str, Any] = {"sensitive": sensitive, "classes": classes, "labels": labels, "seed": seed}
    audit |= {"mitigate": mitigate or None, "after": after}
    audit |= {"split": split, "k": k, "pair": pair}
    results = _results(result, {name: value for name, value in audit.items() if value is not None})
    written = write_report(results, target, kind, title=title, overwrite=overwrite)
    drawn = [] if figures is None else draw_figures(results, figures, overwrite=overwrite)
    answer = recommend(results)
    verdict = (answer.sentence, answer.advice)
    if json:
        files = {"report": str(written), "format": kind, "figures": [str(file) for file in drawn]}
        show.print_json({**files, "verdict": verdict})
        return
    show.answer(verdict)
    show.say(f"report written to {written}")
    if drawn:
        show.say(f"{len(drawn)} figures written to {figures}")


def _results(path: Path, given: dict[str, Any]) -> AuditResults:
    """Read results, or audit a task with the options that were given; raise if options are given with results."""
    from fairerclip.auditing.results import FILE_NAME, read_results
    from fairerclip.cli.command_audit import FitChoices, full_audit
    from fairerclip.errors import ParameterError

    if path.suffix == ".json" or (path / FILE_NAME).is_file():
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ParameterError(
                f"{names}: these go with a task, but {path} holds results of an audit: leave them out"
            )
        return read_results(path)
    experiment = options.load_experiment(path, given.pop("sensitive", None), given.pop("classes", None))
    fitting = FitChoices(labels=given.pop("labels", None))
    return full_audit(experiment, fitting, source=options.as_text(path), **given)[0]
