"""FairerCLIP, zero-shot and two probes on real embeddings, tuned alike on the validation split.

For every task with target and sensitive labels in three splits: average and worst-group accuracy and
EOD on the test split. Each method's settings are chosen on the validation split by the same rule, the
smallest group accuracy shrunk by eight rows of the average; the test split is read once. For a task
with sensitive labels and prompts only: MaxSkew@1000 of each pair of opposite prompts. A task with a
training split only is run as far as its labels go. Prints Markdown; ``--json`` for machines.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from fairerclip import FairerCLIP, __version__
from fairerclip.data import Task, load_task
from fairerclip.errors import FairerClipWarning
from fairerclip.labels import balancing_weights
from fairerclip.metrics import GroupReport, cell_accuracies, shrunken_worst_group
from fairerclip.workflow import Experiment

KERNELS = [("rbf", "median"), ("rbf", "3*median"), ("linear", "median")]
GAMMAS = [1e-4, 1e-3]
WEIGHTS = [None, "balanced", "group"]
TAUS = np.round(np.r_[np.linspace(0, 0.9, 10), 0.95], 3)
PROBE_C = np.logspace(-4, 3, 15)
SEED = 0


def probe_score(experiment: Experiment, predicted: np.ndarray) -> float:
    """The rule that every method is tuned by, on the validation split."""
    rows = experiment.task.val
    names, groups = list(experiment.classes), experiment.groups(rows)
    values = sorted(set(groups))
    codes = [np.array([names.index(v) for v in a]) for a in (experiment.target(rows), predicted)]
    hits, counts = cell_accuracies(
        codes[0], codes[1], np.array([values.index(v) for v in groups]), len(names), len(values)
    )
    return float(np.ravel(shrunken_worst_group(hits, counts))[0])


def probe(experiment: Experiment, *, by_group: bool) -> tuple[np.ndarray, str]:
    """Logistic regression on the embeddings, plain or with rows weighted by true y × s; C tuned."""
    train, test = experiment.task.train, experiment.task.test
    y = experiment.target(train)
    weight = np.ones(len(y))
    if by_group:
        cells = np.unique(np.column_stack([y, experiment.groups(train)]), axis=0, return_inverse=True)[1]
        weight = balancing_weights(cells.reshape(-1), weight)
    models = [LogisticRegression(C=C, max_iter=5000).fit(train.X, y, sample_weight=weight) for C in PROBE_C]
    scores = [probe_score(experiment, m.predict(experiment.task.val.X)) for m in models]
    best = int(np.argmax(scores))
    return models[best].predict(test.X), f"C={PROBE_C[best]:.2g}"


def candidates(experiment: Experiment, labels: str) -> Iterator[tuple[float, FairerCLIP]]:
    """The best point of each factorisation's path, with its validation score."""
    rounds = [10] if labels == "target" else [1, 10]
    for (kernel, bandwidth), gamma, weight, max_iter in product(KERNELS, GAMMAS, WEIGHTS, rounds):
        model = FairerCLIP(
            kernel=kernel,
            bandwidth=bandwidth,
            gamma=gamma,
            class_weight=weight,
            max_iter=max_iter,
            random_state=SEED,
        )
        experiment.fit(model, labels)
        path = model.path(TAUS, criterion=["marginal", "conditional"])
        table = experiment.evaluate_path(path, "val")
        index = path.best_index("shrunken_worst_group")
        yield table[index]["shrunken_worst_group"], path.model(index)


def tuned(experiment: Experiment, labels: str) -> tuple[np.ndarray, str]:
    """FairerCLIP with every setting chosen on the validation split."""
    _, model = max(candidates(experiment, labels), key=lambda pair: pair[0])
    kernel = model.kernel if model.kernel == "linear" else f"rbf {model.bandwidth}"
    setting = f"{kernel}, γ={model.gamma:g}, weights {model.class_weight}, {model.criterion}, τ={model.tau:g}"
    if labels == "none":
        setting += f", rounds ≤ {model.max_iter}"
    return model.predict(experiment.task.test.X), setting


def scaling_rows(experiment: Experiment) -> list[dict[str, Any]]:
    """Both scalings with the same factorisations, each on a grid of its own range of τ, tuned alike."""
    rows = []
    for labels, scaling in product(("target", "none"), ("spectral", "paper")):
        taus = TAUS if scaling == "spectral" else np.round(np.r_[0, np.geomspace(0.05, 20, 10)], 3)
        found = []
        for (kernel, bandwidth), weight in product(KERNELS[1:], WEIGHTS[:2]):
            model = FairerCLIP(
                kernel=kernel,
                bandwidth=bandwidth,
                gamma=1e-3,
                class_weight=weight,
                scaling=scaling,
                max_iter=1,
                random_state=SEED,
            )
            path = experiment.fit(model, labels).path(taus, criterion=["marginal", "conditional"])
            table = experiment.evaluate_path(path, "val")
            index = path.best_index("shrunken_worst_group")
            found.append((table[index]["shrunken_worst_group"], path.model(index)))
        _, model = max(found, key=lambda pair: pair[0])
        report = experiment.report(experiment.task.test, model.predict(experiment.task.test.X))
        rows.append(
            {
                "method": f"scaling={scaling}",
                "uses": "y, prompts" if labels == "target" else "prompts",
                "setting": f"{model.kernel}, weights {model.class_weight}, {model.criterion}, τ={model.tau:g}",
                **report.as_dict(),
            }
        )
    return rows


def default(experiment: Experiment, labels: str) -> tuple[np.ndarray, str]:
    """FairerCLIP with no parameter set."""
    model = experiment.fit(FairerCLIP(random_state=SEED), labels)
    return model.predict(experiment.task.test.X), "defaults"


def classified(experiment: Experiment) -> list[dict[str, Any]]:
    """One row per method on one task."""
    methods = [
        ("zero-shot", "prompts", lambda: (experiment.zero_shot(experiment.task.test), "")),
        ("logistic probe", "y", lambda: probe(experiment, by_group=False)),
        ("group-balanced probe", "y and true s", lambda: probe(experiment, by_group=True)),
        ("FairerCLIP", "y, prompts", lambda: tuned(experiment, "target")),
        ("FairerCLIP", "prompts", lambda: tuned(experiment, "none")),
        ("FairerCLIP, untuned", "y, prompts", lambda: default(experiment, "target")),
        ("FairerCLIP, untuned", "prompts", lambda: default(experiment, "none")),
    ]
    rows = []
    for name, uses, run in methods:
        predicted, setting = run()
        report: GroupReport = experiment.report(experiment.task.test, predicted)
        rows.append({"method": name, "uses": uses, "setting": setting, **report.as_dict()})
        print(f"  {experiment.task.name}: {name} ({uses})", file=sys.stderr)
    return rows


def retrieved(task: Task) -> list[dict[str, Any]]:
    """MaxSkew of each pair of prompts, one model per pair and attribute, no labels."""
    rows = []
    for attribute in ("sex", "race"):
        for k in range(0, len(task.class_names), 2):
            experiment = Experiment.of(task, [attribute], task.class_names[k : k + 2])
            model = experiment.fit(FairerCLIP(tau=0.8, tau_z=0.8, random_state=SEED), "none")
            rows += [{"attribute": attribute, **row} for row in experiment.skews(model, "test")]
    return rows


def markdown(results: dict[str, Any]) -> str:
    """The tables of docs/real-embeddings.md."""
    lines: list[str] = []
    for name, result in results["tasks"].items():
        lines += [f"\n### {name}\n"]
        if result["kind"] == "retrieval":
            lines += ["| attribute | prompt | zero-shot | FairerCLIP |", "|---|---|---|---|"]
            lines += [
                f"| {r['attribute']} | {r['prompt']} | {r['before']:.3f} | {r['after']:.3f} |"
                for r in result["rows"]
            ]
            for attribute in ("sex", "race"):
                chosen = [r for r in result["rows"] if r["attribute"] == attribute]
                before, after = (np.mean([r[key] for r in chosen]) for key in ("before", "after"))
                lines += [f"| **{attribute}** | **mean** | **{before:.3f}** | **{after:.3f}** |"]
            continue
        lines += [
            "| method | uses in training | average | worst group [95 %] | which (n) | EOD | chosen on validation |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in result["rows"]:
            worst = row["worst"]
            lines.append(
                f"| {row['method']} | {row['uses']} | {100 * row['average']:.1f} | {100 * worst['accuracy']:.1f} "
                f"[{100 * worst['low']:.1f}, {100 * worst['high']:.1f}] | {worst['name']} ({worst['n']}) | "
                f"{100 * row['eod']:.1f} | {row['setting']} |"
            )
    return "\n".join(lines)


def run(task: Task, scaling: bool) -> dict[str, Any]:
    """What the task's labels allow."""
    whole = all(name in task.splits for name in ("train", "val", "test")) and task.train.y is not None
    if scaling:
        return {"kind": "scaling", "rows": scaling_rows(Experiment.of(task)) if whole else []}
    if whole:
        return {"kind": "classification", "rows": classified(Experiment.of(task))}
    if task.train.y is None:
        return {"kind": "retrieval", "rows": retrieved(task)}
    experiment = Experiment.of(task)  # a training split only: a smoke test on the rows it was fitted on
    model = experiment.fit(FairerCLIP(random_state=SEED), "all")
    rows = [
        {"method": f"{name}, training rows", "uses": uses, "setting": "", **report.as_dict()}
        for (name, report), uses in zip(
            experiment.before_after(model, "train"), ("prompts", "y and true s"), strict=True
        )
    ]
    return {"kind": "training rows only", "rows": rows}


def main() -> None:
    """Run every task file of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with task files (.npz)")
    parser.add_argument("--only", help="comma-separated names of task files without ending")
    parser.add_argument(
        "--scaling", action="store_true", help="compare scaling='spectral' with 'paper' instead"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    files = sorted(arguments.folder.glob("*.npz"))
    if arguments.only:
        files = [f for f in files if f.stem in arguments.only.split(",")]
    if not files:
        parser.exit(2, f"no task files in {arguments.folder}\n")
    warnings.simplefilter("ignore", FairerClipWarning)  # a tuning grid visits points worth a warning
    results = {
        "fairerclip_version": __version__,
        "seed": SEED,
        "tasks": {f.stem: run(load_task(f), arguments.scaling) for f in files},
    }
    print(json.dumps(results, indent=2) if arguments.json else markdown(results))


if __name__ == "__main__":
    main()
