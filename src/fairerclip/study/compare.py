"""Comparison of methods over seeds or resampled splits, in parallel.

Each run is kept in a file, so that stopped work can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from fairerclip import __version__
from fairerclip._util.checks import check_range
from fairerclip.auditing.display_names import base_name
from fairerclip.auditing.group_results import StageReport
from fairerclip.auditing.run import digest
from fairerclip.auditing.validation import refusing
from fairerclip.baselines.gradient.recipes import TRAINING
from fairerclip.errors import LabelError, ParameterError
from fairerclip.experiment import Experiment
from fairerclip.study.comparison import (
    ComparedData,
    ComparedTask,
    Comparison,
    ComparisonRow,
    ComparisonSettings,
    FailedRun,
    MethodRun,
    SeedMean,
    SeedMeans,
    StudySoftware,
)
from fairerclip.study.comparison_answer import answer_of
from fairerclip.study.jobs import Answer, Job, run_jobs
from fairerclip.study.method import Method
from fairerclip.study.method_settings import CANDIDATES, SEARCH
from fairerclip.study.methods import EMBEDDING, MAX_STEPS, chosen_methods
from fairerclip.study.paired_methods import PairedMethods
from fairerclip.study.run_method import run_method, run_split
from fairerclip.study.split_figures import PairedSplits, overlap_ratio, split_means
from fairerclip.study.workers import Failure

CHOSEN_BY = "expected worst group, with class offsets, on held-out halves of the validation rows"
"""Rule by which the model of every method is chosen; part of the key of a kept run."""
RUNS_PER_PROCESS = 5
"""Number of runs on resampled splits after which a process is replaced; to start one takes seconds."""
GRADIENT_SPLITS = 5
"""Number of resampled splits for methods that are trained by gradient, unless another is given."""


A = TypeVar("A", bound=Answer)


class Repetitions(Protocol):
    """What `runs_by_method` reads of the options of a comparison."""

    @property
    def jobs(self) -> int | None:
        """Number of processes; None for one per core."""

    @property
    def splits(self) -> int | None:
        """Number of resampled splits; None for the splits of the task."""


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison.

    Attributes
    ----------
    methods : tuple of str or None
        Keys of methods; None for all that the task allows.
    seeds : int
        Number of seeds, on the splits of the task.
    splits : int or None
        Number of resampled splits, 2 at least, in place of seeds: the rows of the task change places inside each class
        and group, and every method runs once on each split. None for the splits of the task.
    gradient_splits : int
        Number of resampled splits for methods that are trained by gradient.
    jobs : int or None
        Number of processes; None for one per core.
    max_steps : int
        Limit of the training of one setting of a method trained by gradient, in batches.
    source : str
        The task as named on the command line.
    """

    methods: tuple[str, ...] | None = None
    seeds: int = 3
    jobs: int | None = None
    max_steps: int = MAX_STEPS
    source: str = "TASK.npz"
    splits: int | None = None
    gradient_splits: int = GRADIENT_SPLITS

    def draws(self, method: Method) -> range:
        """Return the seeds, or the seeds of the splits, with which a method runs."""
        if self.splits is not None:
            return range(min(self.splits, self.gradient_splits) if method.gradient else self.splits)
        return range(self.seeds if method.seeded else 1)


@refusing()
def compare(
    experiment: Experiment,
    options: CompareOptions | None = None,
    *,
    work: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Compare methods on one task.

    Parameters
    ----------
    experiment : Experiment
        The task, its classes and sensitive attributes.
    options : CompareOptions, optional
        The defaults of `CompareOptions` if None.
    work : Path, optional
        Folder with one file per method and seed; runs with the same data and settings are read from there. No other
        process may use it while the comparison runs.
    progress : callable
        Called with (runs done, number of runs).

    Returns
    -------
    Comparison
        One row per method with its runs, means, spread and intervals; FairerCLIP against the best of the others; and
        the reason why a method is missing.
    """
    options = options or CompareOptions()
    _check(experiment, options)
    methods = chosen_methods(options.methods)
    left_out = {m.key: reason for m in methods if (reason := m.why_not(experiment)) is not None}
    compared = [method for method in methods if method.key not in left_out]
    if not compared:
        reasons = "; ".join(f"{key}: {reason}" for key, reason in left_out.items())
        raise ParameterError(f"the task allows none of these methods ({reasons})")
    data = data_of(experiment)
    runs = _run(experiment, compared, data, options, work, progress)
    rows = _rows(experiment, compared, runs, options)
    kind = PairedMethods if options.splits is None else PairedSplits
    paired = kind.of(experiment, compared, runs, {row.method: row.figures for row in rows})
    comparison = Comparison(
        task=ComparedTask(
            name=experiment.task.name,
            file=base_name(options.source),
            simulated=experiment.task.simulated,
            **dict(data),
            rows={name: len(split) for name, split in experiment.task.splits.items()},
        ),
        settings=_settings(options),
        best_for_labels=paired.best_for_labels(),
        against_zero_shot=paired.against_zero_shot,
        verdicts=tuple(v for m in compared if m.is_own and (v := paired.verdict(m))),
        rows=rows,
        left_out=left_out,
        made=StudySoftware.now(),
    )
    words = answer_of(comparison)
    return comparison.model_copy(update={"answer": words.sentence, "recommendation": words.recommendation})


def _settings(options: CompareOptions) -> ComparisonSettings:
    return ComparisonSettings(
        seeds=options.seeds,
        splits=options.splits,
        gradient_splits=None if options.splits is None else options.gradient_splits,
        max_steps=options.max_steps,
        candidates=CANDIDATES,
        chosen_by=CHOSEN_BY,
    )


def _check(experiment: Experiment, options: CompareOptions) -> None:
    """Raise for a method that predicts nothing, options out of range, and a task without rows to compare methods on."""
    if EMBEDDING in (options.methods or ()):
        raise ParameterError(
            f"{EMBEDDING} ranks by free queries and predicts no class: compare rankings (--rankings, or "
            "compare_rankings), or leave it out"
        )
    check_range("seeds", options.seeds)
    check_range("max_steps", options.max_steps)
    if options.splits is not None:
        check_range("splits", options.splits)
        check_range("gradient_splits", options.gradient_splits)
        if not {"train", "test"} <= set(experiment.task.splits):
            raise LabelError(
                f"{experiment.task.name} has no training or no test split to resample: leave out splits"
            )
    if options.jobs is not None:
        check_range("jobs", options.jobs)
    if experiment.evaluation_split() is None:
        raise LabelError(
            f"{experiment.task.name}: no row of any split has both a target and a sensitive label, so that there is "
            "nothing to compare by"
        )


def _run(
    experiment: Experiment,
    methods: Sequence[Method],
    data: ComparedData,
    options: CompareOptions,
    work: Path | None,
    progress: Callable[[int, int], None],
) -> dict[str, list[MethodRun | FailedRun]]:
    """Run every method with every seed, and return the runs by method."""
    draws = {method.key: options.draws(method) for method in methods}
    jobs = [_job(experiment, method, seed, data, options) for method in methods for seed in draws[method.key]]
    return runs_by_method(jobs, draws, options, work, progress)


def runs_by_method(
    jobs: Sequence[Job[A]],
    draws: Mapping[str, Sequence[int]],
    options: Repetitions,
    work: Path | None,
    progress: Callable[[int, int], None],
) -> dict[str, list[A | FailedRun]]:
    """Run the jobs of all methods, and return the runs by method; ``draws`` has the seeds of each, in order.

    All methods run with a seed before the next one: work that stops early has figures of all of them, and runs of one
    process share what depends on the split alone.
    """
    pairs = [(key, seed) for key, seeds in draws.items() for seed in seeds]
    order = sorted(range(len(pairs)), key=lambda place: pairs[place][1])
    # One process per run: its peak memory is that of the run alone, and a crash does not end other runs. The many runs
    # on resampled splits share a few; the first run of each method has a process of its own, and shows its memory.
    answers = run_jobs(
        [jobs[place] for place in order],
        work,
        processes=options.jobs,
        calls_per_process=1 if options.splits is None else RUNS_PER_PROCESS,
        progress=progress,
    )
    runs: dict[str, list[A | FailedRun]] = {key: [] for key in draws}
    for place, answer in zip(order, answers, strict=True):
        key, seed = pairs[place]
        run = FailedRun(seed=seed, error=answer.error) if isinstance(answer, Failure) else answer
        runs[key].append(run)
    return runs


def data_of(experiment: Experiment) -> ComparedData:
    """Return the digest of the task, and the chosen classes and attributes."""
    return ComparedData(
        digest=digest(experiment.task),
        classes=tuple(experiment.classes),
        sensitive=tuple(experiment.sensitive),
    )


def _job(
    experiment: Experiment, method: Method, seed: int, data: ComparedData, options: CompareOptions
) -> Job[MethodRun]:
    arguments = {"method": method, "experiment": experiment, "seed": seed, "max_steps": options.max_steps}
    call, kind = (run_method, "") if options.splits is None else (run_split, "split-")
    key, file = _key(method, seed, data, options), f"{method.key}-{kind}{seed}.json"
    return Job(method.title, key, file, MethodRun, call, arguments, fresh=seed == 0)


def _key(method: Method, seed: int, data: ComparedData, options: CompareOptions) -> dict[str, Any]:
    """Return everything that the result of a run depends on."""
    return {
        "method": method.key,
        "seed": seed,
        **({} if options.splits is None else {"resampled": True}),
        "data": data.model_dump(mode="json"),
        "cap": options.max_steps if method.gradient else None,
        **({"training": TRAINING} if method.gradient else {}),
        "version": __version__,
        "fixed": dict(method.fixed),
        "candidates": [dict(c) for c in method.candidates],
        "chosen_by": CHOSEN_BY,
        **({"search": dict(SEARCH)} if method.is_own else {}),
    }


def _rows(
    experiment: Experiment,
    methods: Sequence[Method],
    runs: Mapping[str, Sequence[MethodRun | FailedRun]],
    options: CompareOptions,
) -> tuple[ComparisonRow, ...]:
    """Return the rows of all methods, with their figures over seeds or splits."""
    rows = tuple(_row(method, runs[method.key]) for method in methods)
    if options.splits is None:
        return rows
    figures = split_means({row.method: row.good_runs for row in rows}, overlap_ratio(experiment.task))
    return tuple(
        row.model_copy(update={"figures": figures.get(row.method), "peak_mb": _most_memory(row)})
        for row in rows
    )


def _most_memory(row: ComparisonRow) -> float | None:
    """Return the memory of the run that took most: later runs of a process reuse memory, and seem to take less."""
    return max((run.peak_mb for run in row.good_runs if run.peak_mb is not None), default=None)


def _row(method: Method, runs: Sequence[MethodRun | FailedRun]) -> ComparisonRow:
    finished = [run for run in runs if isinstance(run, MethodRun)]

    def mean(name: str) -> float | None:
        values = [value for run in finished if (value := getattr(run, name)) is not None]
        return float(np.mean(values)) if values else None

    return ComparisonRow(
        method=method.key,
        title=method.title,
        labels=method.labels,
        gradient=method.gradient,
        runs=tuple(runs),
        candidates=max((run.candidates for run in finished), default=None),
        errors=tuple(run.error for run in runs if isinstance(run, FailedRun)),
        notes=tuple(dict.fromkeys(note for run in finished for note in run.notes)),
        strategies=tuple(dict.fromkeys(run.strategy for run in finished if run.strategy)),
        figures=_figures([run.report for run in finished]),
        as_published=_figures([run.as_published.report for run in finished if run.as_published is not None]),
        **{name: mean(name) for name in ("seconds", "seconds_in_all", "parameters", "peak_mb")},
    )


def _figures(reports: Sequence[StageReport]) -> SeedMeans | None:
    return SeedMeans(**{name: _mean(name, reports) for name in SeedMeans.model_fields}) if reports else None


def _mean(figure: str, reports: Sequence[StageReport]) -> SeedMean | None:
    estimates = [report.estimate(figure) for report in reports]
    values, lows, highs = ([getattr(e, name) for e in estimates] for name in ("value", "low", "high"))
    if any(value is None for value in values):
        return None
    return SeedMean(
        mean=float(np.mean(values)),
        sd=float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        low=float(np.mean(lows)),
        high=float(np.mean(highs)),
        seeds=len(values),
    )
