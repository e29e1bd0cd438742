"""Comparison of methods that rank a gallery by free queries, in parallel; runs are kept in files and taken up again."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip import __version__
from fairerclip._util.checks import check_count, check_interval, check_range
from fairerclip._util.types import F64
from fairerclip.auditing.display_names import base_name
from fairerclip.auditing.run import digest
from fairerclip.auditing.validation import refusing
from fairerclip.baselines.gradient.recipes import TRAINING
from fairerclip.data import Task
from fairerclip.embedding.strength_path import mean_over_queries
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.metrics import Estimate, able
from fairerclip.study.compare import GRADIENT_SPLITS, runs_by_method
from fairerclip.study.comparison import FailedRun, PairedChange, SeedMean, StudySoftware
from fairerclip.study.fit_mitigator import FLOOR, queries_of, ranked_split
from fairerclip.study.jobs import Job
from fairerclip.study.method import Method
from fairerclip.study.methods import ALIASES, EMBEDDING, MAX_STEPS, METHODS, chosen_methods
from fairerclip.study.ranking_comparison import (
    RankedAttribute,
    RankedTask,
    RankingComparison,
    RankingFigures,
    RankingRow,
    RankingRun,
    RankingSettings,
)
from fairerclip.study.ranking_page import answer_of_rankings
from fairerclip.study.ranking_run import (
    CANDIDATES,
    ranking_methods,
    run_ranking,
    why_no_rankings,
)
from fairerclip.study.split_figures import CONFIDENCE, half_width, levelled_mean, overlap_ratio
from fairerclip.study.unrelated_task import unrelated_rows

NUMBERS = ("max_skew", "ndkl", "kl", "rank_correlation", "low_correlation", "average_precision")
SKEWS = ("max_skew", "ndkl", "kl")
"""Figures from 0 to the logarithm of the number of rows; the others are from −1 to 1."""


@dataclass(frozen=True)
class RankingOptions:
    """Options of a comparison of rankings.

    Attributes
    ----------
    methods : tuple of str or None
        Keys of methods; None for all that rank by free queries.
    splits : int or None
        Number of resampled splits; None for the splits of the task.
    gradient_splits : int
        Number of resampled splits for methods that are trained by gradient.
    floor : float
        Smallest mean rank correlation inside groups of a chosen setting.
    k : int or None
        Number of results of a search; None for 1000, or a quarter of fewer than 4000 rows.
    jobs : int or None
        Number of processes; None for one per core.
    source : str
        The task as named on the command line.
    """

    methods: tuple[str, ...] | None = None
    splits: int | None = None
    gradient_splits: int = GRADIENT_SPLITS
    floor: float = FLOOR
    k: int | None = None
    jobs: int | None = None
    source: str = "TASK.npz"

    def draws(self, method: Method) -> range:
        """Return the seeds of the runs of a method."""
        if self.splits is None:
            return range(1)
        return range(min(self.splits, self.gradient_splits) if method.gradient else self.splits)


@refusing()
def compare_rankings(
    experiment: Experiment,
    options: RankingOptions | None = None,
    *,
    unrelated: Task | None = None,
    work: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RankingComparison:
    """Compare methods that change embeddings or queries by the rankings of the task's queries.

    Parameters
    ----------
    experiment : Experiment
        The task and its sensitive attributes, which have prompts. Queries are the free queries of the task, or its
        class prompts if it has none; those about the sensitive attributes are left out.
    options : RankingOptions, optional
        The defaults of `RankingOptions` if None.
    unrelated : Task, optional
        Another task of the same encoder, whose zero-shot accuracy should not change.
    work : Path, optional
        Folder with one file per run; runs with the same data and settings are read from there.
    progress : callable
        Called with (runs done, number of runs).
    """
    options = options or RankingOptions()
    _check(experiment, options, unrelated)
    methods = _chosen(options.methods)
    runs = _run(experiment, methods, options, unrelated, work, progress)
    rows = _rows(experiment, methods, runs, options)
    names, text = queries_of(experiment)
    task = RankedTask(
        name=experiment.task.name,
        file=base_name(options.source),
        simulated=experiment.task.simulated,
        digest=digest(experiment.task),
        sensitive=experiment.sensitive,
        rows={name: len(split) for name, split in experiment.task.splits.items()},
        queries=len(names),
        queries_digest=_digest(text),
        unrelated=None if unrelated is None else unrelated.name,
    )
    settings = RankingSettings(floor=options.floor, k=options.k, splits=options.splits, candidates=CANDIDATES)
    answer, recommendation = answer_of_rankings(rows, experiment.sensitive, options.floor)
    return RankingComparison(
        task=task,
        settings=settings,
        answer=answer,
        recommendation=recommendation,
        rows=rows,
        made=StudySoftware.now(),
    )


def _chosen(keys: Sequence[str] | None) -> list[Method]:
    """Return the methods of a comparison; raise for a method that does not rank, with those that do."""
    ranked = ranking_methods()
    others = {method.key for method in METHODS} - {method.key for method in ranked}
    for key in keys or ():
        if ALIASES.get(key, key) in others:
            raise ParameterError(
                f"{key} does not rank by free queries; these methods do: "
                f"{', '.join(method.key for method in ranked)}"
            )
    return chosen_methods(keys, ranked)


def _check(experiment: Experiment, options: RankingOptions, unrelated: Task | None) -> None:
    name = experiment.task.name
    reason = why_no_rankings(experiment)
    if reason is not None:
        raise LabelError(f"rankings of {name} cannot be compared: {reason}")
    split = ranked_split(experiment)
    if split is None or split == "train":
        raise LabelError(
            f"rankings of {name} cannot be compared: it has no test or validation rows with sensitive labels"
        )
    check_interval("floor", options.floor, -1, 1, "[]")
    if options.k is not None:
        check_count("k", options.k, len(experiment.task.splits[split]))
    if options.splits is not None:
        check_range("splits", options.splits)
        check_range("gradient_splits", options.gradient_splits)
        if "test" not in experiment.task.splits:
            raise LabelError(f"{name} has no test split to resample: leave out splits")
    if options.jobs is not None:
        check_range("jobs", options.jobs)
    if unrelated is not None and unrelated.width != experiment.task.width:
        raise ShapeError(
            f"{unrelated.name} is {unrelated.width} wide and {name} {experiment.task.width}; the unrelated task must "
            "be of the same encoder"
        )
    if unrelated is not None:
        unrelated_rows(unrelated)


def _run(
    experiment: Experiment,
    methods: Sequence[Method],
    options: RankingOptions,
    unrelated: Task | None,
    work: Path | None,
    progress: Callable[[int, int], None],
) -> dict[str, list[RankingRun | FailedRun]]:
    draws = {method.key: options.draws(method) for method in methods}
    data = {
        "digest": digest(experiment.task),
        "queries": _digest(queries_of(experiment)[1]),
        "sensitive": list(experiment.sensitive),
        "unrelated": None if unrelated is None else digest(unrelated),
    }
    jobs = [
        _job(experiment, method, seed, data, options, unrelated)
        for method in methods
        for seed in draws[method.key]
    ]
    return runs_by_method(jobs, draws, options, work, progress)


def _job(
    experiment: Experiment,
    method: Method,
    seed: int,
    data: dict[str, Any],
    options: RankingOptions,
    unrelated: Task | None,
) -> Job[RankingRun]:
    given = {"floor": options.floor, "k": options.k, "resampled": options.splits is not None}
    key = {
        "method": method.key,
        "seed": seed,
        "data": data,
        **given,
        **({"intervals": True} if options.splits is None else {}),
        **({"cap": MAX_STEPS, "training": TRAINING} if method.gradient else {}),
        "version": __version__,
        "fixed": dict(method.fixed),
        "candidates": [dict(candidate) for candidate in method.candidates],
    }
    arguments: dict[str, Any] = {"method": method, "experiment": experiment, "seed": seed, **given}
    arguments |= {"unrelated": unrelated, "data": json.dumps(data)}
    kind = "rankings-" if options.splits is None else "rankings-split-"
    return Job(
        method.title, key, f"{method.key}-{kind}{seed}.json", RankingRun, run_ranking, arguments, seed == 0
    )


def _digest(text: Any) -> str:
    array = np.ascontiguousarray(text, dtype=np.float64)
    return f"sha256:{hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()}"


# Figures --------------------------------------------------------------------------------------------


def _rows(
    experiment: Experiment,
    methods: Sequence[Method],
    runs: dict[str, list[RankingRun | FailedRun]],
    options: RankingOptions,
) -> tuple[RankingRow, ...]:
    good = {key: [run for run in found if isinstance(run, RankingRun)] for key, found in runs.items()}
    ratio = None if options.splits is None else overlap_ratio(experiment.task)
    return tuple(
        RankingRow(
            method=method.key,
            title=method.title,
            gradient=method.gradient,
            runs=tuple(runs[method.key]),
            errors=tuple(run.error for run in runs[method.key] if isinstance(run, FailedRun)),
            figures=_figures(method.key, good, ratio),
            unrelated=_unrelated(method.key, good, ratio),
            against=_against(good.get(EMBEDDING, []), good[method.key], ratio)
            if method.key != EMBEDDING
            else {},
            candidates=max((run.candidates for run in good[method.key]), default=None),
            peak_mb=max((run.peak_mb for run in good[method.key] if run.peak_mb is not None), default=None),
            **{
                name: _mean([getattr(run, name) for run in good[method.key]])
                for name in ("reached_floor", "seconds", "seconds_in_all", "parameters")
            },
        )
        for method in methods
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _figures(
    key: str, runs: Mapping[str, Sequence[RankingRun]], ratio: float | None
) -> tuple[RankingFigures, ...]:
    """Return the figures of a method by attribute, from the runs of all methods."""
    found = []
    for place, attribute in enumerate(runs[key][0].attributes if runs[key] else ()):
        most = math.log(max(2, attribute.rows))
        numbers: dict[str, Any] = {
            name: _over_runs(
                *(key, runs, partial(_number, place, name)),
                (0.0, most) if name in SKEWS else (-1.0, 1.0),
                ratio,
            )
            for name in NUMBERS
        }
        numbers["able"] = _over_runs(key, runs, partial(_able, place), (0.0, 1.0), ratio)
        if ratio is None:
            ends = _ends(runs[key][0], place)
            numbers = {name: _with_ends(figure, ends.get(name)) for name, figure in numbers.items()}
        found.append(RankingFigures(attribute=attribute.attribute, **numbers))
    return tuple(found)


def _number(place: int, name: str, run: RankingRun) -> float | None:
    """Return a figure of a run for the attribute at a place."""
    value: float | None = getattr(run.attributes[place], name)
    return value


def _able(place: int, run: RankingRun) -> float | None:
    """Return ABLE of a run for the attribute at a place; None without an accuracy on an unrelated task."""
    if run.unrelated_accuracy is None:
        return None
    skew = max(0.0, run.attributes[place].max_skew)  # rounding may make a proportional ranking negative
    value: float = able(run.unrelated_accuracy, skew).value
    return value


def _ends(run: RankingRun, place: int) -> dict[str, Sequence[float]]:
    """Return the ends of the intervals of a run over queries, by figure, for the attribute at a place."""
    attribute = run.attributes[place]
    ends: dict[str, Sequence[float]] = {**attribute.intervals}
    if run.unrelated_accuracy is not None:
        accuracy = Estimate(run.unrelated_accuracy, *run.intervals["unrelated_accuracy"])
        both = able(accuracy, Estimate(max(0.0, attribute.max_skew), *ends["max_skew"]))
        ends["able"] = (both.low, both.high)
    return ends


def _with_ends(figure: SeedMean | None, ends: Sequence[float] | None) -> SeedMean | None:
    """Return a figure of one run with the ends of its interval, where both are known."""
    if figure is None or ends is None:
        return figure
    low, high = ends
    return figure.model_copy(update={"low": low, "high": high})


def _unrelated(key: str, runs: Mapping[str, Sequence[RankingRun]], ratio: float | None) -> SeedMean | None:
    """Return the change of the accuracy on an unrelated task; the interval of one run is over its rows."""
    found = _over_runs(key, runs, lambda run: run.unrelated, (-1.0, 1.0), ratio)
    single = found is not None and ratio is None
    return _with_ends(found, runs[key][0].intervals["unrelated"]) if single else found


def _over_runs(
    key: str,
    runs: Mapping[str, Sequence[RankingRun]],
    figure: Callable[[RankingRun], float | None],
    bounds: tuple[float, float],
    ratio: float | None,
) -> SeedMean | None:
    """Return the mean over the runs of a method with an interval for new rows, inside the bounds of the figure.

    A method with fewer splits than others is corrected for how they do on these. Without resampled splits both
    ends are the value, until `_with_ends` sets them.
    """
    by_split = {
        method: {run.seed: value for run in found if (value := figure(run)) is not None}
        for method, found in runs.items()
    }
    own = by_split[key]
    if not own or len(own) < len(runs[key]):
        return None
    values = np.array(list(own.values()))
    mean = levelled_mean(own, by_split.values())
    half = 0.0 if ratio is None else half_width(values, ratio)
    sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    mean, low, high = (float(np.clip(end, *bounds)) for end in (mean, mean - half, mean + half))
    return SeedMean(mean=mean, sd=sd, low=low, high=high, seeds=len(values))


def _against(
    own: Sequence[RankingRun], runs: Sequence[RankingRun], ratio: float | None
) -> dict[str, PairedChange]:
    """Return the MaxSkew of the mitigator minus that of a method, paired by queries, or by splits."""
    changes: dict[str, PairedChange] = {}
    first = {run.seed: run for run in own}
    pairs = [(first[run.seed], run) for run in runs if run.seed in first]
    if not pairs:
        return changes
    for place, attribute in enumerate(pairs[0][0].attributes):
        both = [(mine.attributes[place], other.attributes[place]) for mine, other in pairs]
        changes[attribute.attribute] = _change(both, ratio)
    return changes


def _change(both: Sequence[tuple[RankedAttribute, RankedAttribute]], ratio: float | None) -> PairedChange:
    if ratio is None:
        mine, other = both[0]
        mean, low, high = mean_over_queries(np.array(mine.skews) - np.array(other.skews), CONFIDENCE)
        return PairedChange(difference=mean, low=low, high=high)
    values: F64 = np.array([mine.max_skew - other.max_skew for mine, other in both])
    mean, half = float(values.mean()), half_width(values, ratio)
    half = half if np.isfinite(half) else abs(mean) + 1.0  # nothing is known of the spread of one split
    return PairedChange(difference=mean, low=mean - half, high=mean + half)
