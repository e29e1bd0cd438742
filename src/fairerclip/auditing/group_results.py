"""Results of an audit by group, as frozen objects: accuracy, scores, a picture, and the plane of τ and τ_z."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from math import isclose
from typing import Annotated, Literal, Protocol, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo

from fairerclip.auditing.validation import (
    LONGEST,
    Boolean,
    Called,
    ConsistentPart,
    Count,
    High,
    Keyed,
    Many,
    NotBelowLow,
    Number,
    Pair,
    Part,
    Problems,
    Share,
    Some,
    Text,
    disagreement,
    same_length,
)

T_co = TypeVar("T_co", covariant=True)
Stage = Literal["before", "after"]
Command = Annotated[
    str, Field(max_length=LONGEST, pattern="^fairerclip fit "), Called("a fairerclip command")
]
Edges = Annotated[Many[Number], Field(min_length=2)]


class Measured(Part):
    """A figure with its interval."""

    value: Number | None = None
    low: Number | None = None
    high: High = None


class MeasuredChange(Part):
    """A figure before and after, and their difference with a paired interval."""

    before: Number | None = None
    after: Number | None = None
    difference: Number | None = None
    low: Number | None = None
    high: High = None


class Staged(Protocol[T_co]):
    """A part with a value before mitigation and a value after it."""

    @property
    def before(self) -> T_co | None: ...  # noqa: D102
    @property
    def after(self) -> T_co | None: ...  # noqa: D102


def present_stages(part: Staged[T_co] | None) -> dict[Stage, T_co]:
    """Return the values of a part by stage, without stages that are None."""
    stages: dict[Stage, T_co | None] = {} if part is None else {"before": part.before, "after": part.after}
    return {stage: value for stage, value in stages.items() if value is not None}


class GroupCell(Part):
    """The ``n`` rows with target ``y`` and sensitive value ``s``; ``name`` is for display."""

    name: Text
    y: Text
    s: Text
    n: Count


def _not_above_n(correct: int, info: ValidationInfo) -> int:
    n = info.data.get("n")
    if n is not None and correct > n:
        raise disagreement("", f"expected at most n, {n}; got {correct}")
    return correct


class GroupScore(GroupCell):
    """Accuracy in a group with its interval; ``small`` marks a group with few rows."""

    correct: Annotated[Count, AfterValidator(_not_above_n)]
    accuracy: Share
    low: Number
    high: Annotated[Number, NotBelowLow]
    small: Boolean


class RecallGap(Part):
    """Recall of class ``y`` for sensitive value ``s`` minus its recall for ``reference``."""

    y: Text
    s: Text
    reference: Text
    difference: Number | None = None
    low: Number | None = None
    high: High = None


class StageReport(ConsistentPart):
    """Accuracy by group at one stage.

    ``dropped`` is the number of rows without labels. ``intervals`` are by the name of a figure. ``confusion`` has
    counts (|S|, c, c) by sensitive value, class and predicted class. ``empty`` lists groups without rows, and
    ``positive`` is the class whose recall equal opportunity compares.
    """

    n: Count
    dropped: Count
    average: Share
    train_weighted_average: Share | None = None
    groups: Some[GroupScore]
    worst: GroupScore
    gap: Number
    eod: Number | None = None
    eod_signed: Number | None = None
    eod_mean: Number | None = None
    eod_mean_signed: Number | None = None
    equalized_odds_difference: Number | None = None
    demographic_parity_difference: Number | None = None
    intervals: Keyed[Pair]
    differences: Many[RecallGap]
    classes: Some[Text]
    sensitive: Some[Text]
    confusion: Many[Many[Many[Count]]]
    empty: Many[Text]
    positive: Text | None = None
    confidence: Share

    def problems(self) -> Problems:
        """Yield a problem if ``confusion`` is not (|S|, c, c)."""
        c = len(self.classes)
        yield from same_length("confusion", self.confusion, len(self.sensitive), "items")
        for i, table in enumerate(self.confusion):
            yield from same_length(f"confusion[{i}]", table, c, "items")
            for j, row in enumerate(table):
                yield from same_length(f"confusion[{i}][{j}]", row, c, "integers")

    def estimate(self, figure: str) -> Measured:
        """Return a figure with its interval if it has one; ``worst_group`` is the accuracy of the worst group."""
        value = self.worst.accuracy if figure == "worst_group" else getattr(self, figure)
        low, high = self.intervals.get(figure, (None, None))
        return Measured(value=value, low=low, high=high)


class FigureChange(Part):
    """A figure before and after mitigation, and the difference with a paired interval."""

    figure: Text
    label: Text
    better: Literal["higher", "lower"] | None = None
    before: Number | None = None
    after: Number | None = None
    difference: Number | None = None
    low: Number | None = None
    high: High = None


class GroupAccuracyChange(GroupCell):
    """Accuracy of a group before and after mitigation, and the difference with a paired interval.

    ``clear`` if the change is significant after correction for the number of groups.
    """

    small: Boolean
    before: Number | None = None
    after: Number | None = None
    difference: Number | None = None
    clear: Boolean
    low: Number | None = None
    high: High = None


class SeedFigure(Part):
    """Spread of a figure over seeds, with its standard error from sampling the rows for comparison."""

    figure: Text
    label: Text
    mean: Number | None = None
    sd: Number | None = None
    smallest: Number | None = None
    largest: Number | None = None
    sampling_se: Number | None = None


class SeedsSection(Part):
    """The chosen model fitted with ``n`` seeds."""

    n: Count
    figures: Many[SeedFigure]


class GroupsSection(Part):
    """Accuracy by group; changes are paired by rows, and None unless both stages are present."""

    before: StageReport | None = None
    after: StageReport | None = None
    changes: Many[FigureChange] | None = None
    group_changes: Many[GroupAccuracyChange] | None = None
    seeds: SeedsSection | None = None


def _edges_rise(name: str, edges: Sequence[float]) -> Problems:
    if any(b <= a for a, b in pairwise(edges)):
        yield name, "expected rising edges, got edges that do not rise"


class HistogramGroup(GroupCell):
    """Number of rows of a group in each bin."""

    counts: Many[Count]


class ScoreHistogram(ConsistentPart):
    """Histogram of scores by group; the predicted class changes at ``threshold``."""

    edges: Edges
    threshold: Number | None = None
    groups: Many[HistogramGroup]

    def problems(self) -> Problems:
        """Yield a problem for edges that do not rise and for counts that do not match the bins."""
        for i, group in enumerate(self.groups):
            yield from same_length(f"groups[{i}].counts", group.counts, len(self.edges) - 1, "integers")
        yield from _edges_rise("edges", self.edges)


class ScoresSection(Part):
    """Histograms of scores; ``label`` describes the score."""

    label: Text
    before: ScoreHistogram | None = None
    after: ScoreHistogram | None = None


class PictureStage(ConsistentPart):
    """Rows projected to two dimensions, counted in cells (x bin, y bin, group, number of rows)."""

    x_label: Text
    y_label: Text
    x_edges: Edges
    y_edges: Edges
    cells: Many[Annotated[tuple[Count, Count, Count, Count], Field(strict=False)]]
    note: Text | None = None

    def problems(self) -> Problems:
        """Yield a problem for edges that do not rise and for cells outside the grid."""
        yield from _edges_rise("x_edges", self.x_edges)
        yield from _edges_rise("y_edges", self.y_edges)
        width, height = len(self.x_edges) - 1, len(self.y_edges) - 1
        for c, (x, y, _, _) in enumerate(self.cells):
            if x >= width or y >= height:
                yield f"cells[{c}]", f"expected a cell of {width} × {height}, got {x}, {y}"


class PictureSection(ConsistentPart):
    """Rows of each group in two dimensions."""

    groups: Many[GroupCell]
    before: PictureStage | None = None
    after: PictureStage | None = None

    def problems(self) -> Problems:
        """Yield a problem for each cell whose group does not exist."""
        known = len(self.groups)
        for stage, picture in present_stages(self).items():
            for c, (_, _, group, _) in enumerate(picture.cells):
                if group >= known:
                    yield f"{stage}.cells[{c}][2]", f"expected one of {known} groups, got {group}"


class PlaneGroup(GroupCell):
    """A group of the plane; points have its number of correct rows."""

    small: Boolean


class PlanePoint(Part):
    """A fit at one τ, τ_z and criterion: correct rows by group and figures, or the reason why the fit failed."""

    tau: Share
    tau_z: Share
    criterion: Text
    lambda_eff: Number | None = None
    failure: Text | None = None
    correct: Many[Count] | None = None
    average: Share | None = None
    worst_group: Share | None = None
    shrunken_worst_group: Share | None = None
    gap: Number | None = None
    eod: Number | None = None


class PlaneBaseline(Part):
    """Zero-shot figures on the rows of the plane."""

    average: Share
    worst_group: Share
    gap: Number | None = None
    eod: Number | None = None
    correct: Many[Count]


class PlaneSection(ConsistentPart):
    """All combinations of τ, τ_z and criterion that were evaluated.

    ``points`` are in the order criteria × tau_zs × taus; ``chosen`` and ``front`` are indices into them.
    ``intervals`` maps, for each group, a number of correct rows to the interval of the accuracy. ``one_curve`` is true
    if all points lie on one curve.
    """

    split: Text
    taus: Some[Share]
    tau_zs: Some[Share]
    criteria: Some[Text]
    groups: Some[PlaneGroup]
    intervals: Many[Keyed[Pair]]
    points: Some[PlanePoint]
    chosen: Count
    chosen_by: Text
    front: Many[Count]
    one_curve: Boolean
    baseline: PlaneBaseline | None = None
    command: Command

    def problems(self) -> Problems:
        """Yield a problem for points off the grid, indices that are no points, and counts without group or interval."""
        yield from same_length("intervals", self.intervals, len(self.groups), "items")
        counted = [
            (f"points[{g}].correct", p.correct) for g, p in enumerate(self.points) if p.correct is not None
        ]
        if self.baseline is not None:
            counted.append(("baseline.correct", self.baseline.correct))
        for name, correct in counted:
            yield from same_length(name, correct, len(self.groups), "integers")
        yield from self._off_grid()
        for g, point in enumerate(self.points):
            if point.failure is None and None in (point.correct, point.average, point.worst_group):
                yield f"points[{g}]", "expected correct, average and worst_group where there is no failure"
        for name, index in [("chosen", self.chosen), *((f"front[{i}]", g) for i, g in enumerate(self.front))]:
            if index >= len(self.points) or self.points[index].failure is not None:
                yield (
                    name,
                    f"expected the index of one of {len(self.points)} points that has no failure, got {index}",
                )
        for name, correct in counted:
            yield from self._unknown_counts(name, correct)

    def _off_grid(self) -> Problems:
        size = len(self.criteria) * len(self.tau_zs) * len(self.taus)
        if len(self.points) != size:  # checked before iterating: a short file may describe a huge grid
            yield "points", f"expected {size}, one for each criterion, τ_z and τ; got {len(self.points)}"
        grid = product(self.criteria, self.tau_zs, self.taus)
        for g, (point, (criterion, tau_z, tau)) in enumerate(zip(self.points, grid, strict=True)):
            same = isclose(point.tau, tau, abs_tol=1e-9) and isclose(point.tau_z, tau_z, abs_tol=1e-9)
            if not same or point.criterion != criterion:
                yield f"points[{g}]", f"expected τ {tau}, τ_z {tau_z}, {criterion[:40]!a}; got another point"

    def _unknown_counts(self, name: str, correct: Sequence[int]) -> Problems:
        for i, (count, group, known) in enumerate(zip(correct, self.groups, self.intervals, strict=True)):
            if count > group.n:
                yield f"{name}[{i}]", f"expected at most n, {group.n}; got {count}"
            if str(count) not in known:
                yield (
                    f"intervals[{i}]",
                    f"expected an interval for {count}, the value of {name}[{i}]; got none",
                )
