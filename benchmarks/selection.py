"""Rules of choosing, each on the candidates of FairerCLIP's search and the same validation rows, read on test rows.

    python benchmarks/selection.py TASK.npz [TASK.npz ...] [--splits 20]

The table of docs/choosing.md#selection: worst group on resampled splits, means over splits, with and without labels in
training. `tune` itself, its defaults and the two ways to choose without group labels stand beside the simpler rules.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from fairerclip import FairerCLIP, FairerCLIPSearch
from fairerclip.data import load_task, resplit
from fairerclip.experiment import Experiment
from fairerclip.metrics import shrunken_worst_group
from fairerclip.model.path import PRIOR
from fairerclip.tuning.candidates import gather
from fairerclip.tuning.choose import Choice, strategies
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import Objective


def judge_of(experiment: Experiment, name: str, shape: tuple[int, int]) -> Judge:
    """The judge of a split, with codes in the order of the task's names."""
    split = experiment.task.split(name)
    return Judge(split.y, split.s[experiment.sensitive[0]], *shape)


def raw_worst(judge: Judge, scores: Any) -> float:
    """The raw share of the worst cell, ties broken by the average."""
    hits = judge.hits(scores)
    seen = judge.counts > 0
    return float((hits[seen] / judge.counts[seen]).min() + 1e-6 * hits.sum() / judge.counts.sum())


def shrunken(judge: Judge, scores: Any) -> float:
    """The shrunken worst cell."""
    hits = judge.hits(scores)
    average = hits.sum() / judge.counts.sum()
    return float(shrunken_worst_group(hits, judge.counts, prior=PRIOR) + 1e-6 * average)


def rules(experiment: Experiment, labels: str, seed: int) -> dict[str, float]:
    """Worst group on test rows of what each rule takes from the candidates of the search."""
    names = experiment.task.sensitive_attribute(experiment.sensitive[0]).names
    shape = (len(experiment.classes), len(names))
    val, test = (experiment.task.split(name) for name in ("val", "test"))
    arguments = experiment.arguments(labels)
    X, target = arguments.pop("X"), arguments.pop("y")
    pool = gather(
        FairerCLIP(random_state=seed),
        lambda m: m.fit(X, target, **arguments),
        np.concatenate([val.X, test.X]),  # scored together; no rule sees the test rows' scores
        search=None,
        has_text=True,
        has_sensitive_text=True,
        max_seconds=None,
        progress=None,
    )
    scores = np.array([c.scores for c in pool.candidates], dtype=np.float64)
    held, unseen = scores[:, : len(val)], scores[:, len(val) :]
    judge, none = judge_of(experiment, "val", shape), np.zeros(len(pool.classes))
    plain = strategies(pool, held, judge, Objective("worst_group"))
    choices = {
        "raw maximum": Choice(int(np.argmax([raw_worst(judge, v) for v in held])), none),
        "shrunken maximum": Choice(int(np.argmax([shrunken(judge, v) for v in held])), none),
        "expected maximum": plain["search"],
        "expected maximum, offsets": plain["search, offsets"],
    }
    read = judge_of(experiment, "test", shape)
    found = {rule: raw_worst(read, unseen[c.candidate] + c.offsets) for rule, c in choices.items()}
    return found | {"best on test, no offsets": max(raw_worst(read, values) for values in unseen)}


def models(experiment: Experiment, labels: str, seed: int) -> dict[str, FairerCLIP]:
    """What `tune` gives with groups, with groups read from prompts and by the worst class; and the default."""
    val = experiment.task.val
    text = experiment.task.sensitive_attribute(experiment.sensitive[0]).text
    read = (val.X @ (text / np.linalg.norm(text, axis=1, keepdims=True)).T).argmax(axis=1)
    arguments = experiment.arguments(labels)
    X, target = arguments.pop("X"), arguments.pop("y")

    def new() -> FairerCLIP:
        return FairerCLIP(random_state=seed)

    validation = (val.X, experiment.target(val), read)
    return {
        "tuned": experiment.tune(new(), labels),
        "the default, nothing chosen": experiment.fit(new(), labels),
        "tuned, groups read from prompts": FairerCLIPSearch(new()).fit(
            X, target, validation=validation, **arguments
        ),
        "tuned, no groups, worst class": experiment.tune(new(), labels, "worst_class"),
    }


def main(files: list[str], splits: int) -> None:
    """Print the table of every task."""
    for file in files:
        task = load_task(file)
        print(
            f"\n## {task.name}, {splits} splits: worst group\n\n| rule | Y in training | no labels |\n|---|---|---|"
        )
        found: dict[str, dict[str, list[float]]] = {}
        for split in range(splits):
            experiment = Experiment.of(resplit(task, split))
            test = experiment.task.test
            for labels in ("target", "none"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    worst = rules(experiment, labels, split)
                    for rule, model in models(experiment, labels, split).items():
                        report = experiment.report(test, model.predict(test.X))
                        worst[rule] = report.worst.accuracy
                for rule, value in worst.items():
                    found.setdefault(rule, {}).setdefault(labels, []).append(value)
        for rule, by_labels in found.items():
            shown = " | ".join(f"{100 * np.mean(by_labels[labels]):.1f}" for labels in ("target", "none"))
            print(f"| {rule} | {shown} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--splits", type=int, default=20)
    given = parser.parse_args()
    main(given.tasks, given.splits)
