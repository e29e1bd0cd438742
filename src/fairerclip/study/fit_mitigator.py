"""An `EmbeddingMitigator` fitted on a task: where its sensitive values come from, its strength, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import check_interval
from fairerclip._util.numbers import setting
from fairerclip._util.types import Floats
from fairerclip.auditing.fit_answer import named_reports
from fairerclip.auditing.mitigator_facts import (
    mitigator_section,
    remaining_sentence,
    source_sentences,
    strength_text,
)
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.data.coded_labels import with_gaps
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.store_rows import rows_in_memory, sample_note
from fairerclip.data.stores import EmbeddingStore
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.embedding.strength_path import LOW_SHARE, StrengthPath, mean_over_queries
from fairerclip.errors import LabelError, ParameterError, PromptError
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics import GroupReport, correlation_inside_groups, max_skew
from fairerclip.metrics.retrieval.top_rows import default_cut
from fairerclip.study.methods import EMBEDDING

FLOOR = 0.9
"""Default of the smallest mean rank correlation inside groups of a chosen strength."""
CONFIDENCE = 0.95
Triple = tuple[float, float, float]
"""A mean over queries and the ends of its interval."""


@dataclass(frozen=True)
class AttributeRankings:
    """Figures of the rankings by all mitigated queries, over the groups of one attribute.

    Attributes
    ----------
    attribute : str
        Name of the attribute.
    k, n : int
        Number of results of a search, and of the rows with a known value.
    queries, left_alone : int
        Number of queries that are mitigated, and of those that are about S and are not.
    before, after, change : tuple of three floats
        Mean MaxSkew@k and its change, each with an interval over queries.
    rank_correlation : tuple of three floats
        Mean rank correlation with the original scores inside groups, with an interval over queries.
    low_correlation : float
        5th percentile of the rank correlations over queries and groups.
    """

    attribute: str
    k: int
    n: int
    queries: int
    left_alone: int
    before: Triple
    after: Triple
    change: Triple
    rank_correlation: Triple
    low_correlation: float


@dataclass(frozen=True, eq=False)
class TrainedMitigator:
    """A fitted mitigator, and how it was made."""

    mitigator: EmbeddingMitigator
    labels: str
    """Labels of the fit: "none" or "all"."""
    path: StrengthPath | None = None
    """Figures on the validation rows at every strength, if the strength was chosen."""
    floor: float | None = None
    """Smallest mean rank correlation of the choice."""

    @property
    def strength_text(self) -> str:
        """The strength, or the strength of each attribute, as text."""
        return strength_text(mitigator_section(self.mitigator))

    @property
    def sentences(self) -> list[str]:
        """How the sensitive values were read, how the strength was chosen, and the dependence that is left."""
        section, chosen = mitigator_section(self.mitigator), []
        if self.path is not None:
            chosen = [
                f"Strength {self.strength_text} was chosen on {self.path.rows} validation rows: the smallest MaxSkew@"
                f"{self.path.k} with a mean rank correlation inside groups of at least {setting(self.floor or 0.0)}."
            ]
        return [*source_sentences(section), *chosen, remaining_sentence(section)]


@dataclass(frozen=True, eq=False)
class MitigatorResult:
    """Figures of a fitted mitigator on one split, ready to be printed."""

    task: str
    simulated: bool
    trained: TrainedMitigator
    split: str | None
    """Split of the figures; None if no split has sensitive labels."""
    rankings: list[AttributeRankings]
    reports: dict[str, GroupReport]
    """Zero-shot classification of the embeddings before and after; empty without target labels or class prompts."""
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-ready copy."""
        mitigator, path = self.trained.mitigator, self.trained.path
        diagnostics: dict[str, Any] = mitigator.diagnostics_
        return {
            "task": self.task,
            "simulated": self.simulated,
            "key": EMBEDDING,
            "method": type(mitigator).__name__,
            "labels": self.trained.labels,
            "strength": dict(zip(diagnostics["remaining"], mitigator.fitted_.strengths, strict=True)),
            "parameters": mitigator.get_params(deep=False),
            "split": self.split,
            "rankings": [asdict(row) for row in self.rankings],
            "reports": {name: report.as_dict() for name, report in self.reports.items()},
            "path": None if path is None else [point.as_dict() for point in path.points],
            "floor": self.trained.floor,
            "notes": [*self.notes, *self.trained.sentences],
            "diagnostics": diagnostics,
        }


def mitigator_result(experiment: Experiment, trained: TrainedMitigator) -> MitigatorResult:
    """Measure a fitted mitigator on the test split, or else on val or train."""
    split, mitigator = ranked_split(experiment), trained.mitigator
    rankings = [] if split is None else measure_rankings(experiment, mitigator, split)
    reports: dict[str, GroupReport] = {}
    text = experiment.named_text
    if split is not None and text is not None and experiment.is_labelled(split):
        model = MitigatedZeroShot.of(mitigator, text)
        reports = named_reports(experiment.before_after(model, split), model.title)
    notes = ["No split has sensitive labels: nothing to evaluate on."] if split is None else []
    if reports and reports[model.title].worst.accuracy < reports["zero-shot"].worst.accuracy:
        notes.append(
            "Zero-shot predictions got worse for the worst group: where classes go with S, a map for every query "
            "takes a part of the classes, too. For predictions use --method fairerclip."
        )
    if split is not None and (note := sample_note(experiment.task.split(split))):
        notes.append(note)
    if split == "train":
        notes.append("The figures are of the rows of the fit, so they are too optimistic.")
    left = int((~mitigator.query_meaning(queries_of(experiment)[1]).mitigated).sum())
    if left:
        notes.append(
            f"Queries that are about S, and are therefore not mitigated: {left}; figures leave them out."
        )
    return MitigatorResult(
        experiment.task.name, experiment.task.simulated, trained, split, rankings, reports, notes
    )


def fit_mitigator(
    experiment: Experiment,
    mitigator: EmbeddingMitigator | None = None,
    *,
    labels: str | None = None,
    objective: str | None = None,
    floor: float | None = None,
    collection: EmbeddingStore | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TrainedMitigator:
    """Fit a mitigator on the training rows of a task or on a collection, for the chosen sensitive attributes.

    Parameters
    ----------
    experiment : Experiment
        The task and its sensitive attributes.
    mitigator : EmbeddingMitigator, optional
        Parameters; it is not changed. Default: those of `EmbeddingMitigator`.
    labels : {"none", "all"}, optional
        "none", the default, reads sensitive values from their prompts and from the labelled validation rows; "all"
        uses the labels of the training rows.
    objective : {"max_skew"}, optional
        Choose the strength on the validation rows: the smallest mean MaxSkew of the task's queries. Default: the
        strength of ``mitigator``.
    floor : float, optional
        Smallest mean rank correlation inside groups, for ``objective``. Default: 0.9.
    collection : EmbeddingStore, optional
        Collection to fit on instead of the training rows: that which will be searched. It needs no labels; its
        sensitive values are read from the prompts and from the labelled rows of the task, those of training and
        validation with labels "all", and of validation alone with "none". Default of ``labels`` then: "all".
    progress : callable, optional
        Called after each strength with (done, total).
    """
    if labels is None:
        labels = "none" if collection is None else "all"
    if objective not in (None, "max_skew"):
        raise ParameterError(f"objective must be 'max_skew' or None; got {objective!r}")
    floor = FLOOR if floor is None else floor
    check_interval("floor", floor, -1, 1, "[]")
    start = EmbeddingMitigator() if mitigator is None else mitigator
    fitted = EmbeddingMitigator(**start.get_params(deep=False))
    known = _validation_groups(experiment) if objective is not None else None
    X, given = experiment.mitigator_arguments(labels, collection)
    fitted.fit(X, **given)
    if known is None:
        return TrainedMitigator(fitted, labels)
    path = fitted.path(
        experiment.task.val.X, queries_of(experiment)[1], known, confidence=CONFIDENCE, progress=progress
    )
    return TrainedMitigator(_chosen(fitted, path, floor), labels, path, floor)


def _chosen(fitted: EmbeddingMitigator, path: StrengthPath, floor: float) -> EmbeddingMitigator:
    """Return a mitigator of the best strength of a path, with a record of the choice."""
    point = path.best(floor=floor)
    chosen = fitted.at(point.strength)
    # The record is saved with the mitigator, so that an audit can say how its strength was chosen.
    chosen.diagnostics_["tuning"] = {
        "objective": "max_skew",
        "rows": path.rows,
        "k": path.k,
        "floor": floor,
        "strength": point.strength,
        "max_skew": point.max_skew[0],
        "rank_correlation": point.rank_correlation[0],
    }
    return chosen


def queries_of(experiment: Experiment) -> tuple[tuple[str, ...], Floats]:
    """Return words and embeddings (m, p) of the task's free queries, or of its class prompts if it has none."""
    task = experiment.task
    if task.queries is not None:
        return tuple(task.queries.prompts), task.queries.text
    if experiment.text is None:
        raise PromptError(
            f"{task.name} has neither free queries (text_queries) nor class prompts (text_target) to rank by"
        )
    return experiment.classes, experiment.text


def _validation_groups(experiment: Experiment) -> NDArray[Any]:
    split = experiment.task.splits.get("val")
    if split is None or not experiment.has_groups(split):
        raise LabelError(
            f"{experiment.task.name} has no sensitive labels in its val split to choose a strength by: give the "
            "strength (--strength)"
        )
    groups = experiment.groups(split)
    if groups is None:
        raise AssertionError("the split has groups")
    return np.asarray(with_gaps(groups))


def ranked_split(experiment: Experiment) -> str | None:
    """Return the first of test, val and train that has sensitive labels; None if none has."""
    splits = experiment.task.splits
    return next(
        (name for name in ("test", "val", "train") if name in splits and experiment.has_groups(splits[name])),
        None,
    )


def measure_rankings(
    experiment: Experiment, mitigator: EmbeddingMitigator, split: str, k: int | None = None
) -> list[AttributeRankings]:
    """Measure the rankings by the task's queries before and after mitigation, for each attribute.

    Queries that are about S are left out, because they are not mitigated.
    """
    rows = rows_in_memory(experiment.task.split(split))
    _, text = queries_of(experiment)
    mitigated = mitigator.query_meaning(text).mitigated
    if not mitigated.any():
        return []
    queries = unit_rows(np.asarray(text, dtype=np.float64)[mitigated])
    before = np.asarray(unit_rows(np.asarray(rows.X, dtype=np.float64)) @ queries.T)
    after = mitigator.scores(rows.X, queries)
    columns = {name: c for name, c in experiment.group_columns(rows).items() if c is not None}
    left = int((~mitigated).sum())
    return [
        _rankings(name, before[known], after[known], column[known], k, left)
        for name, column in columns.items()
        if (known := column != UNKNOWN).any()
    ]


def _rankings(
    name: str, before: Any, after: Any, groups: Sequence[str], k: int | None, left_alone: int
) -> AttributeRankings:
    cut = default_cut(len(before)) if k is None else k
    skews = [np.asarray(max_skew(scores, groups, cut)) for scores in (before, after)]
    correlations = correlation_inside_groups(before, after, groups)
    return AttributeRankings(
        name,
        cut,
        len(before),
        before.shape[1],
        left_alone,
        mean_over_queries(skews[0], CONFIDENCE),
        mean_over_queries(skews[1], CONFIDENCE),
        mean_over_queries(skews[1] - skews[0], CONFIDENCE),
        mean_over_queries(np.nanmean(correlations, axis=1), CONFIDENCE),
        float(np.nanquantile(correlations, LOW_SHARE)),
    )
