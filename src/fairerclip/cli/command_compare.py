"""`fairerclip compare`: compares FairerCLIP with every baseline on one task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fairerclip.cli import options
from fairerclip.cli.signals import kept_when_stopped

if TYPE_CHECKING:
    from fairerclip.experiment import Experiment
    from fairerclip.report.answer_page import AnswerPage
    from fairerclip.study.compare import CompareOptions
    from fairerclip.study.compare_rankings import RankingOptions
    from fairerclip.study.comparison import Comparison, ComparisonRow

SHOWN_REASONS = 3
"""Reasons of failures that a message lists."""

Output = Annotated[
    Path | None,
    options.writes(
        "--output", "-o", help="Folder for results and runs; finished runs in it are not run again."
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods, comma-separated; `list` prints them, and needs no TASK. Default: all that the task allows."
    ),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        callback=options.in_range,
        help="Number of seeds, for methods that depend on the seed. Default: 3.",
    ),
]
Splits = Annotated[
    int | None,
    typer.Option(
        callback=options.in_range,
        help="Number of resampled splits in place of seeds: rows change places inside each class and group, and "
        "intervals are for new rows.",
    ),
]
GradientSplits = Annotated[
    int | None,
    typer.Option(
        callback=options.in_range,
        help="With --splits: number of resampled splits for methods trained by gradient. Default: 5.",
    ),
]
Rankings = Annotated[
    bool,
    typer.Option(
        "--rankings",
        help="Compare rankings by queries instead of predictions. Default for a task without target labels.",
    ),
]
QueryFile = Annotated[
    Path | None,
    typer.Option(
        "--queries",
        help="With rankings: embeddings of free queries (.npz, .safetensors, .npy, a store or a task), in place of "
        "those of the task.",
    ),
]
Unrelated = Annotated[
    Path | None,
    typer.Option(
        "--unrelated",
        help="With rankings: another task of the same encoder, whose zero-shot accuracy should not change.",
    ),
]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        callback=options.in_range,
        help="Largest number of batches of one training by gradient; not for rankings. Default: 20000.",
    ),
]
SaveBest = Annotated[
    Path | None,
    options.writes(
        "--save-best",
        help="Folder to save the method with the best worst group to, trained again as in its first run; a new one.",
    ),
]
Plot = Annotated[Path | None, options.writes(help="Draw worst group against average (.png, .svg or .pdf).")]


def compare(
    task: options.TaskFileOrNone = None,
    output: Output = None,
    methods: Methods = None,
    sensitive: options.SensitiveNames = None,
    classes: options.ClassNames = None,
    seeds: Seeds = None,
    splits: Splits = None,
    gradient_splits: GradientSplits = None,
    jobs: options.Jobs = None,
    max_steps: MaxSteps = None,
    rankings: Rankings = False,
    queries: QueryFile = None,
    unrelated: Unrelated = None,
    plot: Plot = None,
    save_best: SaveBest = None,
    overwrite: options.Overwrite = False,
    verbose: options.Verbose = False,
    json: options.Json = False,
) -> None:
    """Tune and test every method on the same rows, with seeds and intervals.

    A method that fails is reported and does not stop the others. The exit code is 1 where no method has a figure, where
    a run of a method named with --methods failed, or where the process of a run died twice.
    """
    from fairerclip.study.compare import CompareOptions
    from fairerclip.study.compare_rankings import RankingOptions

    chosen = _given(splits=splits, gradient_splits=gradient_splits)
    drawn = _given(seeds=seeds, max_steps=max_steps)
    if methods == "list":
        _list(json)
        return
    if task is None:
        raise typer.BadParameter("Missing argument 'TASK'.")
    if splits is not None and save_best is not None:
        raise typer.BadParameter(
            "--save-best is for the splits of the task: leave out --splits, or fit the best method with "
            "`fairerclip fit --method`."
        )
    if splits is not None and seeds is not None:
        raise typer.BadParameter("--splits takes the place of --seeds: leave out one of them.")
    if splits is None and gradient_splits is not None:
        raise typer.BadParameter("--gradient-splits is for --splits: give both, or leave it out.")
    keys = options.split_names(methods)
    named, shown = None if keys is None else tuple(keys), _Shown(output, overwrite, verbose, json)
    common: dict[str, Any] = {"jobs": jobs, "source": options.as_text(task)}
    _check_outputs(output, plot, save_best, overwrite=overwrite)
    experiment = options.load_experiment(task, sensitive, classes)
    if rankings or queries is not None or unrelated is not None or experiment.is_gallery():
        if plot is not None or save_best is not None:
            raise typer.BadParameter("--plot and --save-best are not for rankings: leave them out.")
        if drawn:
            raise typer.BadParameter("--seeds and --max-steps are not for rankings: leave them out.")
        _rankings(experiment, RankingOptions(named, **common, **chosen), shown, queries, unrelated)
        return
    _predictions(experiment, CompareOptions(named, **common, **chosen, **drawn), shown, plot, save_best)


def _given(**values: int | None) -> dict[str, Any]:
    """Return the options that were given; others keep the defaults of a comparison."""
    return {name: value for name, value in values.items() if value is not None}


class _Shown(NamedTuple):
    """Where results go and how they are shown."""

    output: Path | None
    overwrite: bool
    verbose: bool
    json: bool


def _predictions(
    experiment: Experiment,
    settings: CompareOptions,
    shown: _Shown,
    plot: Path | None,
    save_best: Path | None,
) -> None:
    """Compare the predictions of methods, and print or write the results."""
    from fairerclip.cli import show
    from fairerclip.study.best_method import save_best as save_winner
    from fairerclip.study.compare import compare as run
    from fairerclip.study.compare import data_of
    from fairerclip.study.comparison import FILES, check_comparison, write_comparison
    from fairerclip.study.comparison_page import draw_front, page

    output = shown.output
    if output is not None:
        check_comparison(output, data_of(experiment), overwrite=shown.overwrite)
    work = None if output is None else output / "runs"
    best = None
    with kept_when_stopped(work), show.warnings_as_lines():
        with show.progress("compare") as advance:
            results = run(experiment, settings, work=work, progress=advance)
            if output is not None:
                write_comparison(results, page(results), output, overwrite=shown.overwrite)
        if plot is not None:
            draw_front(results, plot, overwrite=shown.overwrite)
        if save_best is not None and any(row.figures for row in results.rows):
            best = save_winner(experiment, results, save_best)
    if not shown.json:
        _print_page(
            page(results), output, f"{FILES[0]} has the picture, all figures and notes", verbose=shown.verbose
        )
        for sentence in () if best is None else (*best.sentences, f"model written to {save_best}"):
            show.say(sentence)
    _check(results, settings.methods)
    if shown.json:
        saved = {} if best is None else {"saved": {**best.as_dict(), "model": str(save_best)}}
        show.print_json({**results.as_dict(), **saved})


def _rankings(
    experiment: Experiment,
    chosen: RankingOptions,
    shown: _Shown,
    queries: Path | None,
    unrelated: Path | None,
) -> None:
    """Compare methods for rankings, and print or write the results."""
    from dataclasses import replace

    from fairerclip.auditing.run import digest
    from fairerclip.cli import show
    from fairerclip.data import load_task
    from fairerclip.data.query_files import read_queries
    from fairerclip.data.task_parts import Sentences
    from fairerclip.errors import WorkFailedError
    from fairerclip.study.compare_rankings import compare_rankings
    from fairerclip.study.ranking_comparison import check_rankings, write_rankings
    from fairerclip.study.ranking_page import rankings_page

    output = shown.output
    if queries is not None:
        text, names = read_queries(queries)
        task = replace(experiment.task, queries=Sentences(text=text, prompts=tuple(names)))
        experiment = replace(experiment, task=task)
    other = None if unrelated is None else load_task(unrelated)
    if output is not None:
        check_rankings(output, digest(experiment.task), overwrite=shown.overwrite)
    work = None if output is None else output / "runs"
    with kept_when_stopped(work), show.warnings_as_lines(), show.progress("compare") as advance:
        results = compare_rankings(experiment, chosen, unrelated=other, work=work, progress=advance)
        if output is not None:
            write_rankings(results, rankings_page(results), output, overwrite=shown.overwrite)
    if not shown.json:
        _print_page(
            rankings_page(results), output, "rankings.html has all figures and notes", verbose=shown.verbose
        )
    failed = [row for row in results.rows if row.errors]
    if failed and (chosen.methods is not None or not any(row.figures for row in results.rows)):
        raise WorkFailedError(f"{len(failed)} methods failed: {failed[0].errors[0]}", results.as_dict())
    if shown.json:
        show.print_json(results.as_dict())


def _check_outputs(
    output: Path | None, plot: Path | None, save_best: Path | None, *, overwrite: bool
) -> None:
    """Raise if an output cannot be written; the model of the winner may be of any kind, so its folder must be new."""
    from fairerclip._util.files import check_folder
    from fairerclip.auditing.many_models import check_plot
    from fairerclip.errors import OutputExistsError

    if output is not None:
        check_folder(output, overwrite=True)
    if plot is not None:
        check_plot(plot, overwrite)
    if save_best is None:
        return
    check_folder(save_best, overwrite=True)
    if save_best.exists():
        raise OutputExistsError(
            f"{save_best} exists, and --save-best does not replace a model, as the winner may be of another kind: "
            "choose another name"
        )


def _list(json: bool) -> None:
    """Print the methods, and which of them are compared by predictions and which by rankings."""
    from fairerclip.cli import show
    from fairerclip.study.methods import METHODS
    from fairerclip.study.ranking_run import ranking_methods

    predicting = {method.key for method in METHODS}
    ranking = {method.key: method for method in ranking_methods()}
    methods = [*METHODS, *(method for key, method in ranking.items() if key not in predicting)]
    if json:
        names = ("key", "title", "labels", "gradient", "needs")
        kinds = [{"predictions": m.key in predicting, "rankings": m.key in ranking} for m in methods]
        listed = [{name: getattr(method, name) for name in names} for method in methods]
        show.print_json({"methods": [{**about, **kind} for about, kind in zip(listed, kinds, strict=True)]})
        return
    for method in methods:
        given = "; is given S of all rows, also of those it predicts" if method.needs_known_rows else ""
        ranks = "; ranks by free queries" if method.key in ranking else ""
        only = "" if method.key in predicting else ", for --rankings only"
        show.say(f"{method.key}: {method.title}; labels in training: {method.fit_labels}{given}{ranks}{only}")


def _check(results: Comparison, named: Sequence[str] | None) -> None:
    """Warn of methods and runs that failed; raise if results that were asked for are missing.

    It raises if no method has a figure, if a run of a method asked for by name failed, or if the process of a run died:
    a second try may then succeed, and exit code 0 would hide that.
    """
    from fairerclip.cli import show
    from fairerclip.errors import WorkFailedError
    from fairerclip.study.workers import is_lost

    rows = results.rows
    failed = [row for row in rows if row.figures is None]
    partly = [row for row in rows if row.errors and row.figures is not None]
    messages = []
    if failed:
        messages.append(f"{len(failed)} of {len(rows)} methods failed ({_reasons(failed)})")
    if partly:
        messages.append(f"{len(partly)} of {len(rows)} methods lack some of their runs ({_reasons(partly)})")
    lost = any(is_lost(error) for row in rows for error in row.errors)
    if messages and (named is not None or lost or len(failed) == len(rows)):
        raise WorkFailedError("; ".join(messages), results.as_dict())
    for message in messages:
        show.warn(message)


def _reasons(rows: Sequence[ComparisonRow]) -> str:
    """Return the first error of each of the first few methods."""
    first = [f"{row.method}: {row.errors[0]}" for row in rows[:SHOWN_REASONS]]
    return "; ".join([*first, *(["…"] if len(rows) > SHOWN_REASONS else [])])


def _print_page(shown: AnswerPage, output: Path | None, rest: str, *, verbose: bool) -> None:
    """Print the answer, what failed or does harm, the table of all methods, and where the rest is."""
    from fairerclip.cli import show
    from fairerclip.report.result_table import to_terminal

    if shown.simulated:
        show.say(shown.source)
    show.answer((shown.answer, shown.recommendation))
    for text in (*shown.advice, *(alert.text for alert in shown.alerts)):
        show.say(f"• {text}")
    table = shown.table.flat()
    show.put(show.plain_table(None, table.columns, to_terminal(table), left=range(table.left)))
    show.say(shown.table.note)
    for part in shown.folded if verbose else ():
        show.say("")
        show.head(part.title)
        for sentence in part.sentences:
            show.say(f"• {sentence}")
        for more in part.tables:
            show.put(show.plain_table(None, more.columns, to_terminal(more)))
    if output is not None:
        show.say(f"results written to {output}: {rest}")
    elif not verbose:
        show.say(
            "--verbose prints all figures, times and notes; -o OUT writes them and a page with a picture"
        )
