"""Cached jobs, one JSON file per answer, so that what was done is not done again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairerclip import __version__
from fairerclip._util.files import sole_use
from fairerclip.study.kept import read_kept, write_kept
from fairerclip.study.workers import Answer, Call, run_calls


@dataclass(frozen=True)
class Job:
    """A call of a module's function whose JSON-ready answer depends on ``key`` alone."""

    key: Mapping[str, Any]
    call: Callable[..., dict[str, Any]]
    arguments: Mapping[str, Any]

    def file(self, work: Path) -> Path:
        """Where its answer is kept."""
        content = json.dumps(self._whole_key(), sort_keys=True, default=str)
        return work / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.json"

    def _whole_key(self) -> dict[str, Any]:
        return {**self.key, "call": self.call.__name__, "version": __version__}

    def read(self, work: Path) -> dict[str, Any] | None:
        """The answer that is kept; None where there is none that can be read."""
        return read_kept(self.file(work), self._whole_key())

    def write(self, work: Path, answer: Mapping[str, Any]) -> None:
        """Keep an answer."""
        write_kept(self.file(work), self._whole_key(), answer)


def run_jobs(
    jobs: Sequence[Job],
    work: Path,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Answer]:
    """Answers in order, those kept in ``work`` without calling; a failing job answers ``{"error": …}``."""
    with sole_use(work):
        return _run_jobs(jobs, work, processes, progress)


def _run_jobs(
    jobs: Sequence[Job], work: Path, processes: int | None, progress: Callable[[int, int], None]
) -> list[Answer]:
    answers: dict[int, Answer] = {}
    for number, job in enumerate(jobs):
        found = job.read(work)
        if found is not None:
            answers[number] = found
    progress(len(answers), len(jobs))
    todo = [number for number in range(len(jobs)) if number not in answers]

    def keep(place: int, answer: Answer) -> None:
        number = todo[place]
        if "error" not in answer:
            jobs[number].write(work, answer)
        answers[number] = answer
        progress(len(answers), len(jobs))

    run_calls([Call(jobs[n].call, jobs[n].arguments) for n in todo], keep, processes=processes)
    return [answers[number] for number in range(len(jobs))]
