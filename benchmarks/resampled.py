"""All methods on many resampled splits of a task; rows change between splits within a cell.

    python benchmarks/resampled.py run TASK.npz [TASK.npz ...] -o OUT [--splits 20] [--methods KEY,KEY]
    python benchmarks/resampled.py rank TASK.npz -o OUT [--splits 20]          (MaxSkew, e.g. FairFace)
    python benchmarks/resampled_table.py OUT TASK.npz [TASK.npz ...]

``run`` keeps one file per task, split and method, so that it can be stopped and resumed. Existing files are not
checked: use a new OUT for other code or another limit. A method learns from the training rows of a split with the
labels it may use, chooses among its candidates on the validation rows as `fairerclip compare` does, and is tested
once. Methods trained by gradient run on the first splits only, with at most ``--max-steps`` batches per training.
Each run uses one core, so that results do not depend on other runs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.stats import spearmanr

from fairerclip import FairerCLIP, FairerCLIPSearch
from fairerclip._util.files import atomic_file
from fairerclip.baselines import LEACE, OrthCali, OrthProj
from fairerclip.data import Task, load_task, resplit
from fairerclip.experiment import Experiment
from fairerclip.metrics import max_skew
from fairerclip.study.choose_model import choose_model
from fairerclip.study.methods import METHODS
from fairerclip.study.workers import Call, Failure, Returned, run_calls
from fairerclip.tuning.readers import read_sensitive

INTRINSIC = ("celeba_cheekbones", "celeba_attractive")
"""Tasks whose target depends on the sensitive attribute intrinsically; for these, EOD is an objective, too."""
KINDS = {
    "search": "FairerCLIP, its whole search",
    "default": "FairerCLIP, untuned default",
    "published": "FairerCLIP as published, untuned",
    "eod": "FairerCLIP, whole search by EOD",
}
"""Rows of FairerCLIP with another number of candidates than every method; their key is ``KIND-LABELS``."""
OWN = [f"{kind}-{labels}" for kind in KINDS for labels in ("none", "target")]
PRESETS = {"pacs": "waterbirds"}
"""Preset of the dataset that is most similar to a task; other tasks use that of CelebA."""
BY_KEY = {method.key: method for method in METHODS}


def cells(experiment: Experiment, predicted: Any) -> list[list[int]]:
    """Count correct predictions on the test split by class and group, in the order of the task's names."""
    test, groups = experiment.task.test, experiment.task.sensitive_attribute(experiment.sensitive[0])
    hits = np.zeros((len(experiment.classes), len(groups.names)), dtype=int)
    right = np.asarray(predicted) == experiment.target(test)
    np.add.at(hits, (test.y, test.s[groups.name]), right.astype(int))
    return hits.tolist()


def run_own(key: str, experiment: Experiment, seed: int) -> tuple[FairerCLIP, dict[str, Any]]:
    """Fit FairerCLIP with its defaults, as published, or by its whole search; return the search's choice, too."""
    kind, labels = key.split("-")
    model = FairerCLIP(random_state=seed)
    if kind == "published":
        dataset = PRESETS.get(experiment.task.name, "celeba")
        return experiment.fit(FairerCLIP.preset(dataset).set_params(random_state=seed), labels), {}
    if kind == "default":
        return experiment.fit(model, labels), {}
    model = experiment.tune(model, labels, "eod" if kind == "eod" else "worst_group")
    tuning = model.diagnostics_["tuning"]
    chosen = {
        "chosen": tuning["chosen"]["parameters"],
        "strategy": tuning["strategy"],
        "candidates": tuning["candidates"],
    }
    return model, chosen


def run_split(file: str, split: int, key: str, max_steps: int, original: bool = False) -> dict[str, Any]:
    """Run one method on one split; return its correct test rows by cell, and the settings it chose."""
    task = load_task(file)
    experiment = Experiment.of(task if original else resplit(task, split))
    started = time.perf_counter()
    about: dict[str, Any]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if key in BY_KEY:
            chosen = choose_model(BY_KEY[key], experiment, split, max_steps=max_steps)
            predicted = chosen.predict(experiment.task.test.X)
            about = {"chosen": dict(chosen.parameters), "offsets": chosen.offsets.tolist()}
            about |= {"strategy": chosen.strategy, "candidates": chosen.candidates}
            if chosen.as_published is not None:
                published = chosen.as_published.model.predict(experiment.task.test.X)
                about["as_published"] = cells(experiment, published)
        else:
            model, about = run_own(key, experiment, split)
            predicted = model.predict(experiment.task.test.X)
    return {
        "candidates": 1,
        **about,
        "cells": cells(experiment, predicted),
        "seconds": time.perf_counter() - started,
    }


def keep_all(calls: Sequence[Call], files: Sequence[Path], jobs: int | None) -> None:
    """Run calls in parallel and write each answer to its file."""
    failed = []

    def keep(number: int, answer: Returned[dict[str, Any]] | Failure) -> None:
        file = files[number]
        name = f"{file.parent.name}/{file.stem}"
        if isinstance(answer, Failure):
            failed.append(f"{name}: {answer.error}")
            print(failed[-1], flush=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file, overwrite=True) as handle:
            handle.write(json.dumps(answer.value).encode())
        print(name, f"({len(calls)} in all)", flush=True)

    run_calls(list(calls), keep, processes=jobs)
    if failed:
        raise SystemExit(f"{len(failed)} of {len(calls)} runs failed; the first: {failed[0]}")


def _add_ranking(
    out: dict[str, Any], attribute: str, groups: Any, before: Any, name: str, scores: Any
) -> None:
    correlations = [
        float(spearmanr(scores[groups == g, k], before[groups == g, k]).statistic)
        for k in range(scores.shape[1])
        for g in np.unique(groups)
    ]
    out[f"{attribute}: {name}"] = {
        "skews": max_skew(scores, groups, 1000).tolist(),
        "least_spearman": min(correlations),
        "mean_spearman": float(np.mean(correlations)),
    }


def rank_split(file: str, split: int) -> dict[str, Any]:
    """Measure MaxSkew@1000 and rank correlations with zero-shot inside groups, for every prompt and method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _rank(resplit(load_task(file), split, sensitive=["sex", "race"]), split)


def _rank(task: Task, seed: int) -> dict[str, Any]:
    train, val, test = task.train, task.val, task.test
    T = task.text_target / np.linalg.norm(task.text_target, axis=1, keepdims=True)
    out: dict[str, Any] = {}
    for attribute in ("sex", "race"):
        text = task.sensitive_attribute(attribute).text
        groups = test.s[attribute]
        names = np.arange(len(text))
        before = test.X @ T.T

        add = partial(_add_ranking, out, attribute, groups, before)
        add("zero-shot", before)
        shared = {"text": T, "sensitive_text": text}
        add("Orth-Proj", OrthProj().fit(train.X, None, **shared).scores(test.X))
        add("Orth-Cali", OrthCali().fit(train.X, None, **shared).scores(test.X))
        add("LEACE", LEACE(head="zero-shot").fit(train.X, None, **shared).scores(test.X))
        predicted = read_sensitive(train.X, val.X, val.s[attribute], seed)
        add(
            "LEACE, S read by a probe on validation rows",
            LEACE(head="zero-shot")
            .fit(train.X, None, text=T, sensitive_features=names[predicted.codes])
            .scores(test.X),
        )
        add(
            "LEACE, true S in training",
            LEACE(head="zero-shot")
            .fit(train.X, None, text=T, sensitive_features=train.s[attribute])
            .scores(test.X),
        )
        validation = (val.X, None, val.s[attribute])
        search = FairerCLIPSearch(FairerCLIP(random_state=seed), objective="max_skew")
        add("FairerCLIP", search.fit(train.X, validation=validation, **shared).scores(test.X))
        true = {"text": T, "sensitive_features": train.s[attribute]}
        search.fit(train.X, validation=validation, **true)
        add("FairerCLIP, true S in training", search.scores(test.X))
    return out


def rank(arguments: argparse.Namespace) -> None:
    """Run the rankings on resampled splits that have no file yet."""
    folder = arguments.output / "rank"
    todo = [split for split in range(arguments.splits) if not (folder / f"{split:02d}.json").exists()]
    calls = [Call(rank_split, {"file": arguments.task, "split": split}) for split in todo]
    keep_all(calls, [folder / f"{split:02d}.json" for split in todo], arguments.jobs)


def run(arguments: argparse.Namespace) -> None:
    """Run all methods on all splits that have no file yet."""
    wanted = arguments.methods.split(",") if arguments.methods else [*BY_KEY, *OWN]
    calls, files = [], []
    for split in range(arguments.splits):
        for file in arguments.tasks:
            name = Path(file).stem
            folder = arguments.output / (f"{name}-original" if arguments.original else name)
            for key in wanted:
                target = folder / f"{split:02d}-{key}.json"
                by_gradient = key in BY_KEY and BY_KEY[key].gradient
                if target.exists() or (by_gradient and split >= arguments.gradient_splits):
                    continue
                if key.startswith("eod") and name not in INTRINSIC:
                    continue
                call = {"file": file, "split": split, "key": key, "max_steps": arguments.max_steps}
                calls.append(Call(run_split, {**call, "original": arguments.original}))
                files.append(target)
    keep_all(calls, files, arguments.jobs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.add_argument("tasks", nargs="+")
    command.add_argument("--methods")
    command.add_argument(
        "--original", action="store_true", help="the original split of the task, with --splits 1"
    )
    command.add_argument("--max-steps", type=int, default=3000)
    command.add_argument("--gradient-splits", type=int, default=3)
    command.set_defaults(function=run)
    ranking = commands.add_parser("rank")
    ranking.add_argument("task")
    ranking.set_defaults(function=rank)
    for each in (command, ranking):
        each.add_argument("-o", "--output", type=Path, required=True)
        each.add_argument("--splits", type=int, default=20)
        each.add_argument("--jobs", type=int)
    options = parser.parse_args()
    options.function(options)
