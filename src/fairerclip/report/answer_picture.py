"""The picture beside the answer of an audit: groups before and after, or the groups among the first results.

Positions are percentages of the width, so that the page can draw them at any size without a script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fairerclip._util.numbers import bare, percent
from fairerclip.auditing.group_results import GroupAccuracyChange, Measured, Stage, present_stages
from fairerclip.auditing.query_results import QueriesSection
from fairerclip.auditing.results import AuditResults, RetrievalQuery, RetrievalSection
from fairerclip.report.stage_rows import GroupRow, group_rows

MOST_ROWS = 8
"""Groups that the picture shows; the page shows fewer of them on a phone."""
Tone = Literal["better", "worse", "unclear"]
Part = Stage | Literal["all"]
"""What a mark stands for: a stage, or the share of all rows."""


class PictureMark(NamedTuple):
    """A share as text and position, with the positions of its interval if it has one."""

    part: Part
    text: str
    at: str
    ends: tuple[str, str] | None


class PictureRow(NamedTuple):
    """A group: its marks, its values as text, and whether it clearly became better or worse."""

    name: str
    marks: list[PictureMark]
    values: str
    tone: Tone | None


class AnswerPicture(NamedTuple):
    """The rows of the picture; ``kind`` says whether they show accuracies or the first results of one prompt."""

    kind: Literal["groups", "ranking"]
    title: str
    rows: list[PictureRow]
    total: int
    ticks: list[tuple[str, str]]


def answer_picture(results: AuditResults) -> AnswerPicture | None:
    """Return the picture of the answer; None where nothing was measured."""
    rows = group_rows(results.groups)
    if rows:
        title = f"Right answers in each group of the {results.settings.split} rows"
        shown = [_group(row) for row in _selected(rows)]
        return AnswerPicture("groups", title, shown, len(rows), _ticks(1.0))
    queries, prompts = results.queries, results.retrieval
    if queries is not None and queries.mean is not None and (queries.mean.change or prompts is None):
        asked = [query for query in queries.queries if query.about is None]
        query = max(asked, key=lambda query: query.before.max_skew.value or 0.0)
        counts = {stage: top.counts for stage, top in present_stages(query).items()}
        return _ranking(queries, query.prompt, counts)
    if prompts is not None and prompts.queries:
        prompt = max(prompts.queries, key=_skew)
        return _ranking(prompts, prompt.name, {s: top.counts for s, top in present_stages(prompt).items()})
    return None


def _place(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.2f}%"


def _ticks(most: float) -> list[tuple[str, str]]:
    """Return positions and texts of the marks of the axis, which ends at ``most``."""
    return [(_place(i / 4), f"{round(100 * most * i / 4)} %") for i in range(5)]


def _selected(rows: Sequence[GroupRow]) -> list[GroupRow]:
    """Return the groups to show, lowest first: of many those that clearly changed and those that are lowest."""

    def lowest(row: GroupRow) -> float:
        return min((mark.value for mark in row.stages.values() if mark.value is not None), default=1.0)

    def importance(row: GroupRow) -> tuple[bool, float]:
        clear = row.change is not None and row.change.clear
        return not clear, lowest(row)

    # The lowest groups are shown in any case, also where many others changed.
    first = sorted(rows, key=lowest)[: MOST_ROWS // 2]
    rest = sorted((row for row in rows if row not in first), key=importance)
    shown = [*first, *rest][:MOST_ROWS]
    start = "before" if any("before" in row.stages for row in rows) else "after"
    return sorted(shown, key=lambda row: row.stages[start].value or 0.0 if start in row.stages else 1.0)


def _group(row: GroupRow) -> PictureRow:
    marks = [
        PictureMark(stage, percent(mark.value), _place(mark.value), _ends(mark))
        for stage, mark in row.stages.items()
        if mark.value is not None
    ]
    few = f"{row.name} ({row.n} rows)" if row.small else row.name
    return PictureRow(few, marks, _values([mark.value for mark in row.stages.values()]), _tone(row.change))


def _ends(mark: Measured) -> tuple[str, str] | None:
    return None if mark.low is None or mark.high is None else (_place(mark.low), _place(mark.high))


def _tone(change: GroupAccuracyChange | None) -> Tone | None:
    if change is None or change.difference is None:
        return None
    if not change.clear:
        return "unclear"
    return "better" if change.difference > 0 else "worse"


def _values(values: Sequence[float | None]) -> str:
    return " → ".join([*(bare(value) for value in values[:-1]), percent(values[-1])])


def _skew(query: RetrievalQuery) -> float:
    skew = None if query.before is None else query.before.max_skew
    return (skew.value or 0.0) if skew is not None else 0.0


def _ranking(
    section: RetrievalSection | QueriesSection, name: str, counts: Mapping[Stage, Sequence[float]]
) -> AnswerPicture:
    """Return the shares of the groups among all rows and among the first results of one prompt."""
    shares: dict[Part, list[float]] = {"all": list(section.shares)}
    shares |= {stage: [count / (section.k or 1) for count in top] for stage, top in counts.items()}
    most = _axis_end(max(max(values, default=0.0) for values in shares.values()))
    order = sorted(range(len(section.groups)), key=lambda g: -shares["all"][g])
    rows = []
    for g in order[:MOST_ROWS]:
        marks = [
            PictureMark(part, percent(values[g]), _place(values[g] / most), None)
            for part, values in shares.items()
        ]
        rows.append(PictureRow(section.groups[g], marks, "", None))
    title = f"Groups among the first {section.k} results for “{name}”"
    return AnswerPicture("ranking", title, rows, len(order), _ticks(most))


def _axis_end(most: float) -> float:
    """Return the smallest of some round shares that is not below ``most``."""
    return next((end for end in (0.2, 0.4, 0.6, 0.8) if end >= most), 1.0)
