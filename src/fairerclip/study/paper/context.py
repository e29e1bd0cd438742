"""What an entry works with: a source, options, a folder for runs, and a list of what failed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairerclip import __version__
from fairerclip.auditing.run import digest
from fairerclip.errors import FairerClipError
from fairerclip.experiment import Experiment
from fairerclip.report.document_charts import Curves, Heatmap
from fairerclip.report.result_table import ResultTable
from fairerclip.study.compare import CHOSEN_BY, CompareOptions, compare
from fairerclip.study.comparison import ComparisonRow
from fairerclip.study.jobs import A, Job, run_jobs
from fairerclip.study.methods import METHODS
from fairerclip.study.paper.entry_result import EntrySettings, Found
from fairerclip.study.paper.task_source import SourceTask, TaskSource
from fairerclip.study.workers import Failure

MAX_STEPS = {"data": 20_000, "suite": 3000, "simulated": 500}
"""Cap on the training of one setting of a method trained by gradient, in batches, unless told."""
SEEDS = {"data": 3, "suite": 3, "simulated": 2}
GRADIENT_SEEDS = {"data": 3, "suite": 1, "simulated": 1}
"""The same for methods trained by gradient, which take most of the time."""
QUICK_METHODS = ("zero-shot", "orth-cali", "probe")
"""Methods besides FairerCLIP with ``quick``."""


@dataclass(frozen=True)
class ReproduceOptions:
    """What a reproduction may be told; None is the source's own default."""

    seeds: int | None = None
    jobs: int | None = None
    max_steps: int | None = None
    quick: bool = False


@dataclass
class Outcome:
    """What an entry found: tables and charts to show, and the numbers behind them."""

    tables: list[ResultTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    heatmaps: list[Heatmap] = field(default_factory=list)
    curves: list[Curves] = field(default_factory=list)
    results: dict[str, Found] = field(default_factory=dict)


@dataclass
class Context:
    """One run of one entry.

    Attributes
    ----------
    source, options : where tasks come from, and what was asked for.
    work : folder for kept runs.
    progress : called with (runs done, runs in all).
    used : tasks that were used, by dataset and encoder.
    failures : what is missing or failed.
    asked, answered : methods and jobs that were to run, and those that have figures.
    """

    source: TaskSource
    options: ReproduceOptions
    work: Path
    progress: Callable[[int, int], None] = lambda done, total: None
    used: dict[str, SourceTask] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    asked: int = 0
    answered: int = 0

    @property
    def seeds(self) -> int:
        """How many seeds a method that needs no gradient gets."""
        return 1 if self.options.quick else self.options.seeds or SEEDS[self.source.kind]

    @property
    def gradient_seeds(self) -> int:
        """How many seeds a method trained by gradient gets."""
        return 1 if self.options.quick else self.options.seeds or GRADIENT_SEEDS[self.source.kind]

    @property
    def max_steps(self) -> int:
        """Cap for methods trained by gradient, in batches."""
        return self.options.max_steps or (200 if self.options.quick else MAX_STEPS[self.source.kind])

    def settings(self) -> EntrySettings:
        """What it takes to run it again, besides the data."""
        return EntrySettings(
            seeds=self.seeds,
            gradient_seeds=self.gradient_seeds,
            max_steps=self.max_steps,
            quick=self.options.quick,
            chosen_by=CHOSEN_BY,
        )

    def tasks(self, *datasets: str) -> list[SourceTask]:
        """The tasks of some datasets that the source has; what is missing is a failure that is told."""
        found: list[SourceTask] = []
        for dataset in datasets:
            try:
                made = self.source.tasks(dataset)
            except FairerClipError as error:
                self.failures.append(str(error))
                continue
            found += made
            self.used |= {f"{dataset} {one.encoder}": one for one in made}
        return found

    def compare(self, experiment: Experiment, methods: Sequence[str]) -> dict[str, ComparisonRow]:
        """Rows of a comparison by method; methods that cannot be had are told as failures."""
        keys = [m for m in methods if self._wanted(m)]
        known = {m.key: m for m in METHODS}
        rows: dict[str, ComparisonRow] = {}
        for gradient in (False, True):
            chosen = tuple(key for key in keys if known[key].gradient is gradient)
            possible = [key for key in chosen if known[key].why_not(experiment) is None]
            self.failures += [
                f"{experiment.task.name}: {known[key].title}: {known[key].why_not(experiment)}"
                for key in chosen
                if key not in possible
            ]
            if not possible:
                continue
            seeds = self.gradient_seeds if gradient else self.seeds
            options = CompareOptions(tuple(possible), seeds, self.options.jobs, self.max_steps)
            work = self.work / f"compare-{digest(experiment.task).rpartition(':')[2][:16]}"
            done = compare(experiment, options, work=work, progress=self.progress)
            rows |= {row.method: row for row in done.rows}
        self.asked += len(rows)
        self.answered += sum(row.figures is not None for row in rows.values())
        self.failures += [
            f"{experiment.task.name}: {row.title}: {error}" for row in rows.values() for error in row.errors
        ]
        return {key: rows[key] for key in keys if key in rows}

    def _wanted(self, method: str) -> bool:
        return not self.options.quick or method.startswith("fairerclip") or method in QUICK_METHODS

    def run(self, jobs: Sequence[Job[A]]) -> list[A | Failure]:
        """Answers of jobs; what failed is told."""
        answers = run_jobs(jobs, self.work / "jobs", processes=self.options.jobs, progress=self.progress)
        failed = [
            f"{job.title}: {answer.error}"
            for job, answer in zip(jobs, answers, strict=True)
            if isinstance(answer, Failure)
        ]
        self.asked += len(answers)
        self.answered += len(answers) - len(failed)
        self.failures += failed
        return answers


def parted(answers: Sequence[A | Failure]) -> tuple[list[A], list[str]]:
    """Answers, and the errors of those that failed."""
    good = [answer for answer in answers if not isinstance(answer, Failure)]
    return good, [answer.error for answer in answers if isinstance(answer, Failure)]


def job(
    experiment: Experiment, call: Callable[..., A], answer: type[A], title: str, **arguments: Any
) -> Job[A]:
    """A job on an experiment: its answer depends on the data, on what is chosen of them and on the arguments."""
    key = {
        "title": title,
        "data": digest(experiment.task),
        "classes": list(experiment.classes),
        "sensitive": list(experiment.sensitive),
        **arguments,
        "call": call.__name__,
        "version": __version__,
    }
    content = json.dumps(key, sort_keys=True, default=str)
    file = f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"
    return Job(title, key, file, answer, call, {"experiment": experiment, **arguments})
