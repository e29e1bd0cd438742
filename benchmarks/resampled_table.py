"""Markdown tables of the results of `resampled.py`: means over splits and paired differences with intervals.

    python benchmarks/resampled_table.py OUT TASK.npz [TASK.npz ...]

One table per task has every method. Each row of FairerCLIP is then compared with the best row of other methods that
use no more labels: the row that makes FairerCLIP minus the row smallest over the splits that both have. Intervals of
paired differences are Student's over the splits in [ ] and, in ( ), with Nadeau and Bengio's correction for splits
that overlap: the plain ones are valid for these rows, the corrected ones for new rows.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from resampled import BY_KEY, KINDS
from scipy.stats import t as student

from fairerclip.data import Task, load_task, resplit
from fairerclip.study.paired_methods import RANK

SEES = {"none": "–", "target": "Y", "all": "Y, S", "validation": "validation's Y, S"}
COMPARED = ("fairerclip", "search", "default", "published")
"""Kinds of rows of FairerCLIP that are compared with the best other row."""


@dataclass(frozen=True)
class Row:
    """A method's figures by split."""

    key: str
    title: str
    labels: str
    candidates: int
    figures: dict[int, dict[str, float]]
    published: dict[int, dict[str, float]]
    """Figures by split of the choice of the method's authors."""

    @property
    def is_own(self) -> bool:
        """Whether it is FairerCLIP."""
        return self.key not in BY_KEY or BY_KEY[self.key].is_own

    def mean(self, name: str) -> float:
        """Return the mean of a figure over splits."""
        return float(np.mean([f[name] for f in self.figures.values()]))


def figures_of(task: Task, split: int, hits: Any) -> dict[str, float]:
    """Return average, worst group and signed EOD (second group minus first, second class), in per cent."""
    test = resplit(task, split).test
    attribute = task.sensitive_attribute()
    counts = np.zeros((len(task.class_names), len(attribute.names)), dtype=int)
    np.add.at(counts, (test.y, test.s[attribute.name]), 1)
    accuracy = np.where(counts > 0, np.asarray(hits) / np.maximum(counts, 1), np.nan)
    return {
        "average": 100 * float(np.sum(hits) / counts.sum()),
        "worst": 100 * float(np.nanmin(accuracy)),
        "eod": 100 * float(accuracy[-1, -1] - accuracy[-1, 0]) if counts.shape == (2, 2) else np.nan,
    }


def collect(folder: Path, task: Task) -> list[Row]:
    """Read the results of all methods from the folder of a task, best worst group first."""
    rows: dict[str, Row] = {}
    for file in sorted(folder.glob("*-*.json")):
        split, key = int(file.name[:2]), file.stem[3:]
        result = json.loads(file.read_text())
        if key in BY_KEY:
            title, labels = BY_KEY[key].title, BY_KEY[key].labels
        else:
            kind, labels = key.split("-")
            title = KINDS[kind]
        row = rows.setdefault(key, Row(key, title, labels, result["candidates"], {}, {}))
        row.figures[split] = figures_of(task, split, result["cells"])
        if "as_published" in result:
            row.published[split] = figures_of(task, split, result["as_published"])
    return sorted(rows.values(), key=lambda row: -row.mean("worst"))


def mean_interval(values: Any, ratio: float | None = None) -> tuple[float, float, float]:
    """Return mean and Student's interval over splits; ``ratio`` of test to training rows corrects for overlap."""
    x = np.asarray(values, dtype=float)
    scale = 1 / len(x) + (0 if ratio is None else ratio)
    half = float(student.ppf(0.975, len(x) - 1) * x.std(ddof=1) * np.sqrt(scale)) if len(x) > 1 else np.nan
    return float(x.mean()), float(x.mean() - half), float(x.mean() + half)


def paired(own: Row, other: Row, name: str) -> list[float]:
    """Return the differences of a figure over the splits that both rows have."""
    return [
        own.figures[i][name] - other.figures[i][name] for i in sorted(set(own.figures) & set(other.figures))
    ]


def difference(own: Row, other: Row, name: str, ratio: float) -> str:
    """Format the paired difference of a figure, with both intervals if there are at least two splits."""
    d = paired(own, other, name)
    mean, low, high = mean_interval(d)
    if len(d) < 2:
        return f"{mean:+.1f}"
    _, wide_low, wide_high = mean_interval(d, ratio)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] ({wide_low:+.1f}, {wide_high:+.1f})"


def rivals(own: Row, rows: list[Row]) -> list[Row]:
    """Return other methods that use no more labels, the one with the best worst group against ``own`` first.

    A method that has fewer than half of the splits is left out: single splits vary too much.
    """
    others = [
        row
        for row in rows
        if not row.is_own
        and RANK[row.labels] <= RANK[own.labels]
        and 2 * len(set(row.figures) & set(own.figures)) >= len(own.figures)
    ]
    return sorted(others, key=lambda row: float(np.mean(paired(own, row, "worst"))))


def kind_of(row: Row) -> str:
    """Return the kind of a row of FairerCLIP: "fairerclip", "search", "default" …."""
    return row.key.rpartition("-")[0]


def print_task(task: Task, rows: list[Row]) -> None:
    """Print the table of one task, and its verdicts."""
    ratio = len(task.test) / len(task.train)
    own = next((row for row in rows if row.key == "fairerclip-target"), None)
    minus = "FairerCLIP, labels, minus this: worst group | average"
    print(f"\n## {task.name}\n")
    print(
        f"| method | labels | candidates | splits | average | worst group | EOD, signed | as published | {minus} |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        eod = "" if np.isnan(row.mean("eod")) else f"{row.mean('eod'):+.1f}"
        against = ["", ""]
        if own is not None and row is not own and set(own.figures) & set(row.figures):
            against = [difference(own, row, name, ratio) for name in ("worst", "average")]
        title = f"**{row.title}**" if row.is_own else row.title
        published = ""
        if row.published:
            means = (np.mean([f[name] for f in row.published.values()]) for name in ("average", "worst"))
            published = " / ".join(f"{mean:.1f}" for mean in means)
        print(
            f"| {title} | {SEES[row.labels]} | {row.candidates} | {len(row.figures)} | {row.mean('average'):.1f} | "
            f"{row.mean('worst'):.1f} | {eod} | {published} | {against[0]} | {against[1]} |"
        )
    print("\n| verdict | candidates | best other row | splits | worst group | average |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        if not row.is_own or kind_of(row) not in COMPARED:
            continue
        for best in rivals(row, rows)[:1]:
            differences = " | ".join(difference(row, best, name, ratio) for name in ("worst", "average"))
            n = len(paired(row, best, "worst"))
            print(
                f"| {row.title}; {SEES[row.labels]} | {row.candidates} | {best.title} | {n} | {differences} |"
            )


def print_verdicts(tables: dict[str, list[Row]]) -> None:
    """Print the differences to the best other row by task, and their mean."""
    print("\n## Against the best row\n")
    print(f"| FairerCLIP | {' | '.join(tables)} | mean |")
    print("|---" * (len(tables) + 2) + "|")
    keys = [row.key for row in next(iter(tables.values())) if row.is_own and kind_of(row) in COMPARED]
    for key in sorted(keys):
        cells, means = [], []
        for rows in tables.values():
            own = next((row for row in rows if row.key == key), None)
            others = [] if own is None else rivals(own, rows)
            if own is None or not others:
                cells.append("")
                continue
            best = others[0]
            mean, low, high = mean_interval(paired(own, best, "worst"))
            means.append(mean)
            cells.append(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}] {best.title}")
        print(f"| {key} | {' | '.join(cells)} | {np.mean(means):+.1f} |")


def main(folder: Path, files: list[str]) -> None:
    """Print every table."""
    tables = {}
    for file in files:
        task = load_task(file)
        tables[task.name] = collect(folder / Path(file).stem, task)
        print_task(task, tables[task.name])
    print_verdicts(tables)
    ranked(folder)


def ranked(folder: Path) -> None:
    """Print the table of rankings."""
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
        minus = "" if name.endswith(": FairerCLIP") else f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
        least = np.mean([run[name]["least_spearman"] for run in runs])
        average = np.mean([run[name]["mean_spearman"] for run in runs])
        share = np.mean(skew) / np.mean(before)
        print(f"| {name} | {np.mean(skew):.3f} | {share:.2f} | {minus} | {least:.2f} | {average:.2f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
