"""Comparison of selection rules on the candidates of FairerCLIP's search and the same validation rows.

    python benchmarks/selection.py TASK.npz [TASK.npz ...] [--splits 20]

Prints the table of docs/choosing.md#selection: worst group on test rows, means over resampled splits, with and without
labels in training. It has simple rules, `FairerCLIPSearch`, the defaults, and two ways to choose without group labels.
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
    """Return the judge of a split, with codes in the order of the task's names."""
    split = experiment.task.split(name)
    return Judge(split.y, split.s[experiment.sensitive[0]], *shape)


def raw_worst(judge: Judge, scores: Any) -> float:
    """Return the accuracy of the worst cell, with ties broken by the average."""
    hits = judge.hits(scores)
    seen = judge.counts > 0
    return float((hits[seen] / judge.counts[seen]).min() + 1e-6 * hits.sum() / judge.counts.sum())


def shrunken(judge: Judge, scores: Any) -> float:
    """Return the shrunken accuracy of the worst cell, with ties broken by the average."""
    hits = judge.hits(scores)
    average = hits.sum() / judge.counts.sum()
    return float(shrunken_worst_group(hits, judge.counts, prior=PRIOR) + 1e-6 * average)


def rules(experiment: Experiment, labels: str, seed: int) -> dict[str, float]:
    """Return the worst group on test rows of the candidate that each rule chooses."""
    names = experiment.task.sensitive_attribute(experiment.sensitive[0]).names
    shape = (len(experiment.classes), len(names))
    val, test = (experiment.task.split(name) for name in ("val", "test"))
    arguments = experiment.arguments(labels)
    X, target = arguments.pop("X"), arguments.pop("y")
    pool = gather(
        FairerCLIP(random_state=seed),
        lambda m: m.fit(X, target, **arguments),
        np.concatenate([val.X, test.X]),  # scored together; no rule uses the scores of test rows
        search=None,
        has_text=True,
        has_sensitive_text=True,
        max_seconds=None,
        progress=None,
    )
    scores = np.array([c.scores for c in pool.candidates], dtype=np.float64)
    val_scores, test_scores = scores[:, : len(val)], scores[:, len(val) :]
    judge, none = judge_of(experiment, "val", shape), np.zeros(len(pool.classes))
    plain = strategies(pool, val_scores, judge, Objective("worst_group"))
    choices = {
        "raw maximum": Choice(int(np.argmax([raw_worst(judge, v) for v in val_scores])), none),
        "shrunken maximum": Choice(int(np.argmax([shrunken(judge, v) for v in val_scores])), none),
        "expected maximum": plain["search"],
        "expected maximum, offsets": plain["search, offsets"],
    }
    test_judge = judge_of(experiment, "test", shape)
    worst = {rule: raw_worst(test_judge, test_scores[c.candidate] + c.offsets) for rule, c in choices.items()}
    return worst | {"best on test, no offsets": max(raw_worst(test_judge, values) for values in test_scores)}


def models(experiment: Experiment, labels: str, seed: int) -> dict[str, FairerCLIP]:
    """Fit the default, and tune with groups, with groups predicted from prompts, and by the worst class."""
    val = experiment.task.val
    text = experiment.task.sensitive_attribute(experiment.sensitive[0]).text
    predicted = (val.X @ (text / np.linalg.norm(text, axis=1, keepdims=True)).T).argmax(axis=1)
    arguments = experiment.arguments(labels)
    X, target = arguments.pop("X"), arguments.pop("y")

    def new() -> FairerCLIP:
        return FairerCLIP(random_state=seed)

    validation = (val.X, experiment.target(val), predicted)
    return {
        "tuned": experiment.tune(new(), labels),
        "the default, nothing chosen": experiment.fit(new(), labels),
        "tuned, groups read from prompts": FairerCLIPSearch(new())
        .fit(X, target, validation=validation, **arguments)
        .best_estimator_,
        "tuned, no groups, worst class": experiment.tune(new(), labels, "worst_class"),
    }


def main(files: list[str], splits: int) -> None:
    """Print the table of every task."""
    for file in files:
        task = load_task(file)
        print(
            f"\n## {task.name}, {splits} splits: worst group\n\n| rule | Y in training | no labels |\n|---|---|---|"
        )
        by_rule: dict[str, dict[str, list[float]]] = {}
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
                    by_rule.setdefault(rule, {}).setdefault(labels, []).append(value)
        for rule, by_labels in by_rule.items():
            cells = " | ".join(f"{100 * np.mean(by_labels[labels]):.1f}" for labels in ("target", "none"))
            print(f"| {rule} | {cells} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--splits", type=int, default=20)
    options = parser.parse_args()
    main(options.tasks, options.splits)
