"""The context in which an entry runs: task source, options, folder of kept runs, and a list of failures."""

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
"""Default limit of the training of one setting of a method trained by gradient, in batches, by kind of source."""
SEEDS = {"data": 3, "suite": 3, "simulated": 2}
GRADIENT_SEEDS = {"data": 3, "suite": 1, "simulated": 1}
"""Number of seeds of methods trained by gradient, which take most of the time."""
QUICK_METHODS = ("zero-shot", "orth-cali", "probe")
"""Methods that run besides FairerCLIP if ``quick``."""


@dataclass(frozen=True)
class ReproduceOptions:
    """Options of a reproduction; None is the default of the source."""

    seeds: int | None = None
    jobs: int | None = None
    max_steps: int | None = None
    quick: bool = False


@dataclass
class Outcome:
    """Results of an entry: tables and charts, and the numbers behind them."""

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
    source : TaskSource
        Where tasks come from.
    options : ReproduceOptions
        Seeds, processes and limits.
    work : Path
        Folder of kept runs.
    progress : callable
        Called with (runs done, number of runs).
    used : dict
        Tasks that were used, by dataset and encoder.
    failures : list of str
        Messages on what is missing or failed.
    asked, answered : int
        Number of methods and jobs that were started, and of those that have figures.
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
        """Number of seeds of a method that is not trained by gradient."""
        return 1 if self.options.quick else self.options.seeds or SEEDS[self.source.kind]

    @property
    def gradient_seeds(self) -> int:
        """Number of seeds of a method that is trained by gradient."""
        return 1 if self.options.quick else self.options.seeds or GRADIENT_SEEDS[self.source.kind]

    @property
    def max_steps(self) -> int:
        """Limit of the training of methods trained by gradient, in batches."""
        return self.options.max_steps or (200 if self.options.quick else MAX_STEPS[self.source.kind])

    def settings(self) -> EntrySettings:
        """Return the settings that a repetition needs besides the data."""
        return EntrySettings(
            seeds=self.seeds,
            gradient_seeds=self.gradient_seeds,
            max_steps=self.max_steps,
            quick=self.options.quick,
            chosen_by=CHOSEN_BY,
        )

    def tasks(self, *datasets: str) -> list[SourceTask]:
        """Return the tasks of some datasets; a dataset that the source lacks is added to the failures."""
        tasks: list[SourceTask] = []
        for dataset in datasets:
            try:
                tasks_of_dataset = self.source.tasks(dataset)
            except FairerClipError as error:
                self.failures.append(str(error))
                continue
            tasks += tasks_of_dataset
            self.used |= {f"{dataset} {task.encoder}": task for task in tasks_of_dataset}
        return tasks

    def compare(self, experiment: Experiment, methods: Sequence[str]) -> dict[str, ComparisonRow]:
        """Compare methods and return rows by method; methods that cannot run are added to the failures."""
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
        """Run jobs and return their answers; errors are added to the failures."""
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
    """Split the results of jobs into answers and error messages."""
    good = [answer for answer in answers if not isinstance(answer, Failure)]
    return good, [answer.error for answer in answers if isinstance(answer, Failure)]


def job(
    experiment: Experiment, call: Callable[..., A], answer: type[A], title: str, **arguments: Any
) -> Job[A]:
    """Make a job on an experiment; its key has the data, the chosen classes and attributes, and the arguments."""
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
