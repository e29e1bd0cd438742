"""Groups and figures of an audit with their values before and after, matched into rows."""

from __future__ import annotations

from typing import NamedTuple

from fairerclip._util.numbers import Kind
from fairerclip.auditing.auc_results import AucSection
from fairerclip.auditing.group_results import (
    FigureChange,
    GroupAccuracyChange,
    GroupsSection,
    Measured,
    MeasuredChange,
    PlaneBaseline,
    PlanePoint,
    PlaneSection,
    RecallGap,
    Stage,
    present_stages,
)
from fairerclip.metrics.names import AUC, FIGURES, Figure

Change = FigureChange | GroupAccuracyChange | MeasuredChange | RecallGap
"""A difference with its interval."""


class GroupRow(NamedTuple):
    """A group (class and sensitive value): its accuracy at each stage, and its change."""

    name: str
    n: int
    small: bool
    stages: dict[Stage, Measured]
    change: GroupAccuracyChange | None


class FigureRow(NamedTuple):
    """A figure over all groups, such as the average: its value at each stage that has it, and its change."""

    name: str
    figure: Figure
    stages: dict[Stage, Measured]
    change: FigureChange | None


class AucRow(NamedTuple):
    """AUC of a group of ``n`` rows, or a figure over all groups: its value at each stage that has it."""

    name: str
    n: int | None
    kind: Kind
    stages: dict[Stage, Measured]


def group_rows(groups: GroupsSection | None) -> list[GroupRow]:
    """Return a row for each group that exists before or after; the name is that of before."""
    changes = {(change.y, change.s): change for change in (groups and groups.group_changes) or ()}
    rows: dict[tuple[str, str], GroupRow] = {}
    for stage, report in present_stages(groups).items():
        for group in report.groups:
            key = group.y, group.s
            row = rows.setdefault(key, GroupRow(group.name, group.n, group.small, {}, changes.get(key)))
            row.stages[stage] = Measured(value=group.accuracy, low=group.low, high=group.high)
    return list(rows.values())


def figure_rows(groups: GroupsSection | None) -> list[FigureRow]:
    """Return a row for each figure that exists before or after, with its change where that was measured."""
    changes = {change.figure: change for change in (groups and groups.changes) or ()}
    reports = present_stages(groups)
    rows = []
    for name, figure in FIGURES.items():
        estimates = {stage: report.estimate(name) for stage, report in reports.items()}
        known = {stage: estimate for stage, estimate in estimates.items() if estimate.value is not None}
        if reports and (known or name in changes):
            rows.append(FigureRow(name, figure, known, changes.get(name)))
    return rows


def auc_rows(section: AucSection | None) -> list[AucRow]:
    """Return a row for each group that has an AUC, then the figures over all groups."""
    stages = present_stages(section)
    rows: dict[str, AucRow] = {}
    for stage, report in stages.items():
        for group in report.groups:
            row = rows.setdefault(group.s, AucRow(group.name, group.n, AUC["overall"].kind, {}))
            row.stages[stage] = group.auc
    over_groups = []
    for name, figure in AUC.items():
        known = {stage: getattr(report, name) for stage, report in stages.items() if getattr(report, name)}
        over_groups += [AucRow(figure.label, None, figure.kind, known)] if known else []
    return [*rows.values(), *over_groups]


def worst_at(plane: PlaneSection, point: PlanePoint | PlaneBaseline) -> tuple[str | None, Measured]:
    """Return the name of the group with the lowest accuracy at a point, and that accuracy with its interval."""
    counted = list(zip(point.correct or (), plane.groups, plane.intervals, strict=False))
    shares = [(correct / group.n, i) for i, (correct, group, _) in enumerate(counted) if group.n]
    if not shares:
        return None, Measured(value=point.worst_group)
    correct, group, intervals = counted[min(shares)[1]]
    low, high = intervals[str(correct)]
    return group.name, Measured(value=point.worst_group, low=low, high=high)
