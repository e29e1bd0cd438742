"""Results of a comparison as frozen objects: ``comparison.json``, and the file of each run.

`fairerclip.study.jobs.read_stored` reads a `Comparison`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from fairerclip._util.files import check_folder, write_folder
from fairerclip.auditing.group_results import StageReport
from fairerclip.auditing.results import made
from fairerclip.auditing.validation import Boolean, Count, Keyed, Many, Number, Part
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.errors import OutputExistsError, ResultsFileError
from fairerclip.report.answer_page import AnswerPage
from fairerclip.study.jobs import MAX_STORED, Answer, Settings, Words
from fairerclip.study.method import Labels

FORMAT: Final = "fairerclip-comparison"
VERSION: Final = 2
FILES = ("comparison.html", "comparison.md", "comparison.json")


class PublishedChoice(Part):
    """The setting that the authors' rule chooses for a method, and its figures."""

    report: StageReport
    chosen: Settings


class MethodRun(Answer):
    """One method with one seed, or on the resampled split with this seed.

    ``report`` is on the rows of ``split``, and ``predicted`` holds the codes of their predicted classes, which
    ``comparison.json`` and runs on resampled splits leave out. ``as_published`` is the published setting without
    offsets; for FairerCLIP that of its defaults without labels, and None with labels. ``seconds`` is the time of the
    chosen fit, ``seconds_in_all`` that of all fits, ``parameters`` the number of learned values, and ``peak_mb`` the
    memory that fitting took, None if the system does not report it.
    """

    seed: Count
    split: Words
    report: StageReport
    predicted: Many[Count] = ()
    as_published: PublishedChoice | None = None
    chosen: Settings
    offsets: Many[Number]
    strategy: Words | None = None
    validation_value: Number | None = None
    candidates: Count
    seconds: Number
    seconds_in_all: Number
    parameters: Count
    peak_mb: Number | None = None
    notes: Many[Words]


class FailedRun(Part):
    """A run that failed, and its error."""

    seed: Count
    error: Words


class SeedMean(Part):
    """Mean and standard deviation of a figure over seeds, and the mean of the intervals, which are over test rows.

    Over resampled splits, ``seeds`` is the number of splits, and the interval is that of the mean for new rows.
    """

    mean: Number
    sd: Number
    low: Number
    high: Number
    seeds: Count


class SeedMeans(Part):
    """Figures of one method; a figure that is not defined is None."""

    average: SeedMean | None = None
    worst_group: SeedMean | None = None
    gap: SeedMean | None = None
    eod: SeedMean | None = None
    eod_signed: SeedMean | None = None


class ComparisonRow(Part):
    """One method: its runs, and its figures over the runs that did not fail."""

    method: Words
    title: Words
    labels: Labels
    gradient: Boolean
    runs: Many[MethodRun | FailedRun]
    candidates: Count | None = None
    errors: Many[Words]
    notes: Many[Words]
    strategies: Many[Words]
    figures: SeedMeans | None = None
    as_published: SeedMeans | None = None
    seconds: Number | None = None
    seconds_in_all: Number | None = None
    parameters: Number | None = None
    peak_mb: Number | None = None

    @property
    def good_runs(self) -> list[MethodRun]:
        """Runs that did not fail."""
        return [run for run in self.runs if isinstance(run, MethodRun)]


class PairedChange(Part):
    """A difference, paired by rows, with its interval."""

    difference: Number
    low: Number
    high: Number


class MethodDifferences(Part):
    """One method minus another on the same rows, with paired intervals."""

    worst_group: PairedChange
    average: PairedChange


class BestForLabels(Part):
    """The best method among those that need no more labels in training than ``labels``.

    ``differences`` are of the other methods minus the best one. ``not_told_apart`` are the methods whose difference of
    worst groups has an interval that holds 0. ``use`` is the method to use: the simplest among these
    and the best whose average is not clearly lower by more than a point.
    """

    labels: Labels
    best: Words
    differences: Keyed[MethodDifferences]
    not_told_apart: Many[Words]
    use: Words


class Verdict(Part):
    """FairerCLIP minus ``against``, the best of ``others`` methods that use no more labels in training."""

    method: Words
    title: Words
    against: Words
    against_title: Words
    others: Count
    worst_group: PairedChange
    average: PairedChange


class ComparedData(Part):
    """The data of a comparison: the digest of the task, and the chosen classes and sensitive attributes."""

    digest: Words
    classes: Many[Words]
    sensitive: Many[Words]


class ComparedTask(Part):
    """The task of a comparison; ``rows`` are by split."""

    name: Words
    file: Words
    simulated: Boolean
    digest: Words
    classes: Many[Words]
    sensitive: Many[Words]
    rows: Keyed[Count]


class ComparisonSettings(Part):
    """Options of the comparison; ``candidates`` is the number of models that a method may choose from at most.

    ``splits`` is the number of resampled splits, None for the splits of the task; methods that are trained by gradient
    ran on the first ``gradient_splits`` of them.
    """

    seeds: Count
    splits: Count | None = None
    gradient_splits: Count | None = None
    max_steps: Count
    candidates: Count
    chosen_by: Words


class StudySoftware(Part):
    """Versions of the software that made a study, the date (UTC) and the number of cores; early studies lack some."""

    fairerclip: Words | None = None
    python: Words | None = None
    numpy: Words | None = None
    scipy: Words | None = None
    scikit_learn: Words | None = Field(None, alias="scikit-learn")
    date: Words | None = None
    cores: Count | None = None

    @classmethod
    def now(cls) -> StudySoftware:
        """Return the versions of the running software."""
        return cls.model_validate({**made(), "cores": os.cpu_count()})


class Comparison(Part):
    """All methods on one task; ``left_out`` has the reason why a method is missing, by method.

    ``answer`` and ``recommendation`` are one sentence each. ``best_for_labels`` has an entry for each kind of labels in
    training, fewest labels first; ``against_zero_shot`` are the other methods minus zero-shot. Comparisons of early
    versions lack these four.
    """

    format: Literal["fairerclip-comparison"] = FORMAT
    version: Literal[2] = VERSION
    task: ComparedTask
    settings: ComparisonSettings
    answer: Words | None = None
    recommendation: Words | None = None
    best_for_labels: Many[BestForLabels] = ()
    against_zero_shot: Keyed[MethodDifferences] = Field(default_factory=dict)
    verdicts: Many[Verdict]
    rows: Many[ComparisonRow]
    left_out: Keyed[Words]
    made: StudySoftware

    @property
    def data(self) -> ComparedData:
        """Task digest, classes and sensitive attributes of the comparison."""
        task = self.task
        return ComparedData(digest=task.digest, classes=task.classes, sensitive=task.sensitive)

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values, without predictions; the reports have their counts."""
        runs = {"__all__": {"runs": {"__all__": {"predicted"}}}}
        return self.model_dump(by_alias=True, exclude={"rows": runs})


def check_comparison(folder: Path, data: ComparedData, *, overwrite: bool) -> None:
    """Raise if a folder cannot be written, or holds a comparison of other data, unless ``overwrite``."""
    check_folder(folder, overwrite=True)
    there = [folder / name for name in FILES if os.path.lexists(folder / name)]
    if overwrite or not there:
        return
    why = "is not of this task"
    try:
        document = read_strict_json(folder / FILES[-1], ResultsFileError, limit=MAX_STORED)
        is_comparison = isinstance(document, dict) and document.get("format") == FORMAT
        task = document.get("task") if is_comparison else None
        wanted = data.model_dump(mode="json")
        if isinstance(task, dict) and {name: task.get(name) for name in wanted} == wanted:
            return
    except ResultsFileError:
        why = "is not one that can be read"
    raise OutputExistsError(f"{there[-1]} {why}; choose another folder or pass overwrite=True (--overwrite)")


def write_comparison(
    comparison: Comparison, page: AnswerPage, folder: Path, *, overwrite: bool = False
) -> None:
    """Write a comparison as HTML, Markdown and JSON into a folder.

    It replaces an earlier comparison of the same task, or any comparison with ``overwrite``. Other files stay.
    """
    check_comparison(folder, comparison.data, overwrite=overwrite)
    texts = (
        page.to_html(),
        page.to_markdown(),
        json.dumps(comparison.as_dict(), indent=1, allow_nan=False),
    )
    forms = {name: text.encode() for name, text in zip(FILES, texts, strict=True)}
    write_folder(folder, forms, overwrite=True)
