"""Cached jobs in worker processes, one JSON file with a digest per answer."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import JsonValue, ValidationError

from fairerclip._util.files import atomic_file, check_folder, reading
from fairerclip.auditing.validation import Called, Keyed, Part, refusal
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.errors import KeptRunWarning, ResultsFileError
from fairerclip.study.workers import Call, Failure, Returned, run_calls

MAX_BYTES, MAX_VALUES = 8 << 20, 2_000_000
"""Limits of the file of one answer, which may hold the predicted class of every row."""
MAX_STORED = 64 << 20
"""Limit of the file of a whole study, in bytes."""
Words = Annotated[str, Called("text")]
"""Text of any length; the size of its file is limited."""
Settings = Keyed[JsonValue]
"""Parameters by name."""


class Answer(Part):
    """Base class of what a job returns. Each subclass has ``notes`` as its last field, to be last in files."""

    if TYPE_CHECKING:
        notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as JSON values, without fields that were not set."""
        return self.model_dump(by_alias=True, exclude_unset=True)


A = TypeVar("A", bound=Answer)
P = TypeVar("P", bound=Part)


@dataclass(frozen=True)
class Job(Generic[A]):
    """A call of a module's function whose answer depends only on ``key``.

    Attributes
    ----------
    title : str
        Name of the job in messages about failures.
    key : mapping
        Everything that the answer depends on, as values that JSON reads back unchanged.
    file : str
        Name of the file that keeps the answer.
    answer : type
        Class of the answer.
    call : callable
        The function, which must pickle.
    arguments : mapping
        Keyword arguments of the function.
    fresh : bool
        Whether the function is the first that its process calls.
    """

    title: str
    key: Mapping[str, Any]
    file: str
    answer: type[A]
    call: Callable[..., A]
    arguments: Mapping[str, Any]
    fresh: bool = False


def run_jobs(
    jobs: Sequence[Job[A]],
    work: Path | None,
    *,
    processes: int | None = None,
    calls_per_process: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[A | Failure]:
    """Return the answers of jobs in order; answers kept in the folder ``work`` are not recomputed."""
    if work is not None:
        check_folder(work, overwrite=True)
    kept = {} if work is None else {n: read_kept(work / job.file, job) for n, job in enumerate(jobs)}
    answers: dict[int, A | Failure] = {n: answer for n, answer in kept.items() if answer is not None}
    progress(len(answers), len(jobs))
    todo = [number for number in range(len(jobs)) if number not in answers]

    def keep(place: int, outcome: Returned[A] | Failure) -> None:
        number = todo[place]
        if isinstance(outcome, Failure):
            answers[number] = outcome
        else:
            answer = outcome.value
            answer = answer.model_copy(update={"notes": (*answer.notes, *outcome.warned)})
            if work is not None:
                write_kept(work / jobs[number].file, jobs[number].key, answer)
            answers[number] = answer
        progress(len(answers), len(jobs))

    calls = [Call(jobs[number].call, jobs[number].arguments, jobs[number].fresh) for number in todo]
    run_calls(calls, keep, processes=processes, calls_per_process=calls_per_process)
    return [answers[number] for number in range(len(jobs))]


@reading(ResultsFileError)
def read_stored(path: Path, model: type[P]) -> P:
    """Read an object from a JSON file that a study wrote, or raise `ResultsFileError` if it is not valid."""
    try:
        return model.model_validate(read_strict_json(path, ResultsFileError, limit=MAX_STORED))
    except ValidationError as error:
        raise ResultsFileError(f"{path}: {refusal(error)}") from None


def read_kept(file: Path, job: Job[A]) -> A | None:
    """Return the answer of a job from its file; None if there is no file, or its key is not that of the job.

    For a damaged file, or one that is not of this format, warn with a `KeptRunWarning` and return None.
    """
    try:
        os.lstat(file)
    except FileNotFoundError:
        return None
    except OSError:
        pass  # a folder without permission is reported below
    try:
        content = read_strict_json(file, ResultsFileError, limit=MAX_BYTES, values=MAX_VALUES)
        if not isinstance(content, dict) or set(content) != {"key", "answer", "sha256"}:
            raise ResultsFileError(f"{file}: expected a key, an answer and its digest")
        if not isinstance(content["answer"], dict) or content["sha256"] != _digest(content["answer"]):
            raise ResultsFileError(f"{file} does not match its digest: the file is damaged or was changed")
        if content["key"] != job.key:
            return None
        return job.answer.model_validate(content["answer"])
    except ValidationError as error:
        problem = f"{file}: {refusal(error)}"
    except ResultsFileError as error:
        problem = str(error)
    warnings.warn(f"a kept run cannot be used and is run again: {problem}", KeptRunWarning, stacklevel=2)
    return None


def write_kept(file: Path, key: Mapping[str, Any], answer: Answer) -> None:
    """Write the answer for a key to a file."""
    plain = answer.as_dict()
    content = {"key": key, "answer": plain, "sha256": _digest(plain)}
    with atomic_file(file, overwrite=True) as handle:
        handle.write(json.dumps(content, allow_nan=False).encode())


def _digest(answer: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(answer, allow_nan=False).encode()).hexdigest()
