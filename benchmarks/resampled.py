"""Every method on many splits of a task: rows swap between splits within a cell, and differences are paired.

    python benchmarks/resampled.py run TASK.npz [TASK.npz ...] -o OUT [--splits 20] [--methods KEY,KEY]
    python benchmarks/resampled.py rank TASK.npz -o OUT [--splits 20]          (MaxSkew, e.g. FairFace)
    python benchmarks/resampled_table.py OUT TASK.npz [TASK.npz ...]

``run`` keeps one file per task, split and method, so that it can be stopped and taken up again. A method sees the
training rows of a split with the labels it is allowed, chooses among its settings on the validation rows, and the test
rows are read once. Methods trained by gradient run on the first five splits, each training within ``--max-seconds``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.stats import spearmanr

from fairerclip import FairerCLIP
from fairerclip.baselines import LEACE, OrthCali, OrthProj
from fairerclip.compare.methods import METHODS, Method, make
from fairerclip.compare.run import fit_arguments
from fairerclip.data import Task, load_task, resplit
from fairerclip.metrics import max_skew, shrunken_worst_group
from fairerclip.path import PRIOR
from fairerclip.tuning.choose import Choice, strategies
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import Objective
from fairerclip.tuning.readers import read_sensitive
from fairerclip.tuning.search import gather
from fairerclip.workflow import Experiment

GRADIENT_SPLITS = 5
GROUPLESS_SPLITS = 5
"""Splits on which choosing without group labels is looked at too."""
INTRINSIC = ("celeba_cheekbones", "celeba_attractive")
"""Tasks whose target depends on the sensitive attribute by itself: EOD is looked at."""
OWN = (
    "fairerclip-target",
    "fairerclip-none",
    "fairerclip-all",
    "eod-target",
    "published-target",
    "published-none",
)
"""What `tune` chooses with labels, without and with true S, by EOD, and the published presets."""
PRESETS = {"pacs": "waterbirds"}
"""The preset whose data are most like a task's; CelebA's for the rest."""


def codes(experiment: Experiment, name: str) -> tuple[Any, Any]:
    """Class and group codes of a split, in the order of the task's names."""
    split = experiment.task.split(name)
    attribute = experiment.sensitive[0]
    return split.y, split.s[attribute]


def cells(y: Any, s: Any, predicted: Any, shape: tuple[int, int]) -> list[list[int]]:
    """Rows that are right, by class and group."""
    hits = np.zeros(shape, dtype=int)
    np.add.at(hits, (y, s), (predicted == y).astype(int))
    return hits.tolist()


def cells_of(experiment: Experiment, model: FairerCLIP) -> list[list[int]]:
    """Rows of the test split that a model gets right, by class and group."""
    (_, s), (y, st) = codes(experiment, "val"), codes(experiment, "test")
    shape = (len(experiment.classes), int(max(s.max(), st.max())) + 1)
    names = model.predict(experiment.task.test.X)
    return cells(y, st, np.array([experiment.classes.index(name) for name in names]), shape)


def raw_worst(judge: Judge, scores: Any) -> float:
    """The raw share of the worst cell, ties broken by the average."""
    hits = judge.hits(scores)
    seen = judge.counts > 0
    return float((hits[seen] / judge.counts[seen]).min() + 1e-6 * hits.sum() / judge.counts.sum())


def shrunken(judge: Judge, scores: Any) -> float:
    """The shrunken worst cell, as `compare` chooses baselines by."""
    hits = judge.hits(scores)
    return float(
        shrunken_worst_group(hits, judge.counts, prior=PRIOR) + 1e-6 * hits.sum() / judge.counts.sum()
    )


def own_rules(experiment: Experiment, labels: str, seed: int) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Test cells and parameters of what simpler rules than `tune` take from the models of its search; and of all."""
    (y, s), (yt, st) = codes(experiment, "val"), codes(experiment, "test")
    shape = (len(experiment.classes), int(max(s.max(), st.max())) + 1)
    val, test = experiment.task.val, experiment.task.test
    arguments = experiment.arguments(labels)
    X, target = arguments.pop("X"), arguments.pop("y")
    pool = gather(
        FairerCLIP(random_state=seed),
        lambda m: m.fit(X, target, **arguments),
        np.concatenate([val.X, test.X]),  # scored together; no rule sees the test rows' scores
        search=None,
        has_text=True,
        has_sensitive_text=labels != "all",
        max_seconds=None,
        progress=None,
    )
    scores = np.array([c.scores for c in pool.candidates], dtype=np.float64)
    held, unseen = scores[:, : len(y)], scores[:, len(y) :]
    judge, none = Judge(y, s, *shape), np.zeros(len(pool.classes))
    plain = strategies(pool, held, judge, Objective("worst_group"))
    choices = {
        "raw maximum": Choice(int(np.argmax([raw_worst(judge, v) for v in held])), none),
        "shrunken maximum": Choice(int(np.argmax([shrunken(judge, v) for v in held])), none),
        "expected maximum": plain["search"],
        "expected maximum, offsets": plain["search, offsets"],
    }
    found, parameters = {}, {}
    for rule, choice in choices.items():
        moved = unseen[choice.candidate] + choice.offsets
        found[rule] = cells(yt, st, moved.argmax(axis=1), shape)
        parameters[rule] = {
            **pool.candidates[choice.candidate].parameters,
            "offsets": choice.offsets.tolist(),
        }
    every = [cells(yt, st, values.argmax(axis=1), shape) for values in unseen]
    return found, parameters, every


def without_groups(experiment: Experiment, labels: str, seed: int) -> dict[str, FairerCLIP]:
    """Models tuned without group labels in validation: by groups read from the prompts, and by the worst class."""
    val = experiment.task.val
    text = experiment.task.sensitive_attribute(experiment.sensitive[0]).text
    read = (val.X @ (text / np.linalg.norm(text, axis=1, keepdims=True)).T).argmax(axis=1)
    arguments = experiment.arguments(labels)
    X, target = arguments.pop("X"), arguments.pop("y")
    by_read = FairerCLIP(random_state=seed).tune(
        X, target, validation=(val.X, experiment.target(val), read), **arguments
    )
    by_class = experiment.tune(FairerCLIP(random_state=seed), labels, "worst_class")
    return {"groups read from prompts": by_read, "no groups, worst class": by_class}


def run_own(key: str, experiment: Experiment, seed: int) -> dict[str, Any]:
    """Cells of the test split: of what `tune` chooses, of other models, and of simpler rules on the same search."""
    kind, labels = key.split("-")
    started = time.perf_counter()
    model = FairerCLIP(random_state=seed)
    if kind == "published":
        dataset = PRESETS.get(experiment.task.name, "celeba")
        preset = FairerCLIP.preset(dataset).set_params(random_state=seed)
        models = {"published": experiment.fit(preset, labels)}
    elif kind == "eod":
        models = {"eod": experiment.tune(model, labels, "eod")}
    else:
        default = experiment.fit(FairerCLIP(random_state=seed), labels)
        models = {"tuned": experiment.tune(model, labels), "default": default}
        if seed < GROUPLESS_SPLITS:
            models |= without_groups(experiment, labels, seed)
    out = {"cells": {rule: cells_of(experiment, m) for rule, m in models.items()}}
    tuned = {rule: m.diagnostics_["tuning"] for rule, m in models.items() if "tuning" in m.diagnostics_}
    out["chosen"] = {rule: tuning["chosen"]["parameters"] for rule, tuning in tuned.items()}
    if kind == "fairerclip":
        found, parameters, every = own_rules(experiment, labels, seed)
        out = {"cells": out["cells"] | found, "chosen": out["chosen"] | parameters, "every": every}
    return {**out, "seconds": time.perf_counter() - started}


def _add_ranking(
    out: dict[str, Any], attribute: str, groups: Any, before: Any, name: str, scores: Any
) -> None:
    kept = [
        float(spearmanr(scores[groups == g, k], before[groups == g, k]).statistic)
        for k in range(scores.shape[1])
        for g in np.unique(groups)
    ]
    out[f"{attribute}: {name}"] = {
        "skews": max_skew(scores, groups, 1000).tolist(),
        "least_spearman": min(kept),
        "mean_spearman": float(np.mean(kept)),
    }


def rank_split(task: Task, seed: int) -> dict[str, Any]:
    """MaxSkew@1000 and agreement with the zero-shot order inside groups, for every prompt and method."""
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
        read = read_sensitive(train.X, val.X, val.s[attribute], seed)
        add(
            "LEACE, S read by a probe on validation rows",
            LEACE(head="zero-shot")
            .fit(train.X, None, text=T, sensitive_features=names[read.codes])
            .scores(test.X),
        )
        add(
            "LEACE, true S in training",
            LEACE(head="zero-shot")
            .fit(train.X, None, text=T, sensitive_features=train.s[attribute])
            .scores(test.X),
        )
        validation = (val.X, None, val.s[attribute])
        model = FairerCLIP(random_state=seed).tune(
            train.X, validation=validation, objective="max_skew", **shared
        )
        add("FairerCLIP", model.scores(test.X))
        model = FairerCLIP(random_state=seed).tune(
            train.X,
            validation=validation,
            objective="max_skew",
            text=T,
            sensitive_features=train.s[attribute],
        )
        add("FairerCLIP, true S in training", model.scores(test.X))
    return out


def rank(arguments: argparse.Namespace) -> None:
    """Rankings on resampled splits."""
    task = load_task(arguments.task)
    for split in range(arguments.first, arguments.splits):
        target = arguments.output / "rank" / f"{split:02d}.json"
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = rank_split(resplit(task, split, sensitive=["sex", "race"]), split)
        target.write_text(json.dumps(found))
        print("rank", split, f"{time.perf_counter() - started:.1f} s", flush=True)


def score_candidates(method: Method, experiment: Experiment, seed: int, max_seconds: float) -> dict[str, Any]:
    """Validation and test scores (settings, n, c) of every setting of a method, and seconds of each fit."""
    val, test = experiment.task.val, experiment.task.test
    out: dict[str, Any] = {"val": [], "test": [], "seconds": []}
    for parameters in method.candidates:
        model = make(method, parameters, seed, max_seconds)
        arguments = fit_arguments(method, experiment)
        if method.validation:
            y, s = experiment.labels(val)
            arguments["validation"] = (val.X, y, s)
        start = time.perf_counter()
        model.fit(arguments.pop("X"), arguments.pop("y"), **arguments)
        out["seconds"].append(time.perf_counter() - start)
        for name, split in (("val", val), ("test", test)):
            out[name].append(model.scores(split.X).astype(np.float32))
    return {name: np.array(values) for name, values in out.items()}


def run(arguments: argparse.Namespace) -> None:
    """All runs that are not there yet."""
    keys = arguments.methods.split(",") if arguments.methods else None
    methods = [m for m in METHODS if m.home != "FairerCLIP" and (keys is None or m.key in keys)]
    own = [key for key in OWN if keys is None or key in keys]
    for split in range(arguments.first, arguments.splits):
        for file in arguments.tasks:
            task = load_task(file)
            experiment = Experiment.of(task if arguments.original else resplit(task, split))
            folder = arguments.output / Path(file).stem
            folder.mkdir(parents=True, exist_ok=True)
            for method in methods:
                target = folder / f"{split:02d}-{method.key}.npz"
                if target.exists() or (method.gradient and split >= GRADIENT_SPLITS):
                    continue
                started = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = score_candidates(method, experiment, split, arguments.max_seconds)
                np.savez_compressed(target, **found)
                print(
                    experiment.task.name,
                    split,
                    method.key,
                    f"{time.perf_counter() - started:.1f} s",
                    flush=True,
                )
            for key in own:
                if key.startswith("eod") and experiment.task.name not in INTRINSIC:
                    continue
                target = folder / f"{split:02d}-{key}.json"
                if target.exists():
                    continue
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = run_own(key, experiment, split)
                target.write_text(json.dumps(found))
                print(experiment.task.name, split, key, f"{found['seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.add_argument("tasks", nargs="+")
    command.add_argument("--methods")
    command.add_argument("--original", action="store_true", help="the task's own split, with --splits 1")
    command.add_argument("--max-seconds", type=float, default=20.0)
    command.set_defaults(function=run)
    ranking = commands.add_parser("rank")
    ranking.add_argument("task")
    ranking.set_defaults(function=rank)
    for each in (command, ranking):
        each.add_argument("-o", "--output", type=Path, required=True)
        each.add_argument("--splits", type=int, default=20)
        each.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    given.function(given)
