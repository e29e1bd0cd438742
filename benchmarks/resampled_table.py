"""Tables of what `resampled.py` found: means over splits and paired differences with intervals, as Markdown.

    python benchmarks/resampled_table.py OUT TASK.npz [TASK.npz ...]

Intervals of paired differences are Student's over the splits and, in brackets, with Nadeau and Bengio's correction:
splits of one collection overlap, so the plain ones are about these rows and the corrected ones about new rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from fairerclip.compare.methods import METHODS
from fairerclip.data import Task, load_task, resplit
from fairerclip.metrics import shrunken_worst_group
from fairerclip.path import PRIOR
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import Objective, judge_scores
from fairerclip.tuning.offsets import learn_offsets

SEES = {"none": "no labels in training", "target": "Y in training", "all": "Y and true S in training"}
LABEL_FREE = ("Zero-shot", "Orth-Proj", "Orth-Cali", "LEACE, zero-shot head")
"""Methods that anybody can use, whatever labels there are: they stand in every table."""


class Splits:
    """Cells of one task's resampled splits, and figures of test hits."""

    def __init__(self, task: Task, splits: int) -> None:
        self.shape = (len(task.class_names), len(task.sensitive_attribute().names))
        self.judges, self.counts = [], []
        name = task.sensitive_attribute().name
        for split in range(splits):
            dealt = resplit(task, split)
            self.judges.append(Judge(dealt.val.y, dealt.val.s[name], *self.shape))
            self.counts.append(Judge(dealt.test.y, dealt.test.s[name], *self.shape))
        self.ratio = len(task.test) / len(task.train)

    def figures(self, split: int, hits: Any) -> dict[str, float]:
        """Average, worst group and signed EOD (second group minus first, second class) of test hits, in per cent."""
        counts = self.counts[split].counts
        accuracy = np.where(counts > 0, np.asarray(hits) / np.maximum(counts, 1), np.nan)
        return {
            "average": 100 * float(np.sum(hits) / counts.sum()),
            "worst": 100 * float(np.nanmin(accuracy)),
            "eod": 100 * float(accuracy[-1, -1] - accuracy[-1, 0]) if self.shape == (2, 2) else np.nan,
        }


def baseline(splits: Splits, split: int, file: Path, rule: str) -> dict[str, float]:
    """Figures of a baseline whose setting is chosen on validation rows, as `compare` does or with our offsets."""
    found = np.load(file)
    judge, test = splits.judges[split], splits.counts[split]
    scores = found["val"].astype(np.float64)
    offsets = np.zeros((len(scores), scores.shape[2]))
    if rule == "shrunken":
        hits = [judge.hits(s) for s in scores]
        values = [
            (shrunken_worst_group(h, judge.counts, prior=PRIOR), h.sum() / judge.counts.sum()) for h in hits
        ]
        best = max(range(len(values)), key=lambda i: values[i])
    else:
        objective = Objective("worst_group")
        values = judge_scores(judge, objective, scores)
        promising = np.argsort(values)[::-1][: 8 if scores.shape[2] > 2 else len(scores)]
        reached, learned = learn_offsets(judge, objective, scores[promising])
        best = int(promising[reached.argmax()])
        offsets[best] = learned[reached.argmax()]
    return splits.figures(split, test.hits(found["test"][best] + offsets[best]))


def mean_interval(values: Any, ratio: float | None = None) -> tuple[float, float, float]:
    """Mean and Student's interval over splits; with the ratio of test to training rows, corrected for overlap."""
    x = np.asarray(values, dtype=float)
    scale = 1 / len(x) + (0 if ratio is None else ratio)
    half = float(student.ppf(0.975, len(x) - 1) * x.std(ddof=1) * np.sqrt(scale)) if len(x) > 1 else np.nan
    return float(x.mean()), float(x.mean() - half), float(x.mean() + half)


def collect(
    folder: Path, task: Task
) -> tuple[Splits, dict[str, dict[int, dict[str, float]]], dict[str, str]]:
    """Method or rule → split → figures, and what each method sees."""
    files = sorted((folder / task.name).glob("*-*"))
    n = 1 + max(int(file.name[:2]) for file in files)
    splits = Splits(task, n)
    rows: dict[str, dict[int, dict[str, float]]] = {}
    sees: dict[str, str] = {}
    methods = {m.key: m for m in METHODS}
    for file in files:
        split, key = int(file.name[:2]), file.stem[3:]
        if file.suffix == ".npz":
            method = methods[key]
            rows.setdefault(method.title, {})[split] = baseline(splits, split, file, "shrunken")
            sees[method.title] = method.labels
            if key in ("zero-shot", "probe-group", "probe-group-true"):
                title = f"{method.title}, our offsets"
                rows.setdefault(title, {})[split] = baseline(splits, split, file, "offsets")
                sees[title] = method.labels
            continue
        found = json.loads(file.read_text())
        labels = key.split("-")[1]
        for rule, hits in found["cells"].items():
            if rule == "eod" and not key.startswith("eod"):
                continue
            title = f"FairerCLIP ({labels}), {rule}"
            rows.setdefault(title, {})[split] = splits.figures(split, hits)
            sees[title] = labels
        if "every" in found:
            every = [splits.figures(split, hits) for hits in found["every"]]
            best = max(every, key=lambda f: f["worst"])
            rows.setdefault(f"FairerCLIP ({labels}), best on test", {})[split] = best
            sees[f"FairerCLIP ({labels}), best on test"] = labels
    return splits, rows, sees


def difference(a: dict[int, Any], b: dict[int, Any], figure: str, ratio: float) -> str:
    """Paired difference of a figure over the splits that both have, with both intervals."""
    shared = sorted(set(a) & set(b))
    d = [a[i][figure] - b[i][figure] for i in shared]
    mean, low, high = mean_interval(d)
    _, wide_low, wide_high = mean_interval(d, ratio)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] ({wide_low:+.1f}, {wide_high:+.1f})"


def against_zero_shot(rows: dict[str, dict[int, Any]], ratio: float) -> None:
    """The worst group of our models, and of what is published, against zero-shot's and the published model's."""
    print(
        "\n| worst group | minus zero-shot | minus the published preset with the same labels |\n|---|---|---|"
    )
    for labels in SEES:
        for rule in ("tuned", "default"):
            own = rows.get(f"FairerCLIP ({labels}), {rule}")
            if own is None:
                continue
            published = rows.get(f"FairerCLIP ({labels}), published")
            cells = [difference(own, rows["Zero-shot"], "worst", ratio)]
            cells.append("" if published is None else difference(own, published, "worst", ratio))
            print(f"| FairerCLIP ({labels}), {rule} | " + " | ".join(cells) + " |")


def main(folder: Path, files: list[str]) -> None:
    """Print every table."""
    for file in files:
        task = load_task(file)
        splits, rows, sees = collect(folder, task)
        print(f"\n## {task.name}\n")
        for labels, words in SEES.items():
            own = rows.get(f"FairerCLIP ({labels}), tuned")
            if own is None:
                continue
            minus = "tuned FairerCLIP minus this: worst group | average"
            print(f"\n| {words} | splits | average | worst group | EOD, signed | {minus} |")
            print("|---|---|---|---|---|---|---|")
            titles = [title for title in rows if sees[title] == labels or title in LABEL_FREE]
            for title in sorted(titles, key=lambda t: -np.mean([f["worst"] for f in rows[t].values()])):
                found = rows[title]
                average, worst, eod = (
                    np.mean([f[name] for f in found.values()]) for name in ("average", "worst", "eod")
                )
                against = [difference(own, found, name, splits.ratio) for name in ("worst", "average")]
                if found is own:
                    against = ["", ""]
                shown = "" if np.isnan(eod) else f"{eod:+.1f}"
                print(
                    f"| {title} | {len(found)} | {average:.1f} | {worst:.1f} | {shown} | {against[0]} | {against[1]} |"
                )
        against_zero_shot(rows, splits.ratio)
    ranked(folder)


def ranked(folder: Path) -> None:
    """The table of rankings."""
    files = sorted((folder / "rank").glob("*.json"))
    if not files:
        return
    runs = [json.loads(file.read_text()) for file in files]
    print(f"\n## Rankings, {len(runs)} splits\n")
    print(
        "| method | MaxSkew@1000 | times zero-shot | FairerCLIP minus this | least Spearman in a group | mean |"
    )
    print("|---|---|---|---|---|---|")
    for name in runs[0]:
        attribute = name.split(":")[0]
        skew = [float(np.mean(run[name]["skews"])) for run in runs]
        before = [float(np.mean(run[f"{attribute}: zero-shot"]["skews"])) for run in runs]
        own = [float(np.mean(run[f"{attribute}: FairerCLIP"]["skews"])) for run in runs]
        mean, low, high = mean_interval(np.array(own) - np.array(skew))
        shown = "" if name.endswith(": FairerCLIP") else f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
        least = np.mean([run[name]["least_spearman"] for run in runs])
        kept = np.mean([run[name]["mean_spearman"] for run in runs])
        share = np.mean(skew) / np.mean(before)
        print(f"| {name} | {np.mean(skew):.3f} | {share:.2f} | {shown} | {least:.2f} | {kept:.2f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
