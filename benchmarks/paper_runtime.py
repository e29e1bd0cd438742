"""Training time of every method of the package, over FairerCLIP's, beside the paper's table of training times.

Simulated tasks have the rows of Waterbirds and of CelebA and the width of ViT-L/14. Each method is fitted once with its
published or default setting; FairerCLIP with the paper's parameters for the dataset, with our defaults, and with fixed
parameters. Published seconds are of another machine: compare the ratios.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness import Benchmark, options
from simulated_rows import FIXED
from sklearn.base import clone

from fairerclip import FairerCLIP
from fairerclip.data.simulate import CELEBA_ROWS, WATERBIRDS_ROWS, celeba, waterbirds
from fairerclip.experiment import Experiment
from fairerclip.report.result_table import Cell
from fairerclip.study.choose_model import fit_arguments
from fairerclip.study.method import Method, make
from fairerclip.study.methods import METHODS
from fairerclip.study.paper.published import published

TASKS: Mapping[str, tuple[Callable[..., Any], int, str]] = {
    "waterbirds": (waterbirds, sum(WATERBIRDS_ROWS["train"]), "waterbirds"),
    "celeba": (celeba, sum(CELEBA_ROWS["train"]), "blond"),
}
"""Simulated task, its training rows and the name of the dataset in the published table, by name."""
PAPER, DEFAULTS = "FairerCLIP as in the paper", "FairerCLIP, our defaults"
WARM_ROWS, WARM_STEPS = 400, 2
"""Rows and steps of a first fit that is not timed."""


def fitting(method: Method, experiment: Experiment, max_steps: int | None) -> Callable[[], None]:
    """Return a call that fits a method with its published or default setting on the training rows."""
    arguments = fit_arguments(method, experiment)
    if method.labels == "validation":
        val = experiment.task.val
        arguments["validation"] = (val.X, *experiment.labels(val))
    X, y = arguments.pop("X"), arguments.pop("y")

    def fit() -> None:
        make(method, method.candidates[0], 0, max_steps).fit(X, y, **arguments)

    return fit


def package_methods(experiment: Experiment, max_steps: int | None) -> dict[str, Callable[[], Any]]:
    """Return a call by title for every method of the package but FairerCLIP, and TIE, whose fit is that of TIE*."""
    timed = [method for method in METHODS if not method.is_own and not method.needs_known_rows]
    return {method.title: fitting(method, experiment, max_steps) for method in timed}


def fairerclips(experiment: Experiment, dataset: str, D: int) -> dict[str, Callable[[], Any]]:
    """Return a call by title for FairerCLIP with target labels: as in the paper, our defaults, fixed parameters."""
    models = {
        PAPER: FairerCLIP.preset(dataset),
        DEFAULTS: FairerCLIP(n_features=D, random_state=0),
        "FairerCLIP, fixed parameters": FairerCLIP(n_features=D, random_state=0, **FIXED),
    }
    return {title: own_fit(experiment, model) for title, model in models.items()}


def own_fit(experiment: Experiment, model: FairerCLIP) -> Callable[[], None]:
    """Return a call that fits a copy and drops it: features that a model keeps would take memory from the next fit."""

    def fit() -> None:
        experiment.fit(clone(model), "target")

    return fit


def warm_up(bench: Benchmark, name: str) -> None:
    """Fit everything once on a few rows, so that no time includes loading a library."""
    make_task, n, _ = TASKS[name]
    asked = bench.settings
    experiment = Experiment.of(make_task(width=asked.width, scale=WARM_ROWS / n))
    calls = {**fairerclips(experiment, name, asked.features), **package_methods(experiment, WARM_STEPS)}
    for title, call in calls.items():
        bench.time(title, call)
    bench.seconds.clear()


def measure(bench: Benchmark, name: str) -> None:
    """Time all methods on one task."""
    asked = bench.settings
    make_task, _, published_name = TASKS[name]
    experiment = Experiment.of(make_task(width=asked.width, scale=asked.scale))
    calls = {**fairerclips(experiment, name, asked.features), **package_methods(experiment, asked.max_steps)}
    bench.in_turns({f"{name}: {title}": call for title, call in calls.items()}, warm_up=False)
    own = bench.best(f"{name}: {PAPER}")
    by_title = {method.title: method.key for method in METHODS} | {PAPER: "fairerclip"}
    theirs = {row.method: row.figures["seconds"] for row in published("training-time", published_name)}
    rows = []
    for title in calls:
        seconds = bench.best(f"{name}: {title}")
        said = theirs.get(by_title.get(title, ""))
        ratio = None if said is None else said / theirs["fairerclip"]
        rows.append(
            [title, *(Cell(v, "significant") for v in (seconds, seconds / own, said, ratio))],
        )
        if title == DEFAULTS or (said is not None and title != PAPER):
            bench.figure(
                f"{title} / FairerCLIP as in the paper, {name}",
                seconds / own,
                better="lower" if title == DEFAULTS else "higher",
            )
    columns = ["method", "seconds", "× FairerCLIP", "published, s", "published, × FairerCLIP"]
    bench.table(f"{name}: {len(experiment.task.train)} training rows, p={asked.width}", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=1)
    parser.add_argument("--tasks", default="waterbirds,celeba", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows of the datasets")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--features", type=int, default=1000, help="D, where it is not the paper's")
    parser.add_argument(
        "--max-steps", type=int, default=None, help="stop training by gradient after these batches"
    )
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    names = asked.tasks.split(",")
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        parser.error(f"no task {unknown[0]!r}; there are {', '.join(TASKS)}")
    if asked.max_steps is not None:
        bench.note(f"training by gradient was stopped after {asked.max_steps} batches: it would take longer")
    warm_up(bench, names[0])
    for name in names:
        measure(bench, name)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
