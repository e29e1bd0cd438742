"""The picture beside the answer of an audit: groups before and after, or the groups among the first results.

Positions are percentages of the width, so that the page can draw them at any size without a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from fairerclip._util.numbers import bare, percent, rounded
from fairerclip.auditing.group_results import GroupAccuracyChange, Measured, Stage
from fairerclip.auditing.query_results import FreeQuery, QueriesSection, QueryTop
from fairerclip.auditing.recommendation import queries_decide
from fairerclip.auditing.results import AuditResults, RankedStage, RetrievalQuery, RetrievalSection
from fairerclip.auditing.topical import favoured, most_skewed
from fairerclip.report.stage_rows import GroupRow, group_rows

MOST_ROWS = 8
"""Groups that the picture shows."""
MOST_ON_PHONE = 6
"""Groups that it shows on a phone."""
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
    """A group: its marks, its values as text, and whether it clearly became better or worse.

    A phone leaves out a group that is ``extra``.
    """

    name: str
    marks: list[PictureMark]
    values: str
    tone: Tone | None
    extra: bool


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
        split = results.settings.split
        title = f"Right answers in each group{f' of the {split} rows' if split else ''}"
        chosen = _selected(rows)
        shown = [_group(row, extra=row not in chosen[:MOST_ON_PHONE]) for row in sorted(chosen, key=_start)]
        return AnswerPicture("groups", title, shown, len(rows), _ticks(1.0))
    queries, prompts = results.queries, results.retrieval
    if queries is not None and queries_decide(queries, prompts):
        query = most_skewed([query for query in queries.queries if query.about is None])
        return None if query is None else _ranking(queries, query.prompt, query)
    prompt = None if prompts is None else most_skewed(prompts.queries)
    return None if prompts is None or prompt is None else _ranking(prompts, prompt.name, prompt)


def _place(share: float) -> str:
    return f"{rounded(min(max(share, 0.0), 1.0), 2, shift=2)}%"


def _ticks(most: float) -> list[tuple[str, str]]:
    """Return positions and texts of the marks of the axis, which ends at ``most``; every other mark has a text."""
    texts = [f"{rounded(most * i / 4, 0, shift=2)} %" if i % 2 == 0 else "" for i in range(5)]
    return [(_place(i / 4), text) for i, text in enumerate(texts)]


def _selected(rows: Sequence[GroupRow]) -> list[GroupRow]:
    """Return the groups to show, most important first: the lowest four, clear changes, and the next lowest."""

    def lowest(row: GroupRow) -> float:
        return min((mark.value for mark in row.stages.values() if mark.value is not None), default=1.0)

    def importance(row: GroupRow) -> tuple[bool, float]:
        clear = row.change is not None and row.change.clear
        return not clear, lowest(row)

    # The lowest groups are shown in any case, also where many others changed.
    first = sorted(rows, key=lowest)[: MOST_ROWS // 2]
    rest = sorted((row for row in rows if row not in first), key=importance)
    return [*first, *rest][:MOST_ROWS]


def _start(row: GroupRow) -> float:
    """Return the first known accuracy of a group."""
    return next((mark.value for mark in row.stages.values() if mark.value is not None), 1.0)


def _group(row: GroupRow, *, extra: bool) -> PictureRow:
    marks = [
        PictureMark(stage, percent(mark.value), _place(mark.value), _ends(mark))
        for stage, mark in row.stages.items()
        if mark.value is not None
    ]
    few = f"{row.name} ({row.n} {'row' if row.n == 1 else 'rows'})" if row.small else row.name
    values = _values([mark.value for mark in row.stages.values()])
    return PictureRow(few, marks, values, _tone(row.change), extra)


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


def _ranking(
    section: RetrievalSection | QueriesSection, name: str, query: RetrievalQuery | FreeQuery
) -> AnswerPicture:
    """Return the shares of the groups among all rows and among the first results of one prompt, largest group first.

    Of many groups those whose shares differ most are shown.
    """
    shares: dict[Part, list[float]] = {"all": list(section.shares)}
    stages: dict[Stage, QueryTop | RankedStage | None] = {"before": query.before, "after": query.after}
    for stage, top in stages.items():
        if top is not None:
            shares[stage] = [count / (section.k or 1) for count in top.counts]
    most = _axis_end(max(max(values, default=0.0) for values in shares.values()))

    def difference(g: int) -> float:
        return max(abs(values[g] - shares["all"][g]) for values in shares.values())

    groups = range(len(section.groups))
    chosen = [
        *dict.fromkeys([*_most_favoured(section, query), *sorted(groups, key=lambda g: -difference(g))])
    ]
    rows = []
    for g in sorted(chosen[:MOST_ROWS], key=lambda g: -shares["all"][g]):
        marks = [
            PictureMark(part, percent(values[g]), _place(values[g] / most), None)
            for part, values in shares.items()
        ]
        rows.append(PictureRow(section.groups[g], marks, "", None, g not in chosen[:MOST_ON_PHONE]))
    title = f"Groups among the first {section.k} results for “{name}”"
    return AnswerPicture("ranking", title, rows, len(groups), _ticks(most))


def _most_favoured(
    section: RetrievalSection | QueriesSection, query: RetrievalQuery | FreeQuery
) -> list[int]:
    """Return the group that the answer names, which is always shown."""
    if query.before is None or not section.groups:
        return []
    return [favoured(query.before.counts, section.k, section.shares)[0]]


def _axis_end(most: float) -> float:
    """Return the smallest of some round shares that is not below ``most``."""
    return next((end for end in (0.2, 0.4, 0.6, 0.8) if end >= most), 1.0)
