"""Scenarios whose figures are kept in ``figures.json``: what the package answers, in numbers for any processor.

A scenario returns at most 50 figures. A figure is a word, which must stay, or a number with its tolerance: one row for
shares of rows, a fraction for everything else. ``python tests/net/scenarios.py [NAME ...]`` measures all, or those
named, anew and prints what changed; run it only for a change that is meant to change answers.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
REAL_DATA = HERE.parents[2] / "shared" / "data"
Figure = str | tuple[float, float]
Figures = dict[str, Figure]
Run = Callable[..., tuple[int, str, str]]


def close(value: float, part: float = 2e-3, least: float = 1e-4) -> tuple[float, float]:
    """Return a number with a tolerance relative to its size."""
    return float(value), max(least, part * abs(float(value)))


def share(value: float, n: int) -> tuple[float, float]:
    """Return a share of ``n`` rows, with a tolerance of one row."""
    return float(value), 1.01 / n


# --- Figures of one model, by the letter ---


def accuracies(prefix: str, y: Any, predicted: Any, s: Any) -> Figures:
    """Average and worst-group accuracy of labelled rows, and the gap in recall between two groups."""
    known = np.array([a is not None and b is not None for a, b in zip(y, s, strict=True)])
    y, predicted, s = (np.asarray(values, dtype=str)[known] for values in (y, predicted, s))
    right, groups = y == predicted, {}
    for cell in sorted(set(zip(y, s, strict=True))):
        rows = (y == cell[0]) & (s == cell[1])
        groups[cell] = (right[rows].mean(), int(rows.sum()))
    worst, n = min(groups.values())
    return {f"{prefix} average": share(right.mean(), len(y)), f"{prefix} worst group": share(worst, n)}


def answers(prefix: str, model: Any, X: Any) -> Figures:
    """How many rows go to each class, and quantiles of the scores."""
    codes = {label: k for k, label in enumerate(model.classes_)}
    counts = np.bincount([codes[label] for label in model.predict(X)], minlength=len(codes)) / len(X)
    figures: Figures = {
        f"{prefix} predicted {k}": share(counts[k], len(X)) for k in range(min(3, len(codes)))
    }
    scores = model.scores(X)
    for k, q in ((0, 0.1), (0, 0.5), (1, 0.9)):
        figures[f"{prefix} score {k} at {q:.0%}"] = close(np.quantile(scores[:, k], q), least=2e-4)
    return figures


def chosen(prefix: str, model: Any) -> Figures:
    """Parameters that a fit took for "auto"."""
    names = ("tau", "zero_shot", "gamma", "criterion", "guess_weight")
    return {f"{prefix} {name}": f"{getattr(model, f'{name}_')}" for name in names}


def max_skew(scores: Any, s: Any, k: int) -> float:
    """Largest log ratio of a group's share in the first ``k`` rows to its share in all."""
    first = np.argsort(-scores, kind="stable")[:k]
    return max(np.log(max(np.mean(s[first] == v), 1e-9) / np.mean(s == v)) for v in sorted(set(s)))


# --- Simulated tasks -------------------------------------------------------------------------------------------------

SIMULATED = {
    "two-classes": ("waterbirds", 0.04, 32),
    "missing-labels": ("celeba", 0.0015, 32),
    "many-classes": ("multiclass", 0.05, 48),
    "gallery": ("gallery", 0.03, 48),
    "scarce-labels": ("cheekbones", 0.004, 32),
}


def simulated(name: str) -> Any:
    """Return one of the five tasks, with labels missing where its name says so."""
    from fairerclip.data import simulate

    kind, scale, width = SIMULATED[name]
    task = simulate(kind, seed=1, scale=scale, width=width)
    rng = np.random.default_rng(2)

    def some_unknown(codes: Any, part: float) -> Any:
        return np.where(rng.random(len(codes)) < part, -1, codes)

    splits = dict(task.splits)
    for split, rows in task.splits.items():
        if name == "missing-labels":
            s = {key: some_unknown(codes, 0.1) for key, codes in rows.s.items()}
            splits[split] = replace(rows, y=some_unknown(rows.y, 0.3), s=s)
        elif name == "scarce-labels":  # training rows without labels, test rows with half of them
            y = {"train": None, "val": rows.y, "test": some_unknown(rows.y, 0.5)}[split]
            splits[split] = replace(rows, y=y, s=rows.s if split == "test" else {})
    return replace(task, splits=splits)


def labels(task: Any, split: Any) -> list[str | None] | None:
    """Names of the classes of rows, None where unknown."""
    return None if split.y is None else [task.class_names[k] if k >= 0 else None for k in split.y]


def prompts(task: Any) -> dict[str, Any]:
    return dict(zip(task.class_names, task.text_target, strict=True))


def models(name: str, run: Run) -> Figures:
    """Fits of a simulated task: given parameters, automatic ones, without labels, and the published method."""
    from fairerclip import FairerCLIP
    from fairerclip.baselines import LEACE, ZeroShot

    task = simulated(name)
    place = task.sensitive_attribute()
    text, X = {"text": prompts(task)}, task.test.X
    both = {**text, "sensitive_text": place.text}
    y, truth, s = labels(task, task.train), labels(task, task.test), task.test.sensitive()
    figures = accuracies("zero-shot", truth, ZeroShot().fit(task.train.X, y, **text).predict(X), s)
    given = FairerCLIP(n_features=64, tau=0.5, gamma=1e-3, zero_shot=0.2, class_offsets=None, random_state=0)
    given.fit(task.train.X, y, **both)
    figures |= accuracies("given", truth, given.predict(X), s) | answers("given", given, X)
    terms = given.diagnostics_["objective"][-1]["image"]
    figures |= {f"given objective {term}": close(value) for term, value in terms.items()}
    auto = FairerCLIP(random_state=0).fit(task.train.X, y, **both)
    figures |= accuracies("auto", truth, auto.predict(X), s) | chosen("auto", auto)
    figures |= answers("auto", auto, X)
    none = FairerCLIP(n_features=64, random_state=0).fit(task.train.X, **both)
    figures |= accuracies("no labels", truth, none.predict(X), s)
    paper = FairerCLIP.preset("paper").set_params(n_features=64, max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # three rounds are not enough
        paper.fit(task.train.X, **both)
    figures |= accuracies("paper", truth, paper.predict(X), s) | answers("paper", paper, X)
    if y is not None and task.train.s:
        leace = LEACE("probe").fit(task.train.X, y, sensitive_features=task.train.sensitive(), **text)
        figures |= accuracies("LEACE", truth, leace.predict(X), s)
    return figures


def audited(name: str, run: Run) -> Figures:
    """The audit of a simulated task from the command line, and of a gallery its rankings."""
    from fairerclip.data import save_task

    one = ("--sensitive", "sex") if name == "gallery" else ()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        save_task(simulated(name), Path("task.npz"))
        code, _, err = run(
            "audit", "task.npz", "--mitigate", "--permutations", 19, *one, "-o", "results.json"
        )
        if code:
            raise RuntimeError(err)
        results = json.loads(Path("results.json").read_text(encoding="utf-8"))
    figures: Figures = {"action": results["recommendation"]["action"]}
    levels = [finding["level"] for finding in results["findings"]]
    figures["findings"] = ", ".join(f"{levels.count(level)} {level}" for level in sorted({*levels}))
    if groups := results["groups"]:
        for side in ("before", "after"):
            held, (low, high) = groups[side], groups[side]["intervals"]["worst_group"]
            figures[f"{side} average"] = share(held["average"], held["n"])
            figures[f"{side} worst group"] = share(held["worst"]["accuracy"], held["worst"]["n"])
            figures |= {
                f"{side} worst group {end}": close(v, least=0.03) for end, v in (("low", low), ("high", high))
            }
            figures[f"{side} EOD"] = close(held["eod"], least=0.03)
            figures[f"{side} parity"] = close(held["demographic_parity_difference"], least=0.03)
    if results["auc"]:
        figures["AUC before"] = close(results["auc"]["before"]["overall"]["value"])
        figures["AUC after"] = close(results["auc"]["after"]["overall"]["value"], least=5e-3)
    tuning = results["model"]["tuning"] or {}
    figures |= {
        f"chosen {key}": f"{results['model'][key]}" for key in ("tau", "criterion") if key in results["model"]
    }
    figures |= {f"chosen {key}": f"{tuning[key]}" for key in ("objective", "rows") if key in tuning}
    if retrieval := results["retrieval"]:
        figures["k"] = f"{retrieval['k']}"
        for measure in ("max_skew", "ndkl", "kl"):
            for side in ("before", "after"):
                figures[f"{side} {measure}"] = close(retrieval["mean"][side][measure]["value"], least=0.02)
    for probe in results["probes"][:2]:
        figures[f"{probe['probe']} probe {probe['stage']}"] = close(probe["value"], least=0.02)
    for row in results["dependence"][:3]:
        figures[f"{row['measure']} {row['stage']}"] = close(row["value"], part=0.02)
    return figures


def searched(run: Run) -> Figures:
    """The search on validation rows, and the path of one fit."""
    from fairerclip import FairerCLIP, FairerCLIPSearch

    task = simulated("two-classes")
    place = task.sensitive_attribute()
    both = {"text": prompts(task), "sensitive_text": place.text}
    y, val, truth = (labels(task, split) for split in (task.train, task.val, task.test))
    s = task.test.sensitive()
    figures: Figures = {}
    for objective in ("worst_group", "eod"):
        search = FairerCLIPSearch(FairerCLIP(n_features=200, random_state=0), objective=objective)
        search.fit(task.train.X, y, validation=(task.val.X, val, task.val.sensitive()), **both)
        figures[f"{objective} strategy"] = search.strategy_
        figures[f"{objective} score"] = close(search.best_score_)
        figures |= {
            f"{objective} {key}": f"{search.best_params_[key]}" for key in ("tau", "gamma", "zero_shot")
        }
        figures |= accuracies(objective, truth, search.predict(task.test.X), s)
    model = FairerCLIP(n_features=64, tau=0.5, gamma=1e-3, zero_shot=0.2, class_offsets=None, random_state=0)
    model.fit(task.train.X, y, **both)
    for tau in (0.0, 0.8):
        figures |= accuracies(f"path {tau}", truth, model.at(tau=tau).predict(task.test.X), s)
    return figures


def mitigated(run: Run) -> Figures:
    """The mitigator in a simulated gallery: S from prompts, from labels, from few labels, and a quantity."""

    task = simulated("gallery")
    sex = task.sensitive_attribute("sex")
    X, s = task.train.X, task.train.sensitive("sex")
    test, k = np.asarray(task.test.sensitive("sex")), 37
    first, other = (test == value for value in sorted(set(test)))
    fits = {
        "prompts": {"sensitive_text": sex.text},
        "labels": {"sensitive_features": s},
        "few labels": {"sensitive_text": sex.text, "labelled": (X[:40], s[:40])},
        "quantity": {"sensitive_features": X[:, 0]},
    }
    queries = task.text_target
    figures: Figures = {
        f"before, query {j}": close(max_skew(task.test.X @ queries[j], test, k), least=0.03) for j in (0, 1)
    }
    for name, given in fits.items():
        fitted = mitigator().fit(X, **given)
        rows = fitted.transform(task.test.X)
        figures[f"{name}: moved"] = close(np.linalg.norm(rows - task.test.X) / np.linalg.norm(task.test.X))
        figures[f"{name}: gap of means"] = close(np.linalg.norm(rows[first].mean(0) - rows[other].mean(0)))
        for j in (0, 1):
            figures[f"{name}: query {j}"] = close(max_skew(rows @ queries[j], test, k), least=0.03)
    return figures


def mitigator() -> Any:
    from fairerclip import EmbeddingMitigator

    return EmbeddingMitigator()


def measured(run: Run) -> Figures:
    """Public metrics of zero-shot predictions and rankings of simulated tasks."""
    from fairerclip import metrics

    task = simulated("two-classes")
    truth, s, X = labels(task, task.test), np.asarray(task.test.sensitive()), task.test.X
    scores = X @ task.text_target.T
    predicted = np.asarray(task.class_names)[scores.argmax(axis=1)]
    report = metrics.group_report(truth, predicted, s, positive=task.class_names[1])
    figures: Figures = {
        "average": share(report.average, report.n),
        "worst": share(report.worst.accuracy, report.worst.n),
        "worst name": f"{report.worst.y} × {report.worst.s}",
        "gap": close(report.gap),
        "eod": close(report.eod),
        "equalized odds": close(report.equalized_odds_difference),
        "parity": close(report.demographic_parity_difference),
        "AUC": close(
            metrics.auc_report(truth, scores[:, 1], s, positive=task.class_names[1]).worst_auc.value
        ),
        "dep": close(metrics.dep(scores, s)),
        "hsic": close(metrics.hsic(scores, s)),
        "kcc": close(metrics.kcc(scores, s, random_state=0)),
    }
    for name in ("max_skew", "min_skew", "ndkl", "kl_at_k"):
        options = {} if name == "ndkl" else {"k": 40}
        figures[name] = close(getattr(metrics, name)(scores[:, 0], s, **options))
    relevant = np.asarray(truth) == task.class_names[1]
    figures["average precision"] = close(metrics.average_precision(scores[:, 1], relevant))
    figures["precision"] = close(metrics.precision_at_k(scores[:, 1], relevant, 40))
    return figures


# --- Real embeddings, where they are ---


def real_task(name: str, run: Run) -> Figures:
    """Automatic fits with labels, with labels and S, and without labels, of real embeddings."""
    from fairerclip import FairerCLIP
    from fairerclip.baselines import ZeroShot
    from fairerclip.data import load_task

    task = load_task(REAL_DATA / f"{name}.npz")
    place = task.sensitive_attribute()
    text, X = {"text": prompts(task)}, task.test.X
    y, truth, s = labels(task, task.train), labels(task, task.test), task.test.sensitive()
    figures = accuracies("zero-shot", truth, ZeroShot().fit(task.train.X, y, **text).predict(X), s)
    given = FairerCLIP(n_features=200, tau=0.5, gamma=1e-3, zero_shot=0.2, class_offsets=None, random_state=0)
    given.fit(task.train.X, y, **text, sensitive_text=place.text)
    figures |= accuracies("given", truth, given.predict(X), s) | answers("given", given, X)
    for name, known, how in (
        ("labels", y, {"sensitive_text": place.text}),
        ("labels and S", y, {"sensitive_features": task.train.sensitive()}),
        ("no labels", None, {"sensitive_text": place.text}),
    ):
        model = FairerCLIP(n_features=200, random_state=0).fit(task.train.X, known, **text, **how)
        figures |= accuracies(name, truth, model.predict(X), s) | chosen(name, model)
    return figures


def real_gallery(run: Run) -> Figures:
    """Skew of rankings of real faces before and after the mitigator, S from prompts."""
    from fairerclip.data import load_task
    from fairerclip.metrics import max_skew as measured

    task = load_task(REAL_DATA / "fairface.npz")
    figures: Figures = {}
    for name in ("sex", "race"):
        fitted = mitigator().fit(task.train.X, sensitive_text=task.sensitive_attribute(name).text)
        s = np.asarray(task.test.sensitive(name))
        for stage, rows in (("before", task.test.X), ("after", fitted.transform(task.test.X))):
            scores = rows @ task.text_target.T
            skews = [max_skew(scores[:, j], s, 1000) for j in range(scores.shape[1])]
            figures[f"{name} {stage}"] = close(np.mean(skews), least=2e-3)
            figures[f"{name} {stage}, largest"] = close(max(skews), least=6e-3)
            figures[f"{name} {stage}, by the package"] = close(np.mean(measured(scores, s, 1000)), least=2e-3)
    return figures


# --- All ---

CLASSIFIED = ("two-classes", "missing-labels", "many-classes", "scarce-labels")
SCENARIOS: dict[str, Callable[[Run], Figures]] = {
    **{f"{name}: models": partial(models, name) for name in CLASSIFIED},
    **{f"{name}: audit": partial(audited, name) for name in SIMULATED},
    "search": searched,
    "mitigator": mitigated,
    "metrics": measured,
}
REAL: dict[str, Callable[[Run], Figures]] = {
    **{
        name: partial(real_task, name)
        for name in ("celeba_blond", "celeba_cheekbones", "celeba_attractive", "pacs")
    },
    "fairface": real_gallery,
}


def differences(old: Figures, new: Figures) -> list[str]:
    """Say where figures differ by more than the tolerance that was kept with them."""
    lines = [
        f"{name}: {'not measured now' if name in old else 'not kept'}" for name in {**old} ^ {**new}.keys()
    ]
    for name in old.keys() & new.keys():
        before, now = old[name], new[name]
        if isinstance(before, str) or isinstance(now, str):
            same = before == now
        else:
            same = abs(before[0] - now[0]) <= before[1]
        if not same:
            lines.append(f"{name}: {now}, kept is {before}")
    return sorted(lines)


def text_differences(old: str, new: str) -> list[str]:
    """Say which lines of two texts differ in words, or in a number by more than two per cent and three last digits."""
    lines = []
    old_lines, new_lines = old.splitlines(), new.splitlines()
    for before, now in zip(old_lines, new_lines, strict=False):
        if not same_line(before, now):
            lines.append(f"{now!r}, kept is {before!r}")
    if len(old_lines) != len(new_lines):
        lines.append(f"{len(new_lines)} lines, kept are {len(old_lines)}")
    return lines


def same_line(old: str, new: str) -> bool:
    number = r"\d+(?:\.\d+)?"
    if re.sub(number, "#", old).split() != re.sub(number, "#", new).split():
        return False
    for before, now in zip(re.findall(number, old), re.findall(number, new), strict=True):
        digit = 10.0 ** -len(before.partition(".")[2])
        if abs(float(before) - float(now)) > max(0.02 * abs(float(before)), 3 * digit) + 1e-12:
            return False
    return True


def texts(run: Run) -> dict[str, str]:
    """The page of an audit in Markdown, and what its command prints, without times and dates."""
    from fairerclip.data import save_task

    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        save_task(simulated("two-classes"), Path("task.npz"))
        audit = ("audit", "task.npz", "--mitigate", "--permutations", 19, "-o", "results.json")
        _, printed, _ = run(*audit, "--verbose")
        run("report", "results.json", "-o", "page.md")
        page = Path("page.md").read_text(encoding="utf-8")

    def lasting(text: str) -> str:
        text = re.sub(r"sha256:[0-9a-f]{64}", "DIGEST", text)
        text = re.sub(r"\d{4}-\d\d-\d\d(T[\d:]+Z)?", "DATE", text)
        text = re.sub(
            r"\b(fairerclip|Python|python|numpy|scipy|scikit-learn) \d+\.\d+[\w.]*", r"\1 VERSION", text
        )
        text = re.sub(r"\b(in|took) \d+(\.\d+)? s\b", r"\1 TIME", text)
        return re.sub(r"(seconds to fit\D{1,60}?)\d+(\.\d+)?", r"\1TIME", text)

    return {"page.md": lasting(page), "terminal.txt": lasting(printed)}


# --- Saved models ----------------------------------------------------------------------------------------------------


def saved_models() -> dict[str, Any]:
    """One small fitted model of each kind that can be saved."""
    from fairerclip import FairerCLIP
    from fairerclip.baselines import LEACE

    X, text, s = questions()
    y = np.arange(len(X)) % 2
    both = {"text": dict(zip(("cat", "dog"), text, strict=True)), "sensitive_text": s}
    names = np.array(["cat", "dog"])[y]
    paper = FairerCLIP.preset("paper").set_params(n_features=12)
    return {
        "fairerclip": FairerCLIP(n_features=12, tau=0.5, random_state=0).fit(X, names, **both),
        "paper": paper.fit(X, names, **both),
        "mitigator": mitigator().fit(X, sensitive_features=np.array(["a", "b"])[(X[:, 0] > 0).astype(int)]),
        "baseline": LEACE("probe").fit(X, names, sensitive_features=X[:, 0] > 0, text=both["text"]),
    }


def questions() -> tuple[Any, Any, Any]:
    """Rows, class prompts and sensitive prompts of the saved models."""
    rng = np.random.default_rng(0)
    text, s, noise = rng.normal(size=(2, 6)), rng.normal(size=(2, 6)), rng.normal(size=(40, 6))
    X = text[np.arange(40) % 2] + noise
    return tuple(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, text, s))


def asked(model: Any) -> dict[str, Any]:
    """What a model answers for five rows."""
    X, text, _ = questions()
    if not hasattr(model, "predict"):
        return {"rows": model.transform(X[:5]).tolist(), "scores": model.scores(X[:5], text).tolist()}
    return {"predicted": model.predict(X[:5]).tolist(), "scores": model.scores(X[:5]).tolist()}


# --- As a program ----------------------------------------------------------------------------------------------------


WIDTH = 110
"""Columns of the tables that commands print."""


def call(*arguments: object) -> tuple[int, str, str]:
    """Call the command line in another process."""
    command = [sys.executable, "-c", "from fairerclip.cli.main import main; main()", *map(str, arguments)]
    surroundings = {**os.environ, "COLUMNS": str(WIDTH)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=surroundings, encoding="utf-8"
    )
    return done.returncode, done.stdout, done.stderr


def main() -> None:
    file = HERE / "figures.json"
    figures = json.loads(file.read_text()) if file.exists() else {}
    every = {**SCENARIOS, **(REAL if REAL_DATA.is_dir() else {})}
    names = sys.argv[1:] or [*every, "texts", "saved"]
    for name in (name for name in names if name in every):
        new = every[name](call)
        for line in differences(figures.get(name, {}), new):
            print(f"{name}: {line}")
        figures[name] = new
    rows = (
        f" {json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in figures[name].items())
        + "\n }"
        for name in figures
    )
    file.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    if "texts" in names:
        for name, text in texts(call).items():
            (HERE / name).write_text(text, encoding="utf-8")
    if "saved" in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            held = {}
            for name, model in saved_models().items():
                model.save(HERE / "saved" / name, overwrite=True)
                held[name] = asked(model)
        (HERE / "saved" / "answers.json").write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main()
