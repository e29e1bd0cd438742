"""Rankings of the audited rows by the task's free queries, before and after an `EmbeddingMitigator`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Ints
from fairerclip.applying.apply import AnyModel
from fairerclip.auditing.display_names import attribute_name
from fairerclip.auditing.group_results import Measured, MeasuredChange
from fairerclip.auditing.query_results import FreeQuery, QueriesMean, QueriesSection, QueryTop
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.embedding.query_meaning import QueryMeaning, check_queries, meaning_of
from fairerclip.embedding.strength_path import LOW_SHARE, mean_over_queries
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics import average_precision, correlation_inside_groups, query_skews
from fairerclip.metrics.intervals import finite_or_none
from fairerclip.metrics.retrieval.query_skews import QuerySkews
from fairerclip.metrics.retrieval.top_rows import default_cut

MOST_QUERIES = 200
"""Most queries that are measured, for the time that intervals take; of more, evenly spaced ones are taken."""
REPLICATES = 100
"""Number of resampled galleries for the interval of the change of average precision."""


class _Ranked(NamedTuple):
    """Scores (n, q) of the rows with a known group, before and after, and the groups."""

    before: F64
    after: F64 | None
    groups: NDArray[np.str_]


def queries_section(
    experiment: Experiment,
    split_name: str,
    model: AnyModel | None,
    k: int | None,
    *,
    seed: int,
    confidence: float,
) -> QueriesSection | None:
    """Measure the rankings by free queries; None if the task has none, or the split no sensitive labels.

    Only a mitigator answers free queries: with another model, only the rankings before are measured.
    """
    queries, split = experiment.task.queries, experiment.task.split(split_name)
    groups = experiment.groups(split)
    if queries is None or not len(queries.prompts) or groups is None:
        return None
    known = groups != UNKNOWN
    if not known.any():
        return None
    total = len(queries.prompts)
    chosen = np.unique(np.linspace(0, total - 1, min(total, MOST_QUERIES)).round().astype(np.int64))
    mitigator = model.mitigator_ if isinstance(model, MitigatedZeroShot) else None
    Q = check_queries(queries.text[chosen], experiment.task.width)
    meaning = _meaning(experiment, mitigator, Q)
    X = np.asarray(unit_rows(np.asarray(split.X[known], dtype=np.float64)))
    after = None if mitigator is None else _mitigated(mitigator, X, Q, meaning)
    ranked = _Ranked(X @ Q.T, after, groups[known])
    cut = default_cut(len(X)) if k is None else min(k, len(X))
    found = query_skews(*ranked, cut, confidence=confidence, random_state=seed)
    inside = None if after is None else correlation_inside_groups(ranked.before, after, ranked.groups)
    prompts = [queries.prompts[place] for place in chosen]
    return QueriesSection(
        split=split_name,
        k=found.k,
        n=found.n,
        groups=tuple(map(str, found.groups)),
        shares=found.shares,
        total=total,
        queries=tuple(_query(i, text, found, inside, meaning) for i, text in enumerate(prompts)),
        mean=_mean(found, inside, meaning.mitigated, confidence),
        precision=_precision(experiment, split_name, model, seed=seed, confidence=confidence),
    )


def _meaning(experiment: Experiment, mitigator: EmbeddingMitigator | None, Q: F64) -> QueryMeaning:
    """Return which queries are about S: as the mitigator decides it, or by its default threshold."""
    if mitigator is not None:
        return mitigator.query_meaning(Q)
    texts = {name: experiment.task.sensitive[name].text for name in experiment.sensitive}
    prompts = {name: list(text[:, None]) for name, text in texts.items() if text is not None}
    return meaning_of(Q, prompts, EmbeddingMitigator().about)


def _mitigated(mitigator: EmbeddingMitigator, X: F64, Q: F64, meaning: QueryMeaning) -> F64:
    """Return the scores (n, q) as the mitigator gives them: those of queries about S stay the same."""
    Z = np.asarray(mitigator.transform(X))
    return np.asarray(np.where(meaning.mitigated, Z @ Q.T, X @ Q.T))


def _query(i: int, prompt: str, found: QuerySkews, inside: F64 | None, meaning: QueryMeaning) -> FreeQuery:
    about = meaning.about(i)
    share = float(meaning.shares[i].max(initial=0.0)) if meaning.attributes else None
    query = FreeQuery(
        prompt=prompt,
        before=_top(found.counts_before[i], found.before[i]),
        share=None if share is None else min(share, 1.0),
        about=None if about is None else attribute_name(about),
    )
    if found.after is None or found.counts_after is None or found.changes is None or found.clear is None:
        return query
    kept = None if found.kept is None else float(found.kept[i])
    return query.model_copy(
        update={
            "after": _top(found.counts_after[i], found.after[i]),
            "change": MeasuredChange.model_validate(found.changes[i].as_dict()),
            "clear": found.clear[i],
            "correlation": None if inside is None else finite_or_none(_mean_of_known(inside[i])),
            "kept": kept,
        }
    )


def _top(counts: F64, skew: Any) -> QueryTop:
    return QueryTop(counts=tuple(counts.tolist()), max_skew=Measured.model_validate(skew.as_dict()))


def _mean_of_known(values: F64) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _mean(
    found: QuerySkews, inside: F64 | None, mitigated: NDArray[np.bool_], confidence: float
) -> QueriesMean | None:
    """Return means over the queries that are not about S, with intervals over queries; None if there is none."""
    places: Ints = np.flatnonzero(mitigated)
    if not len(places):
        return None

    def mean(values: Any) -> Measured:
        value, low, high = mean_over_queries(np.asarray(values, dtype=np.float64), confidence)
        return Measured(value=value, low=low, high=high)

    before = np.array([found.before[i].value for i in places])
    if found.after is None or found.kept is None or inside is None:
        return QueriesMean(queries=len(places), before=mean(before))
    after = np.array([found.after[i].value for i in places])
    difference = mean(after - before)
    known = inside[places][np.isfinite(inside[places])]
    per_query = np.array([_mean_of_known(inside[i]) for i in places])
    per_query = per_query[np.isfinite(per_query)]
    return QueriesMean(
        queries=len(places),
        before=mean(before),
        after=mean(after),
        change=MeasuredChange(
            before=float(before.mean()),
            after=float(after.mean()),
            difference=difference.value,
            low=difference.low,
            high=difference.high,
        ),
        correlation=mean(per_query) if len(per_query) else None,
        low_correlation=float(np.quantile(known, LOW_SHARE)) if len(known) else None,
        kept=mean(found.kept[places]),
    )


def _precision(
    experiment: Experiment, split_name: str, model: AnyModel | None, *, seed: int, confidence: float
) -> MeasuredChange | None:
    """Measure the average precision of the class prompts inside groups; None without target labels or prompts.

    The interval of the change is from galleries resampled by rows, the same before and after.
    """
    if not experiment.is_labelled(split_name) or experiment.text is None:
        return None
    split = experiment.task.split(split_name)
    y, groups = experiment.labels(split)
    known = (y != UNKNOWN) & (groups != UNKNOWN)
    X, g = split.X[known], np.unique(groups[known], return_inverse=True)[1]
    relevant = y[known][:, None] == np.array(experiment.classes)
    tables = [experiment.cosines(X)]
    if isinstance(model, MitigatedZeroShot):
        tables.append(model.scores(X))

    def means(rows: Any) -> F64:
        values = [average_precision(table[rows], relevant[rows], g[rows]) for table in tables]
        return np.array([_mean_of_known(np.asarray(value)) for value in values])

    value = means(slice(None))
    if len(tables) == 1:
        return MeasuredChange(before=finite_or_none(value[0]))
    rng = np.random.default_rng(seed)
    drawn = np.array([np.diff(means(rng.integers(len(g), size=len(g))))[0] for _ in range(REPLICATES)])
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    return MeasuredChange(
        before=finite_or_none(value[0]),
        after=finite_or_none(value[1]),
        difference=finite_or_none(value[1] - value[0]),
        low=finite_or_none(low),
        high=finite_or_none(high),
    )
