"""Calculations of their own, each a file, so that what was done is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fairerclip import __version__
from fairerclip.data.strict_json import strict_loads
from fairerclip.errors import ResultsFileError
from fairerclip.files import atomic_file

MAX_BYTES = 8 << 20


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
        file = self.file(work)
        if not file.is_file():
            return None
        try:
            found = strict_loads(file.read_bytes(), str(file), ResultsFileError, limit=MAX_BYTES)
        except ResultsFileError:
            return None  # what cannot be read is done again
        same = isinstance(found, dict) and found.get("key") == self._whole_key()
        return found["answer"] if same and isinstance(found.get("answer"), dict) else None

    def write(self, work: Path, answer: Mapping[str, Any]) -> None:
        """Keep an answer."""
        content = json.dumps({"key": self._whole_key(), "answer": answer}, indent=1, allow_nan=False)
        with atomic_file(self.file(work), overwrite=True) as handle:
            handle.write(content.encode())


def run_jobs(jobs: Sequence[Job], work: Path, processes: int | None = None) -> list[dict[str, Any]]:
    """Answers in order, those kept in ``work`` without calling; a failing job answers ``{"error": …}``."""
    answers: dict[int, dict[str, Any]] = {}
    for number, job in enumerate(jobs):
        found = job.read(work)
        if found is not None:
            answers[number] = found
    todo = [number for number in range(len(jobs)) if number not in answers]
    count = min(processes or os.cpu_count() or 1, len(todo))
    if count <= 1:
        for number in todo:
            answers[number] = _kept(jobs[number], work, guarded(jobs[number].call, jobs[number].arguments))
        return [answers[number] for number in range(len(jobs))]
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        futures = {n: pool.submit(guarded, jobs[n].call, jobs[n].arguments) for n in todo}
        try:
            for number, future in futures.items():
                try:
                    answer = future.result()
                except Exception as error:  # noqa: BLE001 - a process that died does not stop the rest
                    answer = {"error": f"{type(error).__name__}: {error}"}
                answers[number] = _kept(jobs[number], work, answer)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [answers[number] for number in range(len(jobs))]


def _kept(job: Job, work: Path, answer: dict[str, Any]) -> dict[str, Any]:
    if "error" not in answer:
        job.write(work, answer)
    return answer


def guarded(call: Callable[..., dict[str, Any]], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Call on one core; errors become an answer, warnings its notes."""
    import scipy.linalg  # noqa: F401 - its BLAS must be loaded before it can be limited
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = call(**arguments)
        except Exception as error:  # noqa: BLE001 - one failing part is reported and does not stop the rest
            return {"error": f"{type(error).__name__}: {error}"}
    said = dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught)
    return {**answer, "notes": [*answer.get("notes", ()), *said]}
