"""One method for rankings on one split: its candidates, the choice among them, and the figures of the chosen one.

All methods read the sensitive values of the training rows in the same way, from the prompts and the labelled validation
rows, and choose by the same rule on these: the smallest skew with enough of the order inside groups.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.memory import peak_memory
from fairerclip._util.types import F64
from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.baselines.shared_solutions import shared_solutions
from fairerclip.data import Split, Task, resplit
from fairerclip.data.coded_labels import UNKNOWN
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.embedding.mitigator import STRENGTH, EmbeddingMitigator
from fairerclip.embedding.strength_path import (
    LOW_SHARE,
    STRENGTHS,
    mean_over_queries,
    quantile_over_queries,
)
from fairerclip.errors import LabelError, ParameterError
from fairerclip.experiment import Experiment
from fairerclip.metrics import average_precision, correlation_inside_groups, kl_at_k, max_skew, ndkl
from fairerclip.metrics.retrieval.top_rows import default_cut
from fairerclip.study.fit_mitigator import queries_of, ranked_split
from fairerclip.study.method import Method, Parameters, make
from fairerclip.study.methods import EMBEDDING, MAX_STEPS, METHODS
from fairerclip.study.ranking_comparison import RankedAttribute, RankingRun
from fairerclip.study.run_method import count_parameters
from fairerclip.study.split_figures import CONFIDENCE
from fairerclip.study.unrelated_task import unrelated_figures

CANDIDATES = 10
"""Number of settings that a method for rankings may choose from, as many as `EmbeddingMitigator` has strengths."""
MITIGATOR = Method(
    EMBEDDING,
    "EmbeddingMitigator",
    "none",
    "EmbeddingMitigator",
    {},
    [{"strength": strength} for strength in sorted(STRENGTHS, key=lambda s: (s != STRENGTH, -s))],
    seeded=False,
    needs_text=False,
    needs_sensitive=True,
)


def ranking_methods() -> list[Method]:
    """Return the methods that rank by any query, in the order of tables; `EmbeddingMitigator` is the last."""
    ranked = [method for method in METHODS if not method.is_own and method.estimator.free_queries]
    without_head = [method for method in ranked if method.labels == "none"]
    return [*(replace(method, candidates=_some(method.candidates)) for method in without_head), MITIGATOR]


def _some(candidates: Sequence[Parameters]) -> Sequence[Parameters]:
    """Return the first setting and others that are evenly spread, `CANDIDATES` in all."""
    if len(candidates) <= CANDIDATES:
        return candidates
    places = np.linspace(1, len(candidates) - 1, CANDIDATES - 1).round().astype(int)
    return [candidates[0], *(candidates[place] for place in places)]


@dataclass(frozen=True, eq=False)
class RankingTask:
    """What every method is given: training rows with sensitive values that were read, and queries.

    Attributes
    ----------
    experiment : Experiment
        The task and its sensitive attributes.
    mitigator : EmbeddingMitigator
        Fitted with its defaults; its readers give the sensitive values of the training rows.
    queries : array of shape (m, p)
        Unit queries that are not about the sensitive attributes.
    names : tuple of str
        Their texts.
    """

    experiment: Experiment
    mitigator: EmbeddingMitigator
    queries: F64
    names: tuple[str, ...]

    @classmethod
    def of(cls, experiment: Experiment) -> RankingTask:
        """Read the sensitive values of the training rows, and leave out the queries that are about them."""
        X, given = experiment.mitigator_arguments("none")
        mitigator = EmbeddingMitigator().fit(X, **given)
        names, text = queries_of(experiment)
        kept = mitigator.query_meaning(text).mitigated
        if kept.sum() < 2:
            raise LabelError(
                f"{experiment.task.name}: {int(kept.sum())} of {len(kept)} queries are not about the sensitive "
                "attributes; give two others at least"
            )
        queries = unit_rows(np.asarray(text, dtype=np.float64)[kept])
        return cls(experiment, mitigator, queries, tuple(np.array(names)[kept].tolist()))

    @cached_property
    def read_values(self) -> dict[str, NDArray[Any]]:
        """Most probable value of each attribute of each training row (n,), by attribute."""
        rows = unit_rows(np.asarray(self.experiment.task.train.X, dtype=np.float64))
        read = {}
        for name, attribute in zip(self.experiment.sensitive, self.mitigator.fitted_.attributes, strict=True):
            if attribute.reader is None:
                raise AssertionError("values that are not given have a reader")
            read[name] = np.array(attribute.reader.values)[attribute.reader.logits(rows).argmax(axis=1)]
        return read

    def fit(self, method: Method, parameters: Parameters, seed: int) -> Baseline:
        """Return a fitted model that has `query_scores`."""
        if method.key == EMBEDDING:
            text = dict(zip(self.names, self.queries, strict=True))
            return MitigatedZeroShot.of(self.mitigator.at(**parameters), text)
        X = self.experiment.task.train.X
        model: Baseline = make(method, parameters, seed, MAX_STEPS)
        return model.fit(
            X,
            text=dict(zip(self.names, self.queries, strict=True)),
            sensitive_features=self.read_values,
            sensitive_text=_prompts(self.experiment),
            **self._sentences(method),
        )

    def _sentences(self, method: Method) -> dict[str, Any]:
        """Return the sentences of the task that a method uses, of classes those that are queries."""
        used = method.estimator.sentences
        given = {name: texts for name, texts in self.experiment.sentences().items() if name in used}
        if named := given.pop("counterfactual_text", None):
            given["counterfactual_text"] = {k: named[k] for k in self.names if k in named} or None
        return given


def _prompts(experiment: Experiment) -> dict[str, dict[str, Any]] | None:
    values = {name: experiment.task.sensitive[name] for name in experiment.sensitive}
    return {
        name: dict(zip(value.names, value.text, strict=True))
        for name, value in values.items()
        if value.text is not None
    } or None


@dataclass(frozen=True, eq=False)
class RankedRows:
    """Rows with known sensitive values and the original scores of the queries, by which rankings are judged."""

    X: NDArray[Any]
    groups: NDArray[Any]
    before: F64
    k: int

    @classmethod
    def of(cls, split: Split, groups: NDArray[Any], queries: F64, k: int | None = None) -> RankedRows:
        """Take the rows of a split whose group is known."""
        known = np.flatnonzero(groups != UNKNOWN)
        X = np.asarray(split.X)[known]
        before = np.asarray(unit_rows(X.astype(np.float64)) @ queries.T)
        return cls(X, np.asarray(groups)[known], before, default_cut(len(known)) if k is None else k)

    def figures(self, scores: F64) -> tuple[F64, F64]:
        """Return MaxSkew@k (q,) and the rank correlations inside groups (q, g)."""
        return np.asarray(max_skew(scores, self.groups, self.k)), correlation_inside_groups(
            self.before, scores, self.groups
        )


@dataclass(frozen=True)
class _NamedExperiment:
    """An experiment that is equal to others of the same name."""

    name: str | None
    experiment: Experiment = field(compare=False)


@lru_cache(maxsize=1)
def _ranking_task(named: _NamedExperiment, seed: int, resampled: bool) -> RankingTask:
    """Return what every method is given, on the resampled split with this seed or the splits of the task."""
    experiment = named.experiment
    if resampled:
        task = resplit(experiment.task, seed, sensitive=experiment.sensitive)
        experiment = replace(experiment, task=task)
    return RankingTask.of(experiment)


def run_ranking(
    method: Method,
    experiment: Experiment,
    seed: int,
    *,
    floor: float,
    k: int | None = None,
    resampled: bool = False,
    unrelated: Task | None = None,
    data: str | None = None,
) -> RankingRun:
    """Choose among the candidates of a method on the validation rows, and measure its rankings of the test rows.

    Parameters
    ----------
    method : Method
        One of `ranking_methods`.
    experiment : Experiment
        A task with labelled validation and test rows, prompts of the sensitive values, and queries.
    seed : int
        Seed of the method, and of the split if it is resampled.
    floor : float
        Smallest mean rank correlation inside groups of the choice.
    k : int, optional
        Number of results of a search. Default: 1000, or a quarter of fewer than 4000 rows.
    resampled : bool
        Exchange the rows of the splits first.
    unrelated : Task, optional
        Another task, whose zero-shot accuracy before and after the map is measured.
    data : str, optional
        Name of the experiment. Runs one after the other in a process share the readers of sensitive values if their
        seeds and names are equal.
    """
    before = peak_memory()
    named = _NamedExperiment(data, experiment)
    given = (_ranking_task if data is not None else _ranking_task.__wrapped__)(named, seed, resampled)
    split = ranked_split(given.experiment)
    if split is None or split == "train":
        raise LabelError(f"{experiment.task.name} has no test or validation rows with sensitive labels")
    _ = given.read_values  # the same for all methods, so that it is not a part of their times
    started = time.perf_counter()
    chosen, model, reached, candidates = _choose(method, given, seed, floor)
    seconds_in_all = time.perf_counter() - started
    seconds = _seconds_of_fit(method, given, chosen, seed)
    attributes = _attributes(model, given, split, k, with_intervals=not resampled)
    after = peak_memory()
    return RankingRun(
        seed=seed,
        split=split,
        attributes=attributes,
        **({} if unrelated is None else unrelated_figures(model, unrelated, with_intervals=not resampled)),
        chosen={**method.fixed, **chosen},
        candidates=candidates,
        reached_floor=reached,
        seconds=seconds,
        seconds_in_all=seconds_in_all,
        parameters=_size(model),
        peak_mb=None if before is None or after is None else max(0.0, after - before),
        notes=(),
    )


def _seconds_of_fit(method: Method, given: RankingTask, chosen: Parameters, seed: int) -> float:
    """Return the time of one more fit with the chosen setting; strengths of a mitigator share its fit."""
    started = time.perf_counter()
    if method.key == EMBEDDING:
        X, arguments = given.experiment.mitigator_arguments("none")
        EmbeddingMitigator(**chosen).fit(X, **arguments)
    else:
        given.fit(method, chosen, seed)
    return time.perf_counter() - started


def _size(model: Baseline) -> int:
    if isinstance(model, MitigatedZeroShot):
        fitted = model.mitigator_.fitted_.map
        return int(fitted.mean.size + fitted.right.size + fitted.left.size)
    return count_parameters(model)


def _choose(
    method: Method, given: RankingTask, seed: int, floor: float
) -> tuple[dict[str, Any], Baseline, bool, int]:
    """Return the best setting on the validation rows, its model, whether it keeps the order, and the number tried.

    It has the smallest mean MaxSkew of those with a mean rank correlation of at least ``floor``; if none has, it is the
    one with the largest. Without labelled validation rows it is the first, which is not known to keep the order.
    """
    experiment = given.experiment
    groups = experiment.groups(experiment.task.val) if "val" in experiment.task.splits else None
    if groups is None:
        first = dict(method.candidates[0])
        return first, given.fit(method, first, seed), False, 1
    judged = RankedRows.of(experiment.task.val, groups, given.queries)
    best: tuple[tuple[bool, float], dict[str, Any], Baseline] | None = None
    with shared_solutions():
        for parameters in method.candidates:
            model = given.fit(method, parameters, seed)
            skews, correlations = judged.figures(model.query_scores(judged.X, given.queries))
            # Scores that are equal inside every group keep nothing of the order.
            inside = float(np.nanmean(correlations)) if np.isfinite(correlations).any() else -1.0
            merit = (inside >= floor, -float(skews.mean()) if inside >= floor else inside)
            if best is None or merit > best[0]:
                best = merit, dict(parameters), model
    if best is None:
        raise ParameterError(f"{method.key} has no setting to try")
    return best[1], best[2], best[0][0], len(method.candidates)


def _attributes(
    model: Baseline, given: RankingTask, split: str, k: int | None, *, with_intervals: bool
) -> tuple[RankedAttribute, ...]:
    """Return the figures of the rankings of a split for each attribute with labels."""
    rows = given.experiment.task.split(split)
    return tuple(
        _measured(name, model, given, RankedRows.of(rows, column, given.queries, k), rows, with_intervals)
        for name, column in given.experiment.group_columns(rows).items()
        if column is not None
    )


def _measured(
    name: str, model: Baseline, given: RankingTask, judged: RankedRows, rows: Split, with_intervals: bool
) -> RankedAttribute:
    """Return the figures of the rankings over the groups of one attribute."""
    scores = model.query_scores(judged.X, given.queries)
    skews, correlations = judged.figures(scores)
    per_query = np.nanmean(correlations, axis=1)
    changes = [
        float(np.nanmean(after) - np.nanmean(before))
        for before, after in _precisions(model, given.experiment, rows, name)
    ]
    divergences = {
        "ndkl": np.asarray(ndkl(scores, judged.groups, k=judged.k)),
        "kl": np.asarray(kl_at_k(scores, judged.groups, judged.k)),
    }
    means = {"max_skew": skews, **divergences, "rank_correlation": per_query}
    means |= {"average_precision": np.array(changes)} if changes else {}
    return RankedAttribute(
        attribute=name,
        k=judged.k,
        rows=len(judged.groups),
        max_skew=float(skews.mean()),
        skews=tuple(skews.tolist()),
        ndkl=float(divergences["ndkl"].mean()),
        kl=float(divergences["kl"].mean()),
        rank_correlation=float(per_query.mean()),
        correlations=tuple(per_query.tolist()),
        low_correlation=float(np.nanquantile(correlations, LOW_SHARE)),
        average_precision=float(np.mean(changes)) if changes else None,
        known_queries=len(changes),
        **({"intervals": _intervals(means, correlations)} if with_intervals else {}),
    )


def _intervals(means: Mapping[str, F64], correlations: F64) -> dict[str, tuple[float, float]]:
    """Return the intervals over queries of the means of figures (q,), and of the percentile of correlations (q, g)."""
    ends = {name: mean_over_queries(values, CONFIDENCE)[1:] for name, values in means.items()}
    return {**ends, "low_correlation": quantile_over_queries(correlations, LOW_SHARE, CONFIDENCE)}


def _precisions(
    model: Baseline, experiment: Experiment, rows: Split, attribute: str
) -> Iterator[tuple[Any, Any]]:
    """Yield the average precision inside groups, before and after, of each query whose right answers are known."""
    groups = experiment.group_columns(rows)[attribute]
    if groups is None:
        return
    for text, codes in known_answers(experiment, rows):
        there = np.flatnonzero((groups != UNKNOWN) & (codes >= 0))
        X = np.asarray(rows.X)[there]
        before = np.asarray(unit_rows(X.astype(np.float64)) @ unit_rows(text).T)
        after = model.query_scores(X, text)
        for value in range(len(text)):
            relevant = codes[there] == value
            if relevant.any():
                inside = np.asarray(groups)[there]
                yield (
                    average_precision(before[:, value], relevant, inside),
                    average_precision(after[:, value], relevant, inside),
                )


def known_answers(experiment: Experiment, rows: Split) -> Iterator[tuple[F64, NDArray[np.int64]]]:
    """Yield prompts (v, p) and the code (n,) of the right one of each row: classes, and attributes not mitigated."""
    task = experiment.task
    if task.text_target is not None and rows.y is not None and (rows.y >= 0).any():
        yield np.asarray(task.text_target, dtype=np.float64), np.asarray(rows.y)
    for name, value in task.sensitive.items():
        if name not in experiment.sensitive and value.text is not None and name in rows.s:
            yield np.asarray(value.text, dtype=np.float64), np.asarray(rows.s[name])


def why_no_rankings(experiment: Experiment) -> str | None:
    """Return why rankings of a task cannot be compared; None if they can."""
    task: Task = experiment.task
    if "train" not in task.splits:
        return "the task has no training split"
    if not experiment.sensitive:
        return "the task has no sensitive attribute"
    unread: Mapping[str, Any] = {name: task.sensitive[name].text for name in experiment.sensitive}
    if any(text is None for text in unread.values()):
        return f"there are no prompts of {', '.join(name for name, text in unread.items() if text is None)}"
    return None
