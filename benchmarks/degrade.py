"""Accuracy of fits under worse conditions: fewer labels, fewer rows, other data, another task, drifting embeddings.

    python benchmarks/degrade.py SUITE [--splits 5]

SUITE is a folder with celeba_blond.npz, celeba_cheekbones.npz, celeba_attractive.npz, pacs.npz and fairface.npz.
Prints Markdown tables of figures on test rows, means over resampled splits.
"""

from __future__ import annotations

import argparse
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.linear_model import LogisticRegression

from fairerclip import FairerCLIP, FairerCLIPSearch
from fairerclip.data import load_task, resplit
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics import max_skew
from fairerclip.study.choose_model import choose_model
from fairerclip.study.methods import METHODS

TASKS = ("celeba_blond", "celeba_cheekbones", "celeba_attractive", "pacs")
SHARES = (0.0, 0.01, 0.05, 0.2, 1.0)
BY_KEY = {method.key: method for method in METHODS}


def figures(experiment: Experiment, predicted: Any) -> tuple[float, float]:
    """Return average and worst group on the test split, in per cent."""
    report = experiment.report(experiment.task.test, predicted)
    return 100 * report.average, 100 * report.worst.accuracy


def shown(values: list[tuple[float, float]]) -> str:
    """Format means over splits as "average / worst group"."""
    average, worst = np.mean(values, axis=0)
    return f"{average:.1f} / {worst:.1f}"


def with_share(experiment: Experiment, share: float, seed: int) -> dict[str, Any]:
    """Return arguments of a fit with the labels of a share of the training rows."""
    arguments = experiment.arguments("target")
    hidden = np.random.default_rng([seed, round(1000 * share)]).random(len(arguments["y"])) >= share
    arguments["y"] = np.where(hidden, UNKNOWN, arguments["y"])
    return arguments


def fitted(model: Any, arguments: dict[str, Any]) -> Any:
    """Fit a model with arguments from `Experiment.arguments`."""
    rest = {name: value for name, value in arguments.items() if name not in ("X", "y")}
    return model.fit(arguments["X"], arguments["y"], **rest)


def tuned_probe(experiment: Experiment, arguments: dict[str, Any]) -> Any:
    """Choose a group-balanced probe on Ŝ on the validation rows as `compare` does, with offsets."""
    known = arguments["y"] != UNKNOWN
    train = experiment.task.train
    codes = np.where(known, train.y, -1)
    splits = {**experiment.task.splits, "train": replace(train, y=codes)}
    return choose_model(
        BY_KEY["probe-group"], replace(experiment, task=replace(experiment.task, splits=splits)), 0
    )


def partial_labels(suite: Path, splits: int) -> None:
    """Print figures of the defaults, the tuned model, and a group-balanced probe on the labelled rows."""
    print(
        "\n### Partial labels\n\n| task | method | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"
    )
    print("|---" * (2 + len(SHARES)) + "|")
    for name in TASKS:
        rows: dict[str, dict[float, list[tuple[float, float]]]] = {}
        for split in range(splits):
            experiment = Experiment.of(resplit(load_task(suite / f"{name}.npz"), split))
            test, val = experiment.task.test, experiment.task.val
            for share in SHARES:
                arguments = with_share(experiment, share, split)
                rest = {k: v for k, v in arguments.items() if k not in ("X", "y")}
                y, s = experiment.labels(val)
                tuned = FairerCLIPSearch(FairerCLIP(random_state=split)).fit(
                    arguments["X"], arguments["y"], validation=(val.X, y, s), **rest
                )
                models = {"defaults": fitted(FairerCLIP(random_state=split), arguments), "tuned": tuned}
                if share and len(set(arguments["y"]) - {UNKNOWN}) == len(experiment.classes):
                    models["group-balanced probe, Ŝ, known rows, tuned"] = tuned_probe(experiment, arguments)
                for title, model in models.items():
                    rows.setdefault(title, {}).setdefault(share, []).append(
                        figures(experiment, model.predict(test.X))
                    )
            zero_shot = figures(experiment, experiment.zero_shot(test))
            rows.setdefault("zero-shot", {}).setdefault(0.0, []).append(zero_shot)
        for title, by_share in rows.items():
            cells = [shown(by_share[share]) if share in by_share else "" for share in SHARES]
            print(f"| {name} | {title} | " + " | ".join(cells) + " |", flush=True)


def small_data(suite: Path, splits: int) -> None:
    """Print figures with 298 random training rows, the size of CFD's training set."""
    print(
        "\n### 298 training rows\n\n| task | zero-shot | defaults | tuned | group-balanced probe, Ŝ, tuned |\n"
        + "|---" * 5
        + "|"
    )
    name = "celeba_attractive"
    by_method: dict[str, list[tuple[float, float]]] = {}
    for split in range(splits):
        task = resplit(load_task(suite / f"{name}.npz"), split)
        rows = np.random.default_rng(split).permutation(len(task.train))[:298]
        train = replace(
            task.train,
            X=task.train.X[rows],
            y=task.train.y[rows],
            s={k: v[rows] for k, v in task.train.s.items()},
            ids=None,
        )
        experiment = Experiment.of(replace(task, splits={**task.splits, "train": train}))
        test = experiment.task.test
        by_method.setdefault("zero-shot", []).append(figures(experiment, experiment.zero_shot(test)))
        models = {
            "defaults": experiment.fit(FairerCLIP(random_state=split), "target"),
            "tuned": experiment.tune(FairerCLIP(random_state=split), "target"),
            "probe": tuned_probe(experiment, experiment.arguments("target")),
        }
        for title, model in models.items():
            by_method.setdefault(title, []).append(figures(experiment, model.predict(test.X)))
    print(f"| {name} | " + " | ".join(shown(values) for values in by_method.values()) + " |", flush=True)


def transfer(suite: Path) -> None:
    """Print the skew of rankings of FairFace by models that mitigate sex on CelebA."""
    celeba, gallery = load_task(suite / "celeba_attractive.npz"), load_task(suite / "fairface.npz")
    T = gallery.text_target / np.linalg.norm(gallery.text_target, axis=1, keepdims=True)
    text = gallery.sensitive_attribute("sex").text
    groups = gallery.test.s["sex"]
    fits = {
        "fitted on CelebA": (celeba.train.X, (celeba.val.X, None, celeba.val.sensitive())),
        "fitted on FairFace": (gallery.train.X, (gallery.val.X, None, gallery.val.s["sex"])),
    }
    print(
        "\n### Transfer: rankings of FairFace's test rows, MaxSkew@1000 by sex, ten prompts\n\n| | MaxSkew |\n|---|---|"
    )
    print(f"| zero-shot | {np.mean(max_skew(gallery.test.X @ T.T, groups, 1000)):.3f} |")
    for title, (X, validation) in fits.items():
        model = FairerCLIPSearch(FairerCLIP(random_state=0), objective="max_skew").fit(
            X, validation=validation, text=T, sensitive_text=text
        )
        print(
            f"| {title} | {np.mean(max_skew(model.scores(gallery.test.X), groups, 1000)):.3f} |", flush=True
        )
    old = gallery.test.s["age"] >= 5
    experiment = Experiment.of(celeba)
    model = experiment.tune(FairerCLIP(random_state=0), "target")
    attractive = celeba.text_target / np.linalg.norm(celeba.text_target, axis=1, keepdims=True)
    for title, scores in (
        ("zero-shot", gallery.test.X @ attractive.T),
        ("model", model.scores(gallery.test.X)),
    ):
        attractive_rows = scores.argmax(axis=1) == 1
        rates = [100 * attractive_rows[groups == g].mean() for g in (0, 1)]
        ages = [100 * attractive_rows[old == o].mean() for o in (False, True)]
        print(
            f"\nCalled attractive on FairFace by CelebA's {title}: women {rates[0]:.1f} %, men {rates[1]:.1f} %; "
            f"under fifty {ages[0]:.1f} %, older {ages[1]:.1f} %."
        )


def unrelated(suite: Path) -> None:
    """Print how well a probe predicts other labels from the embeddings before and after mitigation."""
    blond, cheekbones = load_task(suite / "celeba_blond.npz"), load_task(suite / "celeba_cheekbones.npz")
    model = Experiment.of(blond).tune(FairerCLIP(random_state=0), "target")
    print("\n### An unrelated task: balanced accuracy of a probe, fitted and read on CelebA\n")
    print("| read from | blond hair | high cheekbones | sex |\n|---|---|---|---|")
    labels = {
        "blond": (blond.train.y, blond.test.y),
        "cheekbones": (cheekbones.train.y, cheekbones.test.y),
        "sex": (blond.train.sensitive(), blond.test.sensitive()),
    }
    for title, change in (("embeddings", lambda X: X), ("mitigated", model.transform)):
        cells = []
        for y, truth in labels.values():
            probe = LogisticRegression(max_iter=1000, class_weight="balanced").fit(change(blond.train.X), y)
            predicted = probe.predict(change(blond.test.X))
            cells.append(100 * np.mean([np.mean(predicted[truth == k] == k) for k in (0, 1)]))
        print(f"| {title} | " + " | ".join(f"{value:.1f}" for value in cells) + " |", flush=True)


def drift(suite: Path) -> None:
    """Print figures on test rows that are shifted or noisy, with the model unchanged."""
    print("\n### Drift of the embeddings: average / worst group\n")
    print("| task | | as they are | float16 | noise 0.2 | noise 0.5 | common shift 0.2 | common shift 0.5 |")
    print("|---|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for name in ("celeba_attractive", "pacs"):
        experiment = Experiment.of(load_task(suite / f"{name}.npz"))
        model = experiment.tune(FairerCLIP(random_state=0), "target")
        X = experiment.task.test.X
        unit = 1 / np.sqrt(X.shape[1])
        noise, shift = rng.normal(size=X.shape) * unit, rng.normal(size=X.shape[1]) * unit
        moved = [X, X.astype(np.float16), X + 0.2 * noise, X + 0.5 * noise, X + 0.2 * shift, X + 0.5 * shift]
        text = experiment.text / np.linalg.norm(experiment.text, axis=1, keepdims=True)
        names = np.array(experiment.classes)
        for title, predict in (
            ("zero-shot", lambda A, text=text, names=names: names[(A @ text.T).argmax(axis=1)]),
            ("FairerCLIP", lambda A, model=model: model.predict(A)),
        ):
            cells = [shown([figures(experiment, predict(A.astype(np.float32)))]) for A in moved]
            print(f"| {name} | {title} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drift(options.suite)
        unrelated(options.suite)
        transfer(options.suite)
        small_data(options.suite, options.splits)
        partial_labels(options.suite, options.splits)
