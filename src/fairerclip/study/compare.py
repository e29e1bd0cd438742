"""Methods × seeds in parallel, each run a file, so that a comparison can be stopped and taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairerclip import __version__
from fairerclip._util.checks import check_range
from fairerclip._util.files import check_folder, sole_use, write_folder
from fairerclip.auditing.run import digest, made
from fairerclip.auditing.sections.mitigation import base_name
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.errors import LabelError, OutputExistsError, ParameterError, ResultsFileError
from fairerclip.experiment import Experiment
from fairerclip.study.kept import read_kept, write_kept
from fairerclip.study.methods import CANDIDATES, SEARCH, Method, chosen_methods
from fairerclip.study.run_method import run_method
from fairerclip.study.workers import Answer, Call, run_calls

if TYPE_CHECKING:
    from fairerclip.report.document import Document

FORMAT, VERSION = "fairerclip-comparison", 2
FIGURES = ("average", "worst_group", "gap", "eod", "eod_signed")
MAX_BYTES = 64 << 20
FILES = ("comparison.html", "comparison.md", "comparison.json")
CHOSEN_BY = "expected worst group, with class offsets, on held-out halves of the validation rows"
"""What every method is chosen by; part of what a kept run depends on."""
RANK = {"none": 0, "validation": 0, "target": 1, "all": 2}
"""How much a method sees of the labels in training; all see those of the validation rows, to choose by them."""


@dataclass(frozen=True)
class CompareOptions:
    """What a comparison may be told.

    Attributes
    ----------
    methods : keys; None for all that the task allows.
    seeds : how many.
    jobs : processes at a time; None for one per core.
    max_steps : cap on the training of one setting of a method trained by gradient, in batches.
    source : how the command line names the task.
    """

    methods: tuple[str, ...] | None = None
    seeds: int = 3
    jobs: int | None = None
    max_steps: int = 20_000
    source: str = "TASK.npz"


def compare(
    experiment: Experiment,
    options: CompareOptions | None = None,
    *,
    work: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Compare methods on one task.

    Parameters
    ----------
    experiment : Experiment
    options : CompareOptions, optional
    work : Path, optional
        Folder for one file per method and seed; runs found there, of the same data and settings, are not repeated.
        It is ours alone while the comparison runs.
    progress : called with (runs done, runs in all).

    Returns
    -------
    dict
        JSON-ready: one row per method with its runs, means, spread and intervals; FairerCLIP against the best of the
        others; and why a method is missing.
    """
    options = options or CompareOptions()
    check_range("seeds", options.seeds)
    check_range("max_steps", options.max_steps)
    if options.jobs is not None:
        check_range("jobs", options.jobs)
    if experiment.evaluation_split() is None:
        raise LabelError(
            f"{experiment.task.name}: no row of any split has both a target and a sensitive label, so that there is "
            "nothing to compare by"
        )
    methods = chosen_methods(options.methods)
    left_out = {m.key: reason for m in methods if (reason := m.why_not(experiment)) is not None}
    wanted = [
        (method, seed)
        for method in methods
        if method.key not in left_out
        for seed in range(options.seeds if method.seeded else 1)
    ]
    if not wanted:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in left_out.items())
        raise ParameterError(f"the task allows none of these methods ({reasons})")
    data = data_of(experiment)
    with nullcontext() if work is None else sole_use(work):
        runs = _run_all(experiment, wanted, options, work, data, progress)
    compared = [method for method in methods if method.key not in left_out]
    by_method = {m.key: [runs[m.key, s] for one, s in wanted if one is m] for m in compared}
    verdicts = [v for m in compared if m.is_own and (v := verdict(experiment, m, compared, by_method))]
    rows = [_row(method, by_method[method.key]) for method in compared]
    return {
        "format": FORMAT,
        "version": VERSION,
        "task": {
            "name": experiment.task.name,
            "file": base_name(options.source),
            "simulated": experiment.task.simulated,
            **data,
            "rows": {name: len(split) for name, split in experiment.task.splits.items()},
        },
        "settings": {
            "seeds": options.seeds,
            "max_steps": options.max_steps,
            "candidates": CANDIDATES,
            "chosen_by": CHOSEN_BY,
        },
        "verdicts": verdicts,
        "rows": rows,
        "left_out": left_out,
        "made": {**made(), "cores": os.cpu_count()},
    }


def data_of(experiment: Experiment) -> dict[str, Any]:
    """What a comparison is about: the digest of the task, and which classes and attributes are looked at."""
    return {
        "digest": digest(experiment.task),
        "classes": list(experiment.classes),
        "sensitive": list(experiment.sensitive),
    }


def check_comparison(folder: Path, data: Mapping[str, Any], *, overwrite: bool) -> None:
    """Refuse a folder that could not be written, or, unless told to overwrite, that holds another comparison."""
    check_folder(folder, overwrite=True)
    there = [folder / name for name in FILES if os.path.lexists(folder / name)]
    if overwrite or not there:
        return
    why = "is not of this task"
    try:
        found = read_strict_json(folder / FILES[-1], ResultsFileError, limit=MAX_BYTES)
        task = found.get("task") if isinstance(found, dict) and found.get("format") == FORMAT else None
        if isinstance(task, dict) and {name: task.get(name) for name in data} == data:
            return
    except ResultsFileError:
        why = "is not one that can be read"
    raise OutputExistsError(f"{there[-1]} {why}; choose another folder or pass overwrite=True (--overwrite)")


def write_comparison(
    results: dict[str, Any], document: Document, folder: Path, *, overwrite: bool = False
) -> None:
    """Write the results as HTML, Markdown and JSON into a folder, in place of an earlier comparison of the same task.

    With ``overwrite``, in place of any. Other files there stay.
    """
    data = {name: results["task"][name] for name in ("digest", "classes", "sensitive")}
    check_comparison(folder, data, overwrite=overwrite)
    texts = (document.to_html(), document.to_markdown(), json.dumps(results, indent=1, allow_nan=False))
    forms = {name: text.encode() for name, text in zip(FILES, texts, strict=True)}
    write_folder(folder, forms, overwrite=True)


def _run_all(
    experiment: Experiment,
    wanted: Sequence[tuple[Method, int]],
    options: CompareOptions,
    work: Path | None,
    data: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> dict[tuple[str, int], dict[str, Any]]:
    runs: dict[tuple[str, int], dict[str, Any]] = {}
    for method, seed in wanted:
        found = None
        if work is not None:
            found = read_kept(_file(work, method, seed), _key(method, seed, data, options))
        if found is not None:
            runs[method.key, seed] = found
    progress(len(runs), len(wanted))
    todo = [(method, seed) for method, seed in wanted if (method.key, seed) not in runs]

    def keep(number: int, run: Answer) -> None:
        method, seed = todo[number]
        if "error" in run:
            run = {"seed": seed, **run}
        elif work is not None:
            write_kept(_file(work, method, seed), _key(method, seed, data, options), run)
        runs[method.key, seed] = run
        progress(len(runs), len(wanted))

    calls = [
        Call(
            run_method,
            {"method": m, "experiment": experiment, "seed": seed, "max_steps": options.max_steps},
        )
        for m, seed in todo
    ]
    # A process per run: its peak memory is its own, and a crash takes nothing else along.
    run_calls(calls, keep, processes=options.jobs, calls_per_process=1)
    return runs


def _key(method: Method, seed: int, data: Mapping[str, Any], options: CompareOptions) -> dict[str, Any]:
    """What a run depends on; ``data`` has the digest of the task, and which classes and attributes are looked at."""
    settings: dict[str, Any] = {
        "fixed": dict(method.fixed),
        "candidates": [dict(c) for c in method.candidates],
        "chosen_by": CHOSEN_BY,
    }
    if method.is_own:
        settings["search"] = dict(SEARCH)
    cap = options.max_steps if method.gradient else None
    return {
        "method": method.key,
        "seed": seed,
        "data": dict(data),
        "cap": cap,
        "version": __version__,
        **settings,
    }


def _file(work: Path, method: Method, seed: int) -> Path:
    return work / f"{method.key}-{seed}.json"


def verdict(
    experiment: Experiment,
    own: Method,
    methods: Sequence[Method],
    runs: Mapping[str, Sequence[dict[str, Any]]],
) -> dict[str, Any] | None:
    """FairerCLIP against the method with the best worst group among those that see no more labels.

    Differences are FairerCLIP minus the other, paired by rows: means over seeds of the differences and of the ends of
    their intervals. None where there is nothing to compare.
    """
    good = {key: [run for run in found if "error" not in run] for key, found in runs.items()}
    others = [m for m in methods if not m.is_own and RANK[m.labels] <= RANK[own.labels] and good[m.key]]
    if not others or not good[own.key]:
        return None
    best = max(others, key=lambda m: np.mean([run["report"]["worst"]["accuracy"] for run in good[m.key]]))
    names = np.array(experiment.classes)
    changes: dict[str, list[tuple[float, float, float]]] = {"worst_group": [], "average": []}
    for place, run in enumerate(good[own.key]):
        other = good[best.key][
            place % len(good[best.key])
        ]  # one run stands for all seeds of what no seed changes
        rows = experiment.task.split(run["split"])
        paired = experiment.paired_report(rows, names[other["predicted"]], names[run["predicted"]])
        for name, found in changes.items():
            change = paired.change(name)
            found.append((change.difference, change.low, change.high))
    means = {name: np.mean(found, axis=0).tolist() for name, found in changes.items()}
    return {
        "method": own.key,
        "title": own.title,
        "against": best.key,
        "against_title": best.title,
        "others": len(others),
        **{name: dict(zip(("difference", "low", "high"), mean, strict=True)) for name, mean in means.items()},
    }


def _row(method: Method, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    good = [run for run in runs if "error" not in run]
    row: dict[str, Any] = {
        "method": method.key,
        "title": method.title,
        "labels": method.labels,
        "gradient": method.gradient,
        # Without the predictions, of which the reports hold the counts.
        "runs": [{name: value for name, value in run.items() if name != "predicted"} for run in runs],
        "candidates": max((run["candidates"] for run in good), default=None),
        "errors": [run["error"] for run in runs if "error" in run],
        "notes": list(dict.fromkeys(note for run in good for note in run["notes"])),
        "strategies": list(dict.fromkeys(run["strategy"] for run in good if run["strategy"])),
        "figures": _figures([run["report"] for run in good]),
        "as_published": _figures([run["as_published"]["report"] for run in good if run["as_published"]]),
    }
    for name in ("seconds", "seconds_in_all", "parameters", "peak_mb"):
        values = [run[name] for run in good if run[name] is not None]
        row[name] = float(np.mean(values)) if values else None
    return row


def _figures(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    return {name: _figure(name, reports) for name in FIGURES} if reports else None


def _figure(name: str, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Mean and spread over seeds; and the mean of the seeds' intervals, which is about the rows."""
    values = [r["worst"]["accuracy"] if name == "worst_group" else r[name] for r in reports]
    if any(value is None for value in values):
        return None
    ends = [r["intervals"][name] for r in reports]
    return {
        "mean": float(np.mean(values)),
        "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        "low": float(np.mean([e[0] for e in ends])),
        "high": float(np.mean([e[1] for e in ends])),
        "seeds": len(values),
    }
