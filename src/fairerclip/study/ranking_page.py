"""A comparison of rankings in words and as a page with the answer first."""

from __future__ import annotations

from collections.abc import Sequence

from fairerclip._util.clean_text import shorten
from fairerclip._util.numbers import Kind, change, number, setting
from fairerclip.metrics.names import ABLE, DRIFT, RETRIEVAL
from fairerclip.report.answer_page import (
    BEST,
    NEAR,
    Alert,
    AnswerPage,
    BigFigure,
    Folded,
    RankedRow,
    RankedSection,
    RankedTable,
)
from fairerclip.report.front_chart import Tone
from fairerclip.report.glossary import GLOSSARY
from fairerclip.report.result_table import Cell, Content, ResultTable
from fairerclip.study.comparison import SeedMean
from fairerclip.study.comparison_answer import LONGEST_ERROR, named, splits_words
from fairerclip.study.methods import EMBEDDING
from fairerclip.study.paired_methods import ZERO_SHOT
from fairerclip.study.ranking_comparison import RankingComparison, RankingFigures, RankingRow, RankingRun

TITLE = "EmbeddingMitigator"
COLUMNS = (
    "#",
    "Method",
    RETRIEVAL["max_skew"].short,
    DRIFT["spearman_within"].short,
    "5th percentile",
    "Mitigator minus this",
)
MORE = (
    "Method",
    "Attribute",
    RETRIEVAL["ndkl"].short,
    RETRIEVAL["kl"].short,
    "Average precision, points",
    "Unrelated task, points",
    ABLE.short,
)
COSTS = ("Method", "fit, s", "choice, s", "memory, MB", "parameters", "candidates")


def keeps_order(row: RankingRow, attribute: str, floor: float) -> bool:
    """Whether a method keeps enough of the order inside the groups of an attribute on the measured rows."""
    found = row.of(attribute)
    return found is not None and found.rank_correlation.mean >= floor


def best_for(rows: Sequence[RankingRow], attribute: str, floor: float) -> RankingRow | None:
    """Return the method with the smallest skew of those that keep the order; None if none does."""
    kept = [row for row in rows if keeps_order(row, attribute, floor)]
    return min(kept, key=lambda row: _skew(row, attribute).mean, default=None)


def _skew(row: RankingRow, attribute: str) -> SeedMean:
    found = row.of(attribute)
    if found is None:
        raise AssertionError("a method without figures is not compared")
    return found.max_skew


def answer_of_rankings(
    rows: Sequence[RankingRow], attributes: Sequence[str], floor: float
) -> tuple[str, str]:
    """Return one sentence on the best method of each attribute, where the mitigator is not best first, and what to use.

    A method is compared if it keeps the order inside groups on the measured rows: a rank correlation of ``floor``.
    """
    lost, won = [], []
    clearly: set[str] = set()
    for attribute in attributes:
        best = best_for(rows, attribute, floor)
        if best is None:
            lost.append(
                f"for {attribute} no method keeps a rank correlation of {setting(floor)} inside groups"
            )
            continue
        original = next((row.of(attribute) for row in rows if row.method == ZERO_SHOT), None)
        before = f", {number(original.max_skew.mean)} before" if original else ""
        value = f"{RETRIEVAL['max_skew'].short} {number(_skew(best, attribute).mean)}{before}"
        kept = sum(keeps_order(row, attribute, floor) for row in rows)
        among = (
            f"of {kept} methods that keep the order inside groups"
            if kept > 1
            else "and alone keeps the order"
        )
        if best.method == EMBEDDING:
            won.append(f"{TITLE} has the smallest skew for {attribute} {among} ({value})")
            continue
        found = best.against.get(attribute)
        if found is None:
            lost.append(f"{named(best.title)} has the smallest skew for {attribute} {among} ({value})")
            continue
        worse = found.low > 0
        words = "is clearly worse than" if worse else "is not told apart from"
        difference = change(found.difference, found.low, found.high, "signed")
        lost.append(f"{TITLE} {words} {named(best.title)} for {attribute}, {difference} ({value})")
        if worse:
            clearly.add(best.method)
    sentence = "; ".join([*lost, *won])
    sentence = f"{sentence[0].upper()}{sentence[1:]}."
    if EMBEDDING not in [row.method for row in rows]:
        return sentence, f"Compare with {TITLE}, too: name {EMBEDDING} among the methods."
    if not any(best_for(rows, attribute, floor) for attribute in attributes):
        return sentence, "Use none of them without a look at the order of its results: no method keeps it."
    if not clearly:
        return sentence, f"Use {TITLE}: no method that keeps the order has a clearly smaller skew."
    titles = " or ".join(named(row.title) for row in rows if row.method in clearly)
    return sentence, f"Use {titles} where it is clearly better, and look at its figures beside the skew."


def rankings_page(comparison: RankingComparison) -> AnswerPage:
    """Make the page of a comparison of rankings."""
    task, resampled = comparison.task, comparison.settings.splits is not None
    where = splits_words(comparison.rows) if resampled else "the splits of the task"
    about = f"{task.file} · {task.queries} queries · {where} · {len(comparison.rows)} methods"
    simulated = "Simulated embeddings: the figures say nothing about any real model"
    return AnswerPage(
        title=f"{task.name}: rankings compared",
        source=f"{simulated} · {about}" if task.simulated else about,
        simulated=task.simulated,
        answer=comparison.answer,
        recommendation=comparison.recommendation,
        advice=_advice(comparison),
        figures=_big_figures(comparison),
        picture=None,
        alerts=[
            Alert("failed", f"{row.title}: {shorten(row.errors[0], LONGEST_ERROR)}")
            for row in comparison.rows
            if row.errors
        ],
        table=rankings_table(comparison),
        folded=_folded(comparison),
        terms=GLOSSARY,
    )


def _advice(comparison: RankingComparison) -> list[str]:
    """Return a warning if settings were chosen and measured on the same rows."""
    splits = {run.split for row in comparison.rows for run in row.runs if isinstance(run, RankingRun)}
    if "val" not in splits:
        return []
    return [
        "There are no test rows with sensitive labels: the figures are of the validation rows, by which settings were "
        "chosen, so they are too optimistic. Label some test rows."
    ]


def rankings_table(comparison: RankingComparison) -> RankedTable:
    """Make the table of all methods by attribute, smallest skew first."""
    floor = comparison.settings.floor
    sections = [
        RankedSection(f"Groups of {attribute}", attribute, _section(comparison, attribute))
        for attribute in comparison.task.sensitive
    ]
    over = "queries" if comparison.settings.splits is None else "resampled splits, for new rows"
    note = (
        f"Brackets: 95 % intervals over {over}. Order inside groups: rank correlation with the original scores. "
        f"Methods below {setting(floor)} change the order too much to be compared by skew, and have no number. Grey "
        "with ≈ is not told apart from the mitigator. The best was chosen by these figures, which are therefore "
        "optimistic for it."
    )
    return RankedTable(COLUMNS, sections, note, "Groups of")


def _section(comparison: RankingComparison, attribute: str) -> list[RankedRow]:
    floor = comparison.settings.floor
    best = best_for(comparison.rows, attribute, floor)
    kept = [row for row in comparison.rows if keeps_order(row, attribute, floor)]
    kept.sort(key=lambda row: _skew(row, attribute).mean)
    others = [row for row in comparison.rows if row not in kept]
    rows = []
    for place, row in enumerate([*kept, *others]):
        figures = row.of(attribute)
        if figures is None:
            rows.append(RankedRow([None, row.title, "failed", None, None, None], None))
            continue
        found = row.against.get(attribute)
        near = found is not None and found.low <= 0 <= found.high
        tone: Tone = "best" if row is best else "near" if near else "other"
        sign = BEST if row is best else NEAR if near else ""
        cells: list[Content] = [
            place + 1 if row in kept else None,
            row.title,
            _cell(figures.max_skew),
            _cell(figures.rank_correlation),
            Cell(figures.low_correlation.mean, "number"),
            Cell(found.difference, "signed", found.low, found.high) if found else None,
        ]
        rows.append(RankedRow(cells, tone, sign, "best" if row is best else ""))
    return rows


def _cell(figure: SeedMean) -> Cell:
    return Cell(figure.mean, "number", figure.low, figure.high)


def _big_figures(comparison: RankingComparison) -> list[BigFigure]:
    own = next((row for row in comparison.rows if row.method == EMBEDDING), None)
    base = next((row for row in comparison.rows if row.method == ZERO_SHOT), None)
    shown = []
    for attribute in comparison.task.sensitive[:2] if own else ():
        found: RankingFigures | None = own.of(attribute) if own else None
        before = base.of(attribute) if base else None
        if found:
            words = f"; before {number(before.max_skew.mean)}" if before else ""
            label = f"{RETRIEVAL['max_skew'].short} of {TITLE}, {attribute}"
            ends = f"[{number(found.max_skew.low)}, {number(found.max_skew.high)}]"
            shown.append(BigFigure(label, number(found.max_skew.mean), f"{ends}{words}"))
    return shown


def _folded(comparison: RankingComparison) -> list[Folded]:
    done = [row for row in comparison.rows if row.figures]
    more = [_more(row, figures) for row in done for figures in row.figures]
    costs = [
        [
            row.title,
            Cell(row.seconds, "seconds"),
            Cell(row.seconds_in_all, "tenths"),
            Cell(row.peak_mb, "whole"),
            Cell(row.parameters, "whole"),
            row.candidates,
        ]
        for row in done
    ]
    settings, made = comparison.settings, comparison.made.model_dump(by_alias=True)
    return [
        Folded(
            "More figures", _more_words(comparison), [ResultTable("More figures", MORE, more)] if more else []
        ),
        Folded(
            "Time, memory and size",
            ["Times are on one core, while other runs use the other cores."],
            [ResultTable("Time, memory and size", COSTS, costs)] if costs else [],
        ),
        Folded(
            "How methods were compared",
            [
                "Every method reads the sensitive values of the training rows from the prompts and the labelled "
                f"validation rows, and has at most {settings.candidates} settings. Chosen is the smallest mean MaxSkew "
                "on the validation rows with a mean rank correlation inside groups of at least "
                f"{setting(settings.floor)}; if no setting has that, the one with the largest.",
                "Queries that are about the sensitive attributes are left out.",
            ],
        ),
        Folded(
            "How it was made",
            [
                f"Task {comparison.task.digest}; queries {comparison.task.queries_digest}; "
                + ", ".join(f"{name} {value}" for name, value in made.items() if value)
                + "."
            ],
        ),
    ]


def _more_words(comparison: RankingComparison) -> list[str]:
    words = [
        "Average precision: its mean change inside groups, over the queries whose right answers the task knows: its "
        "classes, and the values of attributes that are not mitigated."
    ]
    if comparison.task.unrelated:
        words.append(
            f"Unrelated task: change of the zero-shot accuracy on {shorten(comparison.task.unrelated, 60)}. "
            f"{ABLE.label}: the harmonic mean of this accuracy with the method and of exp(−MaxSkew); higher is better."
        )
    return words


def _more(row: RankingRow, figures: RankingFigures) -> list[Content]:
    """Return a row of further figures."""
    kinds: list[tuple[SeedMean | None, Kind]] = [
        (figures.ndkl, "number"),
        (figures.kl, "number"),
        (figures.average_precision, "change"),
        (row.unrelated, "change"),
        (figures.able, ABLE.kind),
    ]
    cells = [Cell(found.mean, kind, found.low, found.high) if found else None for found, kind in kinds]
    return [row.title, figures.attribute, *cells]
