"""Training time of other methods and other libraries, over FairerCLIP's, on the same rows.

FairerCLIP has fixed parameters and D=1000 features. Peers are scikit-learn's logistic regression on the embeddings, the
baselines of the package with their published or default settings, `EmbeddingMitigator`, and concept-erasure's LEACE
where it is installed.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from harness import Benchmark, options
from simulated_rows import FIXED
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from fairerclip import EmbeddingMitigator, FairerCLIP
from fairerclip.data.simulate import CELEBA_ROWS, celeba
from fairerclip.data.task import Task
from fairerclip.experiment import Experiment
from fairerclip.report.result_table import Cell
from fairerclip.study.choose_model import fit_arguments
from fairerclip.study.method import Method, make
from fairerclip.study.methods import METHODS

ALL_ROWS = sum(CELEBA_ROWS["train"])
OWN, DEFAULTS = "FairerCLIP, fixed parameters", "FairerCLIP, our defaults"
MITIGATOR, LOGISTIC = "EmbeddingMitigator", "logistic regression (scikit-learn)"
OUR_LEACE, THEIR_LEACE = "LEACE, zero-shot head", "LEACE (concept-erasure)"
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


def own_fit(experiment: Experiment, model: FairerCLIP) -> Callable[[], None]:
    """Return a call that fits a copy and drops it: features that a model keeps would take memory from the next fit."""

    def fit() -> None:
        experiment.fit(clone(model), "target")

    return fit


def peers(task: Task, D: int, max_steps: int | None) -> dict[str, Callable[[], Any]]:
    """Return a call that fits each method, by title."""
    experiment = Experiment.of(task)
    X, y, s = task.train.X, task.train.y, task.train.sensitive()
    own, automatic = (FairerCLIP(n_features=D, random_state=0, **fixed) for fixed in (FIXED, {}))
    prompts = dict(zip((0, 1), task.sensitive_attribute().text[:, None], strict=True))
    calls = {
        OWN: own_fit(experiment, own),
        DEFAULTS: own_fit(experiment, automatic),
        MITIGATOR: lambda: EmbeddingMitigator().fit(X, sensitive_features=s, sensitive_text=prompts),
        LOGISTIC: lambda: LogisticRegression(max_iter=1000).fit(X, y),
        **package_methods(experiment, max_steps),
    }
    if importlib.util.find_spec("concept_erasure") is not None:
        calls[THEIR_LEACE] = lambda: erase_with_concept_erasure(X, s)
    return calls


def erase_with_concept_erasure(X: np.ndarray, s: np.ndarray) -> Any:
    """Compute the eraser of concept-erasure, in float32 as it takes rows."""
    import torch
    from concept_erasure import LeaceFitter

    z = torch.nn.functional.one_hot(torch.from_numpy(s.astype(np.int64)))
    return LeaceFitter.fit(torch.from_numpy(X), z).eraser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=2)
    parser.add_argument("--rows", type=int, default=4795)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument(
        "--max-steps", type=int, default=None, help="stop training by gradient after these batches"
    )
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    few = celeba(width=asked.width, scale=WARM_ROWS / ALL_ROWS)
    for name, call in peers(
        few, asked.features, WARM_STEPS
    ).items():  # so that no time includes loading a library
        bench.time(name, call)
    bench.seconds.clear()
    task = celeba(width=asked.width, scale=asked.rows / ALL_ROWS)
    calls = peers(task, asked.features, asked.max_steps)
    bench.in_turns(calls, warm_up=False)
    own = bench.best(OWN)
    order = sorted(calls, key=bench.best)
    rows = [
        [title, *(Cell(v, "significant") for v in (bench.best(title), bench.best(title) / own))]
        for title in order
    ]
    bench.note(f"n={len(task.train)}, p={asked.width}, D={asked.features}")
    if THEIR_LEACE not in calls:
        bench.note("concept-erasure is not installed: its LEACE is left out")
    if asked.max_steps is not None:
        bench.note(f"training by gradient was stopped after {asked.max_steps} batches: it would take longer")
    place = order.index(OWN)
    bench.note(f"faster than FairerCLIP: {'; '.join(order[:place]) or 'none'}")
    bench.note(f"slower than FairerCLIP: {'; '.join(order[place + 1 :]) or 'none'}")
    bench.table("fastest first", ["method", "seconds", "× FairerCLIP"], rows)
    for title in (LOGISTIC, MITIGATOR):
        bench.ratio(f"{title} / FairerCLIP", title, OWN, better="higher" if title == LOGISTIC else "lower")
    if THEIR_LEACE in calls:
        bench.ratio("LEACE of concept-erasure / ours", THEIR_LEACE, OUR_LEACE, better="higher")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
