"""Tables of every method on every task from kept runs of `fairerclip compare --splits`, for docs/field.md.

    python benchmarks/field.py restore FIELD
    python benchmarks/field.py keep FIELD
    python benchmarks/field.py write FIELD

FIELD has a folder with the output of `fairerclip compare TASK --splits N -o FIELD/TASK` for each task, and of the same
command on the gallery in FIELD/gallery-ATTRIBUTE. Runs of single methods may be added at any time: methods may have
different numbers of splits, and those that have fewer are corrected by how hard these are for the others
(`fairerclip.study.split_figures`). ``keep`` packs the runs of FIELD into the results of this version, and ``restore``
unpacks those that FIELD lacks, so that the study goes on where it ended, on any machine, and the tables can be made
again without it. Runs hold figures of groups, and nothing of single rows. ``write`` writes all tables into
docs/benchmarks/field-tables.md, and into docs/field.md where FairerCLIP is not the best, how many splits there are, and
what every method needs, from the code, with the times of the runs; the sentences of that page are written by hand.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairerclip import __version__
from fairerclip.study.compare import GRADIENT_SPLITS
from fairerclip.study.comparison import MethodRun
from fairerclip.study.method import Method
from fairerclip.study.methods import FITTABLE, LEARNS_FROM, METHODS
from fairerclip.study.paired_methods import RANK
from fairerclip.study.ranking_run import ranking_methods
from fairerclip.study.split_figures import half_width, split_means

TASKS = {
    "celeba_blond": "blond hair × sex",
    "celeba_cheekbones": "cheekbones × sex",
    "celeba_attractive": "attractive × sex",
    "pacs": "objects × style (PACS)",
}
BY_KEY = {method.key: method for method in METHODS}
OWN = {"none": "none", "target": "target", "all": "all", "validation": "none", "prediction": "none"}
"""Labels of the row of FairerCLIP that a method is compared with."""
NEED_PROMPTS = ("tie", "tie-true")
"""Methods that need prompts of S besides S of the images."""
OWN_PAPER = "Dehdashtian et al. 2024, arXiv:2403.15593"
CONVEX = ("LinearProbe", "WiSE", "JTT", "AFR", "PPA", "DFR", "LEACE")
SOLUTIONS = {
    **{method.key: "convex" if method.home in CONVEX else "closed form" for method in METHODS},
    **{method.key: "gradient" for method in METHODS if method.gradient},
    "leace": "closed form",
    "prism": "descent on prompts",
    "sfid": "random forest",
    "spd": "convex, random forest",
}
"""How a method is solved."""
KEPT = Path(__file__).resolve().parent / "results" / __version__ / "field"
"""Archives of runs, one per folder of the study."""
DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = ("comparison.json", "rankings.json")
"""What `compare` writes beside the runs, and tables are made from."""
HEAD = (
    "Means over resampled splits with 95 % intervals for new rows; a method with fewer splits than others is",
    "corrected for how hard these are. *Fit* is one fit of the chosen setting on one core, and *choice* all fits of",
    "all settings, both the shortest over the splits; *memory* is what the fits took at most.",
)
AS_PUBLISHED = (
    "Published or default settings and no offsets, for methods that learn from no labels: no label was used but to",
    "measure. In the table above, settings and offsets were chosen on labelled validation rows. Worst group / average,",
    "per cent.",
)
GALLERY = (
    "The sensitive values that methods read from prompts are read once for all of them: *fit* of the mitigator, which",
    "reads its own, includes that, and *memory* of every method does. *KL* compares the top k with the gallery,",
    "and *ABLE* joins the accuracy on the unrelated task and MaxSkew ([glossary](../glossary.md)).",
)
Runs = dict[str, list[MethodRun]]


def keep(field: Path, kept: Path = KEPT) -> list[str]:
    """Pack the runs and results of every folder of a study; equal files give equal bytes."""
    kept.mkdir(parents=True, exist_ok=True)
    lines = []
    for folder in sorted(path.parent for path in field.glob("*/runs")):
        files = [*sorted(folder.glob("runs/*-split-*.json")), *(folder / name for name in RESULTS)]
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
            for file in filter(Path.exists, files):
                content = file.read_bytes()
                entry = tarfile.TarInfo(file.relative_to(folder).as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        target = kept / f"{folder.name}.tar.xz"
        target.write_bytes(packed.getvalue())
        lines.append(f"{target.name}: {len(files)} files, {target.stat().st_size:,} bytes")
    return lines


def restore(field: Path, kept: Path = KEPT) -> list[str]:
    """Unpack the kept runs and results that a folder lacks."""
    lines = []
    for packed in sorted(kept.glob("*.tar.xz")):
        folder = field / packed.name.removesuffix(".tar.xz")
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(packed) as archive:
            missing = [entry for entry in archive.getmembers() if not (folder / entry.name).exists()]
            archive.extractall(folder, missing, filter="data")
        lines.append(f"{folder}: {len(missing)} files restored")
    return lines


def read_runs(folder: Path) -> Runs:
    """Return the runs of a folder on resampled splits by method, in the order of tables."""
    runs: Runs = {method.key: [] for method in METHODS}
    for file in sorted(folder.glob("runs/*-split-*.json")):
        method, run = _read_run(file, file.stat().st_mtime_ns)
        if method in runs:
            runs[method].append(run)
    return {key: sorted(found, key=lambda run: run.seed) for key, found in runs.items() if found}


@cache
def _read_run(file: Path, _changed: int) -> tuple[str, MethodRun]:
    content = json.loads(file.read_text())
    return content["key"]["method"], MethodRun.model_validate(content["answer"])


def ratio_of(folder: Path) -> float:
    """Return the number of test rows divided by that of training rows."""
    rows = json.loads((folder / "comparison.json").read_text())["task"]["rows"]
    return float(rows["test"] / rows["train"])


def difference(first: Sequence[MethodRun], second: Sequence[MethodRun], ratio: float) -> str:
    """Return the mean difference of worst groups over the splits that both have, in points, with its interval."""
    one, other = (
        {run.seed: run.report.estimate("worst_group").value for run in runs} for runs in (first, second)
    )
    values = np.array([100 * (one[k] - other[k]) for k in sorted(set(one) & set(other))])
    if len(values) < 2:
        return ""
    return _signed(float(values.mean()), half_width(values, ratio))


def _signed(mean: float, half: float) -> str:
    """Return a difference with its interval, where the splits say anything about its spread."""
    if not np.isfinite(half):
        return f"{mean:+.1f} (equal on all splits)"
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def task_table(folder: Path) -> list[str]:
    """Return the lines of the table of one task, best worst group first.

    Times are the shortest over the splits: the machine may have had other work during the others.
    """
    runs, ratio = read_runs(folder), ratio_of(folder)
    figures = split_means(runs, ratio)
    lines = [
        "| method | learns from | splits | worst group | average | FairerCLIP minus this, worst group | fit, s | "
        "choice, s | memory, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    order = sorted(runs, key=lambda key: -figures[key].worst_group.mean)  # type: ignore[union-attr]
    for key in order:
        method, found, means = BY_KEY[key], runs[key], figures[key]
        own = runs.get(f"fairerclip-{OWN[method.labels]}", [])
        minus = "" if method.is_own else difference(own, found, ratio)
        title = f"**{method.title}**" if method.is_own else method.title
        memory = [run.peak_mb for run in found if run.peak_mb is not None]
        lines.append(
            f"| {title} | {LEARNS_FROM[method.labels]} | {len(found)} | {_shown(means.worst_group)} | "
            f"{_shown(means.average)} | {minus} | {min(run.seconds for run in found):.2f} | "
            f"{min(run.seconds_in_all for run in found):.1f} | {max(memory, default=0):.0f} |"
        )
    return lines


def _shown(figure: Any) -> str:
    return f"{100 * figure.mean:.1f} [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"


def published_runs(runs: Runs) -> Runs:
    """Return the runs of methods that learn from no labels, with published settings and no offsets."""
    return {
        key: [run.model_copy(update={"report": run.as_published.report}) for run in found if run.as_published]
        for key, found in runs.items()
        if BY_KEY[key].labels == "none" and all(run.as_published for run in found)
    }


def summary(field: Path, chosen: Callable[[Runs], Runs] = dict) -> list[str]:
    """Return the lines of the table of all tasks: worst group / average, and their means over tasks."""
    figures = {}
    for name in TASKS:
        if (field / name / "comparison.json").exists():
            figures[name] = split_means(chosen(read_runs(field / name)), ratio_of(field / name))
    lines = [f"| method | learns from | {' | '.join(TASKS[name] for name in figures)} | mean |"]
    lines.append("|---" * (len(figures) + 3) + "|")
    rows = []
    for key, method in BY_KEY.items():
        cells = [found.get(key) for found in figures.values()]
        if all(cells):
            pairs = [(100 * c.worst_group.mean, 100 * c.average.mean) for c in cells]  # type: ignore[union-attr]
            rows.append((method, pairs, np.mean(pairs, axis=0)))
    if not rows:
        return [*lines, ""]
    for method, pairs, mean in sorted(rows, key=lambda row: -row[2][0]):
        title = f"**{method.title}**" if method.is_own else method.title
        shown = " | ".join(f"{worst:.1f} / {average:.1f}" for worst, average in [*pairs, mean])
        lines.append(f"| {title} | {LEARNS_FROM[method.labels]} | {shown} |")
    return lines


class Against(NamedTuple):
    """Worst group of FairerCLIP minus that of a method with no more labels, in points, over their common splits."""

    title: str
    mean: float
    half: float
    splits: int

    @property
    def shown(self) -> str:
        """The difference with its interval."""
        return _signed(self.mean, self.half).replace("-", "−")

    @property
    def verdict(self) -> str:
        """What the interval says."""
        return "not told apart" if abs(self.mean) <= self.half else "worse" if self.mean < 0 else "better"


def against_others(folder: Path, chosen: Callable[[Runs], Runs] = dict) -> dict[str, list[Against]]:
    """Return FairerCLIP minus every other method of a task, by its labels; the best other method is the first.

    Methods have as many common splits as those by gradient at least, since few splits make a method the best by luck.
    """
    runs, ratio = chosen(read_runs(folder)), ratio_of(folder)
    compared = {}
    for labels in ("none", "target", "all"):
        own = {run.seed: run.report.worst.accuracy for run in runs.get(f"fairerclip-{labels}", [])}
        found = []
        for key, others in runs.items():
            if BY_KEY[key].is_own or RANK[BY_KEY[key].labels] > RANK[labels]:
                continue
            pairs = [100 * (own[run.seed] - run.report.worst.accuracy) for run in others if run.seed in own]
            if len(pairs) >= max(2, min(GRADIENT_SPLITS, len(own))):
                values = np.array(pairs)
                found.append(
                    Against(BY_KEY[key].title, float(values.mean()), half_width(values, ratio), len(pairs))
                )
        compared[labels] = sorted(found, key=lambda one: one.mean)
    return compared


def verdicts(folder: Path) -> list[str]:
    """Return a sentence for each kind of labels: FairerCLIP against the best other method."""
    return [
        f"- FairerCLIP with {LEARNS_FROM[labels]} minus the best other method, {best.title}: worst group "
        f"{best.shown} points, {best.verdict} ({best.splits} splits)."
        for labels, (best, *_) in (
            (labels, found) for labels, found in against_others(folder).items() if found
        )
    ]


def losses_table(field: Path) -> list[str]:
    """Return the table of tasks on which another method has a better worst group than FairerCLIP with its labels."""
    lines = [
        "| FairerCLIP with | task | best other method | FairerCLIP minus it | also ahead |",
        "|---|---|---|---|---|",
    ]
    ahead: list[Against] = []
    unlabelled = {title: against_others(field / name, published_runs) for name, title in TASKS.items()}
    compared = {title: against_others(field / name) for name, title in TASKS.items()}
    kinds = [("no label at all", "none", unlabelled), ("no labels in training", "none", compared)]
    kinds += [(LEARNS_FROM[labels], labels, compared) for labels in ("target", "all")]
    for used, labels, tasks in kinds:
        for title, found in tasks.items():
            better = [one for one in found[labels] if one.mean < 0]
            ahead += better
            if better:
                best, *others = better
                names = "; ".join(one.title for one in others) or "–"
                lines.append(f"| {used} | {title} | {best.title} | {best.shown} | {names} |")
    apart = sum(one.verdict == "worse" for one in ahead)
    count = f"{apart or 'None'} of these {len(ahead)} differences {'is' if apart < 2 else 'are'} told apart from zero."
    return [*lines, "", count]


def splits_finished(field: Path) -> list[str]:
    """Return how many splits the methods have, with and without gradient, on the tasks and the gallery."""
    lines = ["| | without gradient | by gradient |", "|---|---|---|"]
    for folder in [*(field / name for name in TASKS), *sorted(field.glob("gallery-*"))]:
        counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        for file in folder.glob("runs/*-split-*.json"):
            key = re.sub("(-rankings)?-split-.*", "", file.name)
            counts[key in BY_KEY and BY_KEY[key].gradient][key] += 1
        cells = [
            f"{len(found)} methods, {_span(found.values())} splits" if found else "–"
            for found in counts.values()
        ]
        title = TASKS.get(folder.name, f"gallery, {folder.name.removeprefix('gallery-')}")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def _span(counts: Iterable[int]) -> str:
    low, *_, high = sorted([*counts] * 2)
    return str(low) if low == high else f"{low} to {high}"


def gallery_table(folder: Path, attribute: str) -> list[str]:
    """Return the lines of the table of the gallery for one attribute, smallest skew first."""
    found = json.loads((folder / "rankings.json").read_text())
    lines = [
        f"{found['answer']} {found['recommendation']}",
        "",
        "| method | splits | MaxSkew | NDKL | KL | order inside groups | 5th percentile | average precision, points | "
        "unrelated task, points | ABLE | mitigator minus this, MaxSkew | fit, s | choice, s | memory, MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    runs = ranking_runs(folder)
    rows = [(row, figures) for row in found["rows"] for figures in row["figures"]]
    for row, f in sorted(rows, key=lambda entry: entry[1]["max_skew"]["mean"]):
        skew, precision, other = f["max_skew"], f["average_precision"], row["unrelated"]
        against = row["against"].get(attribute)
        minus = (
            f"{against['difference']:+.3f} [{against['low']:+.3f}, {against['high']:+.3f}]" if against else ""
        )
        title = f"**{row['title']}**" if row["method"] == "embedding" else row["title"]
        lines.append(
            f"| {title} | {skew['seeds']} | {_interval(skew)} | {_interval(f['ndkl'])} | {_interval(f['kl'])} | "
            f"{f['rank_correlation']['mean']:.3f} | {f['low_correlation']['mean']:.3f} | "
            f"{_points(precision)} | {_points(other)} | {_interval(f['able'])} | {minus} | "
            f"{_shortest(runs[row['method']], 'seconds'):.2f} | "
            f"{_shortest(runs[row['method']], 'seconds_in_all'):.1f} | {row['peak_mb'] or 0:.0f} |"
        )
    return lines


def ranking_runs(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of a gallery on resampled splits by method."""
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(folder.glob("runs/*-rankings-split-*.json")):
        content = json.loads(file.read_text())
        runs[content["key"]["method"]].append(content["answer"])
    return runs


def _shortest(runs: Iterable[Mapping[str, Any]], name: str) -> float:
    return float(min(run[name] for run in runs))


def _interval(figure: Any) -> str:
    return "" if figure is None else f"{figure['mean']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"


def _points(figure: Any) -> str:
    return "" if figure is None else f"{100 * figure['mean']:+.1f}"


def sides(method: Method) -> str:
    """Return what a method changes: images, prompts, both, or the classifier alone."""
    kind = method.estimator
    if method.is_own:
        return "images and prompts"
    changed = [
        name
        for name, does in (("images", kind.changes_embeddings), ("prompts", kind.changes_prompts))
        if does
    ]
    return " and ".join(changed) or "classifier"


def uses_sensitive(method: Method) -> bool:
    """Return whether a method uses sensitive values, of training or of validation rows."""
    return method.needs_sensitive or method.labels in ("all", "validation")


def sensitive_needs(method: Method) -> tuple[str, str]:
    """Return what a method needs: S of training images, and prompts of S."""
    if method.labels == "all":
        return "true", "–"
    if method.needs_known_rows:
        return "true, and of the rows to predict", "yes"
    if not method.needs_sensitive:
        return ("of validation rows" if method.labels == "validation" else "–"), "–"
    if not method.is_own and method.estimator.prompts_alone:
        return "–", "yes"
    return "true or read from prompts", "yes" if method.key in NEED_PROMPTS else "or S"


def fit_seconds(field: Path) -> dict[str, str]:
    """Return the shortest fit of every method on the first task, and of the mitigator on a gallery, where it ran."""
    shortest = {
        key: min(run.seconds for run in runs) for key, runs in read_runs(field / next(iter(TASKS))).items()
    }
    mitigator = [run for folder in field.glob("gallery-*") for run in ranking_runs(folder)["embedding"]]
    if mitigator:
        shortest["embedding"] = _shortest(mitigator, "seconds")
    return {key: f"{seconds:.2f}" for key, seconds in shortest.items()}


def methods_table(field: Path) -> list[str]:
    """Return the lines of the table of all methods, from the code, with the times of their fits in a study."""
    ranked = {method.key for method in ranking_methods()}
    cost = fit_seconds(field)
    lines = [
        "| method | `--method` | labels in training | S of training images | prompts of S | class prompts | classes | "
        "changes | solution | S | free queries | fit, s | paper |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        kind = method.estimator
        cells = [
            method.title,
            f"`{method.key}`"
            if method.is_own or method.key in FITTABLE
            else f"`{method.key}`, `compare` only",
            LEARNS_FROM[method.labels],
            *sensitive_needs(method),
            "yes" if method.needs_text else "if given" if method.is_own else "–",
            "any number",
            sides(method),
            SOLUTIONS[method.key],
            "categories, soft, numbers" if method.is_own else "categories" if uses_sensitive(method) else "–",
            "yes" if method.key in ranked else "–",
            cost.get(method.key, "–"),
            OWN_PAPER if method.is_own else kind.needs.paper,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    own = "no labels | true or read from prompts | or S | – | none | images | closed form | "
    own += "categories, soft, numbers | yes"
    paper = "[math](math.md#same-space)"
    lines.append(f"| EmbeddingMitigator | `embedding` | {own} | {cost.get('embedding', '–')} | {paper} |")
    return lines


def tables(field: Path) -> list[str]:
    """Return the page of all tables."""
    lines = ["# The field: all tables", ""]
    lines += [*HEAD, ""]
    lines += ["## All tasks", "", "Worst group / average, per cent.", "", *summary(field), ""]
    lines += ["## Without any label", "", *AS_PUBLISHED, "", *summary(field, published_runs), ""]
    for name, title in TASKS.items():
        if (field / name / "comparison.json").exists():
            lines += [f"## {title[0].upper()}{title[1:]}", "", *verdicts(field / name), ""]
            lines += [*task_table(field / name), ""]
    for folder in sorted(field.glob("gallery-*")):
        if (folder / "rankings.json").exists():
            attribute = folder.name.removeprefix("gallery-")
            lines += [f"## Gallery, {attribute}", "", *GALLERY, "", *gallery_table(folder, attribute), ""]
    return lines


def written(page: str, name: str, lines: list[str]) -> str:
    """Return a page with other lines between the marks of a part."""
    begin, end = f"<!-- {name}: written by benchmarks/field.py -->\n", f"\n<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"docs/field.md has no part {begin.strip()} … {end.strip()}")
    return before + begin + "\n".join(lines) + end + after


def pages(field: Path) -> dict[Path, str]:
    """Return the texts of the pages of the documentation, with the figures of a study."""
    page = (DOCS / "field.md").read_text(encoding="utf-8")
    for name, lines in (
        ("losses", losses_table(field)),
        ("methods", methods_table(field)),
        ("splits", splits_finished(field)),
    ):
        page = written(page, name, lines)
    return {
        DOCS / "field.md": page,
        DOCS / "benchmarks" / "field-tables.md": "\n".join(tables(field)) + "\n",
    }


def write(field: Path) -> list[str]:
    """Write the pages of the documentation."""
    for path, text in pages(field).items():
        path.write_text(text, encoding="utf-8")
    return [f"{path}: written" for path in pages(field)]


COMMANDS = {"keep": keep, "restore": restore, "write": write}

if __name__ == "__main__":
    print("\n".join(COMMANDS[sys.argv[1]](Path(sys.argv[2]))))
