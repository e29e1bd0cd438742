"""The tasks that defaults were chosen on, and the settings that were tried on them.

    python benchmarks/development.py SUITE [--splits 4]

SUITE is a folder with the tasks of the comparison. Only their training and validation rows are used: targets are
combined with other sensitive attributes, rows are split again within cells, and a part is held out for evaluation. So
no default was chosen by a figure of a test split (but the comparison splits these rows again, too). Prints Markdown
tables of points against zero-shot.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fairerclip import FairerCLIP
from fairerclip.baselines import OrthProj
from fairerclip.data import Sensitive, Split, Task, load_task, resplit
from fairerclip.experiment import Experiment
from fairerclip.model.automatic import GUESSED, LABELLED

SHARES = (0.45, 0.2)
"""Shares of each cell in training and in validation; the rest is held out."""
TAUS = (0.0, 0.5, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
ZERO_SHOTS = (0.0, 0.25, 0.5, 0.75, 1.0)


def known_rows(task: Task) -> Split:
    """Return the training and validation rows together."""
    parts = [task.train, task.val]
    y = None if task.train.y is None else np.concatenate([p.y for p in parts])
    s = {name: np.concatenate([p.s[name] for p in parts]) for name in task.sensitive}
    return Split(np.concatenate([p.X for p in parts]), y, s)


def made_task(name: str, X: Any, y: Any, s: Any, text: Any, sensitive: Any, kept: Any = None) -> Task:
    """Make a task with three splits; ``kept`` (c, |S|) are the shares of training cells that are kept."""
    rng = np.random.default_rng(len(X))
    parts: list[list[Any]] = [[], [], []]
    for k in range(len(text)):
        for g in range(len(sensitive)):
            rows = rng.permutation(np.flatnonzero((y == k) & (s == g)))
            train, val = int(SHARES[0] * len(rows)), max(2, int(SHARES[1] * len(rows)))
            thinned = train if kept is None else max(2, int(kept[k][g] * train))
            for part, chosen in zip(
                parts, (rows[:thinned], rows[train : train + val], rows[train + val :]), strict=True
            ):
                part.append(chosen)
    splits = {}
    for title, part in zip(("train", "val", "test"), parts, strict=True):
        rows = np.concatenate(part)
        splits[title] = Split(X[rows], y[rows].astype(np.int64), {"s": s[rows].astype(np.int64)})
    names, values = (tuple(str(i) for i in range(len(t))) for t in (text, sensitive))
    attribute = Sensitive("s", values, values, np.asarray(sensitive, dtype=np.float32))
    return Task(name, splits, np.asarray(text, dtype=np.float32), names, names, {"s": attribute})


def development_tasks(suite: Path) -> list[Task]:
    """Make twelve tasks from CelebA, PACS and FairFace; targets of FairFace are correlated with the attribute."""
    tasks = {n: load_task(suite / f"celeba_{n}.npz") for n in ("blond", "cheekbones", "attractive")}
    rows = {n: known_rows(t) for n, t in tasks.items()}
    X, sex = rows["blond"].X, rows["blond"].sensitive()
    labels = {**{n: r.y for n, r in rows.items()}, "sex": sex}
    text = {**{n: t.text_target for n, t in tasks.items()}, "sex": tasks["blond"].sensitive_attribute().text}
    pairs = [
        "blond sex",
        "cheekbones sex",
        "attractive sex",
        "blond attractive",
        "cheekbones attractive",
        "sex blond",
    ]
    made = []
    for pair in [*pairs, "attractive cheekbones"]:
        a, b = pair.split()
        made.append(made_task(f"{a} × {b}", X, labels[a], labels[b], text[a], text[b]))
    pacs = load_task(suite / "pacs.npz")
    known, style = known_rows(pacs), pacs.sensitive_attribute()
    made.append(
        made_task("object × style", known.X, known.y, known.sensitive(), pacs.text_target, style.text)
    )
    made.append(
        made_task("style × object", known.X, known.sensitive(), known.y, style.text, pacs.text_target)
    )
    face = load_task(suite / "fairface.npz")
    known = known_rows(face)
    sample = np.random.default_rng(5).choice(len(known), 8000, replace=False)
    age, race, men = (known.s[name][sample] for name in ("age", "race", "sex"))
    F = known.X[sample]
    T = {name: face.sensitive_attribute(name).text for name in ("age", "race", "sex")}
    stage = [np.mean(T["age"][i:j], axis=0) for i, j in ((0, 2), (2, 5), (5, 9))]
    grown = age >= 2
    made.append(
        made_task(
            "old × sex",
            F[grown],
            (age >= 5)[grown].astype(int),
            men[grown],
            stage[1:],
            T["sex"],
            [[0.5, 0.25], [0.05, 0.4]],
        )
    )
    four = np.isin(race, [0, 1, 2, 4])
    place = np.array([0, 1, 2, -1, 3, -1, -1])[race]
    tied = [[0.6, 0.05, 0.05, 0.3], [0.05, 0.5, 0.3, 0.05], [0.1, 0.1, 0.6, 0.1]]
    R = T["race"][[0, 1, 2, 4]]
    made.append(made_task("age × race", F[four], np.digitize(age, [2, 5])[four], place[four], stage, R, tied))
    tied = [[0.6, 0.08, 0.3, 0.2], [0.08, 0.6, 0.3, 0.2]]
    made.append(made_task("sex × race", F[four], men[four], place[four], T["sex"], R, tied))
    return made


def worst_gain(experiment: Experiment, predicted: Any) -> float:
    """Return the worst group on the held-out rows minus that of zero-shot, in points."""
    test = experiment.task.test
    before = experiment.report(test, experiment.zero_shot(test)).worst.accuracy
    return 100 * (experiment.report(test, predicted).worst.accuracy - before)


def refinement(tasks: list[Task], splits: int) -> None:
    """Compare one solve with full refinement, without labels, for shares of zero-shot scores."""
    print("\n### Without labels: one solve, and refined to the end (worst group against zero-shot)\n")
    shares = (0.0, 0.5, 0.75, 1.0)
    print("| task | " + " | ".join(f"share {s:g}: one solve | refined" for s in shares) + " |")
    print("|---" * (1 + 2 * len(shares)) + "|")
    for task in tasks:
        cells = []
        for share in shares:
            for refine in (False, True):
                gains = []
                for split in range(splits):
                    experiment = Experiment.of(resplit(task, split))
                    model = FairerCLIP(zero_shot=share, refine=refine, random_state=split)
                    experiment.fit(model, "none")
                    gains.append(worst_gain(experiment, model.predict(experiment.task.test.X)))
                cells.append(f"{np.mean(gains):+.1f}")
        print(f"| {task.name} | " + " | ".join(cells) + " |", flush=True)


def orthogonal(tasks: list[Task], splits: int) -> None:
    """Measure class prompts that are orthogonal to the sensitive prompts, without a fit."""
    print("\n### Orthogonal prompts alone (worst group against zero-shot)\n\n| task | |\n|---|---|")
    for task in tasks:
        gains = []
        for split in range(splits):
            experiment = Experiment.of(resplit(task, split))
            arguments = experiment.arguments("none")
            model = OrthProj().fit(arguments.pop("X"), arguments.pop("y"), **arguments)
            gains.append(worst_gain(experiment, model.predict(experiment.task.test.X)))
        print(f"| {task.name} | {np.mean(gains):+.1f} |")


def features(tasks: list[Task], splits: int) -> None:
    """Compare 1000 with 3000 random features, with the other defaults."""
    print(
        "\n### Random features (worst group against zero-shot, and seconds of a fit)\n\n"
        "| labels | 1000 | 3000 |\n|---|---|---|"
    )
    for labels in ("target", "none"):
        cells = []
        for size in (1000, 3000):
            trials = []
            for task in tasks:
                for split in range(splits):
                    experiment = Experiment.of(resplit(task, split))
                    values = LABELLED if labels == "target" else GUESSED
                    model = FairerCLIP(**values, n_features=size, random_state=split)
                    start = time.perf_counter()
                    experiment.fit(model, labels)
                    seconds = time.perf_counter() - start
                    trials.append((worst_gain(experiment, model.predict(experiment.task.test.X)), seconds))
            gain, seconds = np.mean(trials, axis=0)
            cells.append(f"{gain:+.1f}, {seconds:.2f} s")
        print(f"| {labels} | " + " | ".join(cells) + " |", flush=True)


def defaults(tasks: list[Task], splits: int) -> None:
    """Print the best fixed settings, with their mean and smallest gain over the tasks."""
    for labels in ("target", "none"):
        gains: dict[tuple[Any, ...], list[list[float]]] = {}
        for task in tasks:
            for split in range(splits):
                experiment = Experiment.of(resplit(task, split))
                for weight in ("balanced", "group"):
                    for gamma in (3e-4, 1e-3, 4e-3):
                        model = FairerCLIP(
                            **{**LABELLED, "class_weight": weight, "gamma": gamma}, random_state=split
                        )
                        path = experiment.fit(model, labels).path(
                            TAUS, zero_shots=ZERO_SHOTS, criterion=["marginal", "conditional"]
                        )
                        codes = path.predict_codes(experiment.task.test.X)
                        for point, predicted in zip(path.points, codes, strict=True):
                            if point.encoders is None:
                                continue
                            at = point.setting
                            key = (weight, gamma, at.tau, at.criterion, at.zero_shot)
                            gain = worst_gain(experiment, np.array(experiment.classes)[predicted])
                            gains.setdefault(key, [[] for _ in tasks])[tasks.index(task)].append(gain)
        table = {k: [np.mean(v) for v in rows] for k, rows in gains.items() if all(rows)}
        print(f"\n### Fixed settings, labels: {labels} (worst group against zero-shot)\n")
        print("| weights | γ | τ | criterion | zero-shot share | mean over tasks | least |")
        print("|---|---|---|---|---|---|---|")
        for key in sorted(table, key=lambda k: -(np.mean(table[k]) + np.minimum(table[k], 0).sum() / 6))[:8]:
            weight, gamma, tau, criterion, share = key
            print(
                f"| {weight} | {gamma:g} | {tau:g} | {criterion} | {share:g} | {np.mean(table[key]):+.1f} | "
                f"{np.min(table[key]):+.1f} |"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--splits", type=int, default=4)
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tasks = development_tasks(options.suite)
        refinement(tasks, options.splits)
        orthogonal(tasks, options.splits)
        features(tasks, options.splits)
        defaults(tasks, options.splits)
