"""Results of a comparison of methods for rankings as frozen objects: ``rankings.json``, and the file of each run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from fairerclip._util.files import check_folder, write_folder
from fairerclip.auditing.validation import Boolean, Count, Keyed, Many, Number, Pair, Part
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.errors import OutputExistsError, ResultsFileError
from fairerclip.report.answer_page import AnswerPage
from fairerclip.study.comparison import FailedRun, PairedChange, SeedMean, StudySoftware
from fairerclip.study.jobs import MAX_STORED, Answer, Settings, Words

FORMAT: Final = "fairerclip-ranking-comparison"
VERSION: Final = 1
FILES = ("rankings.html", "rankings.md", "rankings.json")


class RankedAttribute(Part):
    """Figures of the rankings by all queries, over the groups of one attribute.

    ``max_skew``, ``ndkl``, ``kl`` and ``rank_correlation`` (with the original scores, inside groups) are means over
    queries; ``skews`` and ``correlations`` are those of each query, which ``rankings.json`` leaves out.
    ``low_correlation`` is the 5th percentile over queries and groups. ``average_precision`` is the mean change inside
    groups over ``known_queries``, the queries whose right answers the task knows. ``intervals`` has the ends of 95 %
    intervals over queries by the name of the figure; it is empty on resampled splits, whose intervals are over splits.
    """

    attribute: Words
    k: Count
    rows: Count
    max_skew: Number
    skews: Many[Number] = ()
    ndkl: Number
    kl: Number
    rank_correlation: Number
    correlations: Many[Number] = ()
    low_correlation: Number
    average_precision: Number | None = None
    known_queries: Count
    intervals: Keyed[Pair] = Field(default_factory=dict)


class RankingRun(Answer):
    """One method on the splits of the task, or on the resampled split with this seed.

    ``reached_floor`` tells whether a setting kept enough of the order inside groups on the validation rows;
    ``unrelated`` is the change of the zero-shot accuracy on an unrelated task, ``unrelated_accuracy`` this accuracy
    with the method; both are None without one. ``intervals`` has the ends of their 95 % intervals over rows;
    it is empty on resampled splits. Times, memory and size are as in a comparison of classifiers.
    """

    seed: Count
    split: Words
    attributes: Many[RankedAttribute]
    unrelated: Number | None = None
    unrelated_accuracy: Number | None = None
    intervals: Keyed[Pair] = Field(default_factory=dict)
    chosen: Settings
    candidates: Count
    reached_floor: Boolean
    seconds: Number
    seconds_in_all: Number
    parameters: Count
    peak_mb: Number | None = None
    notes: Many[Words]


class RankingFigures(Part):
    """Figures of one method for one attribute: intervals are over queries, or over resampled splits for new rows.

    ``able`` is ABLE of the accuracy on the unrelated task and MaxSkew; None without an unrelated task.
    """

    attribute: Words
    max_skew: SeedMean
    ndkl: SeedMean
    kl: SeedMean
    rank_correlation: SeedMean
    low_correlation: SeedMean
    average_precision: SeedMean | None = None
    able: SeedMean | None = None


class RankingRow(Part):
    """One method: its runs, and its figures by attribute."""

    method: Words
    title: Words
    gradient: Boolean
    runs: Many[RankingRun | FailedRun]
    errors: Many[Words]
    figures: Many[RankingFigures] = ()
    unrelated: SeedMean | None = None
    against: Keyed[PairedChange]
    """By attribute, the mean MaxSkew of `EmbeddingMitigator` minus that of this method."""
    reached_floor: Number | None = None
    """Share of the runs in which a setting kept enough of the order."""
    candidates: Count | None = None
    seconds: Number | None = None
    seconds_in_all: Number | None = None
    parameters: Number | None = None
    peak_mb: Number | None = None

    def of(self, attribute: str) -> RankingFigures | None:
        """Return the figures for one attribute; None if the method failed."""
        return next((found for found in self.figures if found.attribute == attribute), None)


class RankedTask(Part):
    """The task of a comparison of rankings."""

    name: Words
    file: Words
    simulated: Boolean
    digest: Words
    sensitive: Many[Words]
    rows: Keyed[Count]
    queries: Count
    queries_digest: Words
    unrelated: Words | None = None


class RankingSettings(Part):
    """Options: the floor of the rank correlation, the number of results k if it was given, and the splits."""

    floor: Number
    k: Count | None = None
    splits: Count | None = None
    candidates: Count


class RankingComparison(Part):
    """All methods for rankings on one task."""

    format: Literal["fairerclip-ranking-comparison"] = FORMAT
    version: Literal[1] = VERSION
    task: RankedTask
    settings: RankingSettings
    answer: Words
    recommendation: Words
    rows: Many[RankingRow]
    made: StudySoftware

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values, without the figures of single queries."""
        each = {"runs": {"__all__": {"attributes": {"__all__": {"skews", "correlations"}}}}}
        return self.model_dump(by_alias=True, exclude={"rows": {"__all__": each}})


def check_rankings(folder: Path, digest: str, *, overwrite: bool) -> None:
    """Raise if a folder cannot be written, or holds a comparison of other data, unless ``overwrite``."""
    check_folder(folder, overwrite=True)
    there = [folder / name for name in FILES if os.path.lexists(folder / name)]
    if overwrite or not there:
        return
    try:
        document = read_strict_json(folder / FILES[-1], ResultsFileError, limit=MAX_STORED)
        if isinstance(document, dict) and document.get("format") == FORMAT:
            task = document.get("task")
            if isinstance(task, dict) and task.get("digest") == digest:
                return
        why = "is not of this task"
    except ResultsFileError:
        why = "is not one that can be read"
    raise OutputExistsError(f"{there[-1]} {why}; choose another folder or pass overwrite=True (--overwrite)")


def write_rankings(comparison: RankingComparison, page: AnswerPage, folder: Path, *, overwrite: bool) -> None:
    """Write a comparison of rankings as HTML, Markdown and JSON into a folder; other files stay."""
    check_rankings(folder, comparison.task.digest, overwrite=overwrite)
    texts = (
        page.to_html(),
        page.to_markdown(),
        json.dumps(comparison.as_dict(), indent=1, allow_nan=False),
    )
    forms = {name: text.encode() for name, text in zip(FILES, texts, strict=True)}
    write_folder(folder, forms, overwrite=True)
