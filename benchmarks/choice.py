"""How good a model is as it comes and as the search finds it, on many resampled splits of many tasks.

    python benchmarks/choice.py run SUITE -o OUT [--splits 20] [--tasks NAME,NAME] [--jobs 2]
    python benchmarks/choice.py table OUT

SUITE is a folder with the tasks of the comparison and fairface.npz, of which `label_rich.py` makes tasks with
thousands of labels. Every method has the same information in a setting, the same judge and the same offsets:

- "labels": labels of the training rows, and no validation rows. `FairerCLIP()` as it comes; other methods choose among
  their candidates on out-of-fold training rows, with groups read from the prompts, or take their default.
- "validation": labels of training and validation rows, groups of the validation rows. `FairerCLIPSearch`; other methods
  choose on out-of-fold training rows and validation rows.
- "no labels, validation": no labels in training; `FairerCLIPSearch` and other methods choose on validation rows.
- "no labels": nothing to choose by.
- "eod": as "validation", for the smallest difference of the true positive rates at the accuracy of zero-shot.
- "5 %": labels of 5 % of the training rows, and no validation rows; "5 % alone" leaves the others out.

``run`` keeps one file per task and split, so that it can be stopped and resumed. Each run uses one core.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from label_rich import DEVELOPMENT, REPORTED, rich_tasks
from scipy.stats import t as student

from fairerclip import FairerCLIP
from fairerclip._util.files import atomic_file
from fairerclip.baselines import LEACE, LinearProbe, OrthCali, OrthProj, WiSE, ZeroShot
from fairerclip.baselines.shared_solutions import shared_solutions
from fairerclip.data import Task, load_task, resplit
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.judging.choose import choose
from fairerclip.judging.objectives import Objective
from fairerclip.model.fit_inputs import read_inputs
from fairerclip.study.choose_model import choose_model
from fairerclip.study.methods import METHODS
from fairerclip.study.workers import Call, Failure, Returned, run_calls
from fairerclip.tuning.found_rows import FoundRows, find_rows

SHARED = ("celeba_blond", "celeba_cheekbones", "celeba_attractive", "pacs")
INTRINSIC = ("celeba_cheekbones", "celeba_attractive", "over40-sex", "adult-sex")
PENALTIES = (1.0, 1e-2, 0.1, 0.3, 3.0, 10.0, 100.0)
"""Penalties of the probes, the default first."""
SHARES = tuple(k / 10 for k in range(10))
"""Shares of the probe in WiSE."""
STRENGTHS = (1e3, 0.0, 0.1, 1.0, 10.0, 1e2, 1e4, 1e5)
"""λ of Orth-Cali, the default first."""
FOLDS = 4
DFR_SPLITS = 5
"""Splits on which DFR, which takes long, is run."""
FEW = 0.05
WORST = Objective("worst_group")

Scorer = Callable[[Any], dict[str, Any]]
"""Class scores of rows, by candidate."""
Builder = Callable[[Any], Scorer]
"""Fit all candidates on rows."""


def load(suite: Path, name: str) -> Task:
    """Return a task of the suite, or a label-rich one."""
    if name in SHARED:
        return load_task(suite / f"{name}.npz")
    return rich_tasks(load_task(suite / "fairface.npz"))[name]


def rivals(experiment: Experiment) -> dict[str, tuple[Builder, str]]:
    """Return the candidates of each other method, and the first of its settings; labels are those of training."""
    given = experiment.arguments("target")
    X, y = given.pop("X"), np.asarray(given.pop("y"))
    given.pop("sensitive_features")

    def probes(make: Callable[[float], Any]) -> Builder:
        def build(rows: Any) -> Scorer:
            with shared_solutions():
                models = {f"{C:g}": make(C).fit(X[rows], y[rows], **given) for C in PENALTIES}
            return lambda new: {name: model.scores(new) for name, model in models.items()}

        return build

    def wise(**options: Any) -> Builder:
        def build(rows: Any) -> Scorer:
            ends = {}
            with shared_solutions():
                for C in (1.0, 0.01, 0.1, 10.0):
                    ends[C] = [
                        WiSE(C=C, alpha=a, **options).fit(X[rows], y[rows], **given) for a in (0.0, 1.0)
                    ]

            def score(new: Any) -> dict[str, Any]:
                out = {}
                for C, (zero, probe) in ends.items():
                    a, b = zero.scores(new), probe.scores(new)
                    out |= {f"{C:g}, {k:g}": (1 - k) * a + k * b for k in SHARES}
                return out

            return score

        return build

    def unlabelled(models: Mapping[str, Any]) -> Builder:
        def build(rows: Any) -> Scorer:
            fitted = {name: model.fit(X[rows], None, **given) for name, model in models.items()}
            return lambda new: {name: model.scores(new) for name, model in fitted.items()}

        return build

    return {
        "group-balanced probe": (probes(lambda C: LinearProbe(C=C, class_weight="group")), "1"),
        "LEACE, probe": (probes(lambda C: LEACE(C=C, head="probe")), "1"),
        "WiSE, group weights": (wise(class_weight="group"), "1, 0.5"),
        "zero-shot": (unlabelled({"": ZeroShot()}), ""),
        "LEACE": (unlabelled({"": LEACE(head="zero-shot")}), ""),
        "Orth-Proj": (unlabelled({"": OrthProj()}), ""),
        "Orth-Cali": (unlabelled({f"{lam:g}": OrthCali(lam=lam) for lam in STRENGTHS}), "1000"),
    }


UNLABELLED = ("zero-shot", "LEACE", "Orth-Proj", "Orth-Cali")


def judged(experiment: Experiment, labels: str, *, validation: bool) -> FoundRows:
    """Return the rows that judge candidates, as FairerCLIP's search finds them."""
    arguments = experiment.arguments(labels)
    X, y = arguments.pop("X"), arguments.pop("y")
    val = experiment.task.val
    held = (val.X, experiment.target(val), experiment.group_columns(val)) if validation else None
    data = read_inputs(FairerCLIP(random_state=0).get_params(), X, y, **arguments).data
    return find_rows(data, X, y, held, cv=FOLDS, groups=None, seed=0, missing_label=UNKNOWN)


def chosen_scores(tested: Mapping[str, Any], scores: Mapping[str, Any], found: FoundRows, first: str) -> Any:
    """Return the test scores of the candidate that the judged rows choose, with its offsets."""
    names = list(tested)
    stacked = np.array([scores[name] for name in names], dtype=np.float32)
    choice = choose(stacked, found.judged.evidence, WORST, names.index(first))
    return tested[names[choice.candidate]] + choice.offsets


def run_rivals(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """Return test scores of every other method by setting."""
    X, val, test = experiment.task.train.X, experiment.task.val.X, experiment.task.test.X
    alone = judged(experiment, "target", validation=False)
    both = judged(experiment, "target", validation=True)
    held = judged(experiment, "none", validation=True)
    out: dict[str, dict[str, Any]] = {
        "labels": {},
        "validation": {},
        "no labels, validation": {},
        "no labels": {},
    }
    everything = np.arange(len(X))
    for name, (build, first) in rivals(experiment).items():
        fitted = build(everything)
        tested, on_val = fitted(test), fitted(val[held.judged.rows])
        if name in UNLABELLED:
            out["no labels"][name] = out["labels"][name] = tested[first]
            found = chosen_scores(tested, on_val, held, first)
            out["no labels, validation"][name] = out["validation"][name] = found
            continue
        folded = {key: np.zeros((len(alone.judged.rows), len(experiment.classes))) for key in tested}
        for split in alone.splits:
            places = np.searchsorted(alone.judged.rows, split.scored)
            for key, scores in build(split.fitted_on)(X[split.scored]).items():
                folded[key][places] = scores
        out["labels"][name] = chosen_scores(tested, folded, alone, first)
        joined = {key: np.concatenate([folded[key], on_val[key]]) for key in tested}
        out["validation"][name] = chosen_scores(tested, joined, both, first)
    return out


def run_own(experiment: Experiment, seed: int, *, intrinsic: bool) -> dict[str, dict[str, Any]]:
    """Return test scores of FairerCLIP by setting."""
    test = experiment.task.test.X

    def fit(labels: str) -> Any:
        return experiment.fit(FairerCLIP(random_state=seed), labels).scores(test)

    def search(labels: str, objective: str = "worst_group") -> Any:
        return experiment.tune(FairerCLIP(random_state=seed), labels, objective).scores(test)

    out = {
        "labels": {"FairerCLIP": fit("target")},
        "validation": {"FairerCLIP": search("target")},
        "no labels, validation": {"FairerCLIP": search("none")},
        "no labels": {"FairerCLIP": fit("none")},
    }
    if intrinsic:
        out["eod"] = {"FairerCLIP": search("target", "eod")}
    arguments = experiment.arguments("target")
    X, y = arguments.pop("X"), np.asarray(arguments.pop("y"))
    known = np.random.default_rng(seed).random(len(y)) < FEW
    few = FairerCLIP(random_state=seed).fit(X, np.where(known, y, UNKNOWN), **arguments)
    out["5 %"] = {"FairerCLIP": few.scores(test)}
    if len(np.unique(y[known])) == len(experiment.classes):
        alone = FairerCLIP(random_state=seed).fit(X[known], y[known], **arguments)
        out["5 %"]["5 % alone"] = alone.scores(test)
    return out


def run_dfr(experiment: Experiment, seed: int) -> Any:
    """Return test scores of DFR on the validation rows, which it both learns from and chooses on."""
    method = next(m for m in METHODS if m.key == "dfr-validation")
    found = choose_model(method, experiment, seed)
    return found.model.scores(experiment.task.test.X) + found.offsets


def figures(experiment: Experiment, scores: Any) -> dict[str, float]:
    """Return average, worst group and signed EOD (second group minus first, second class), in per cent."""
    test = experiment.task.test
    s = test.sensitive()
    right = np.asarray(scores).argmax(axis=1) == test.y
    cells = {
        (k, g): float(right[(test.y == k) & (s == g)].mean())
        for k in np.unique(test.y)
        for g in np.unique(s)
        if ((test.y == k) & (s == g)).any()
    }
    eod = 100 * (cells[1, 1] - cells[1, 0]) if len(cells) == 4 else np.nan
    return {"average": 100 * float(right.mean()), "worst": 100 * min(cells.values()), "eod": eod}


def run_split(suite: str, name: str, split: int) -> dict[str, Any]:
    """Run everything on one split of a task."""
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        experiment = Experiment.of(resplit(load(Path(suite), name), split))
        found = run_own(experiment, split, intrinsic=name in INTRINSIC)
        own_seconds = time.perf_counter() - started
        for setting, others in run_rivals(experiment).items():
            found[setting] |= others
        if split < DFR_SPLITS:
            found["validation"]["DFR on validation rows"] = run_dfr(experiment, split)
    out: dict[str, Any] = {
        setting: {method: figures(experiment, scores) for method, scores in rows.items()}
        for setting, rows in found.items()
    }
    return {"figures": out, "own_seconds": own_seconds, "seconds": time.perf_counter() - started}


def run(arguments: argparse.Namespace) -> None:
    """Run all tasks on all splits that have no file yet."""
    names = arguments.tasks.split(",") if arguments.tasks else [*SHARED, *REPORTED, *DEVELOPMENT]
    todo = [
        (split, name)
        for split in range(arguments.splits)
        for name in names
        if not (arguments.output / name / f"{split:02d}.json").exists()
    ]

    def keep(number: int, answer: Returned[dict[str, Any]] | Failure) -> None:
        split, name = todo[number]
        if isinstance(answer, Failure):
            print(f"{name} {split}: {answer.error}", flush=True)
            return
        file = arguments.output / name / f"{split:02d}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(file, overwrite=True) as handle:
            handle.write(json.dumps(answer.value).encode())
        print(f"{name} {split}: {answer.value['seconds']:.0f} s", flush=True)

    calls = [Call(run_split, {"suite": str(arguments.suite), "name": n, "split": s}) for s, n in todo]
    run_calls(calls, keep, processes=arguments.jobs)


def paired(runs: Sequence[Any], setting: str, name: str, figure: str = "worst") -> tuple[float, float]:
    """Return mean and half width of the 95 % interval of FairerCLIP minus another method over splits."""
    x = np.array(
        [r[setting]["FairerCLIP"][figure] - r[setting][name][figure] for r in runs if name in r[setting]]
    )
    half = student.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan
    return float(x.mean()), float(half)


def table(arguments: argparse.Namespace) -> None:
    """Print one Markdown table per setting: average / worst group, and FairerCLIP minus the best other row."""
    runs = {}
    for folder in sorted(arguments.output.iterdir()):
        files = sorted(folder.glob("*.json"))
        if files:
            runs[folder.name] = [json.loads(file.read_text())["figures"] for file in files]
    order = [n for n in (*SHARED, *REPORTED, *DEVELOPMENT) if n in runs]
    print("Splits: " + ", ".join(f"{name} {len(runs[name])}" for name in order))
    for setting in ("labels", "validation", "no labels, validation", "no labels", "5 %"):
        names = list(dict.fromkeys(m for n in order for r in runs[n] for m in r.get(setting, {})))
        print(f"\n### {setting}\n\n| method | " + " | ".join(order) + " |\n|---" + "|---" * len(order) + "|")
        for method in names:
            cells = []
            for n in order:
                own = [r[setting][method] for r in runs[n] if method in r[setting]]
                mean = {k: np.mean([f[k] for f in own]) for k in ("average", "worst")} if own else None
                cells.append("" if mean is None else f"{mean['average']:.1f} / {mean['worst']:.1f}")
            print(f"| {method} | " + " | ".join(cells) + " |")
        verdicts = []
        for n in order:
            others = [m for m in names if m != "FairerCLIP"]
            found = {m: paired(runs[n], setting, m) for m in others if any(m in r[setting] for r in runs[n])}
            best = min(found, key=lambda m: found[m][0])
            mean, half = found[best]
            average = paired(runs[n], setting, best, "average")[0]
            verdicts.append(f"{mean:+.1f} ± {half:.1f} ({best}; average {average:+.1f})")
        print("| **worst group against the best other row** | " + " | ".join(verdicts) + " |")
    print(
        "\n### Difference of the true positive rates\n\n| task | EOD | zero-shot's | average | zero-shot's |\n"
        + "|---" * 5
        + "|"
    )
    for n in order:
        own = [(r["eod"]["FairerCLIP"], r["no labels"]["zero-shot"]) for r in runs[n] if "eod" in r]
        if own:
            mean = [
                np.mean([pair[k][figure] for pair in own]) for figure in ("eod", "average") for k in (0, 1)
            ]
            print(
                f"| {n} | "
                + " | ".join(f"{value:+.1f}" if i < 2 else f"{value:.1f}" for i, value in enumerate(mean))
                + " |"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.add_argument("suite", type=Path)
    command.add_argument("--splits", type=int, default=20)
    command.add_argument("--tasks")
    command.add_argument("--jobs", type=int)
    command.set_defaults(function=run)
    shown = commands.add_parser("table")
    shown.set_defaults(function=table)
    for each in (command, shown):
        each.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    options.function(options)
