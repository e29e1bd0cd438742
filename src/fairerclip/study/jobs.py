"""Jobs in processes, each answer kept as a JSON file with its digest, so that what was done is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import JsonValue, ValidationError

from fairerclip._util.files import atomic_file, reading, sole_use
from fairerclip.auditing.validation import Called, Keyed, Part, refusal
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.errors import KeptRunWarning, ResultsFileError
from fairerclip.study.workers import Call, Failure, Returned, run_calls

MAX_BYTES, MAX_VALUES = 8 << 20, 2_000_000
"""Of one answer, which may hold the predicted class of every row."""
MAX_STORED = 64 << 20
"""Bytes of the file of a whole study."""
Words = Annotated[str, Called("text")]
"""Text of any length: the file that holds it is bounded."""
Settings = Keyed[JsonValue]
"""Parameters by name."""


class Answer(Part):
    """What a job returns. Each class has ``notes`` as its last field, so that they stand last in files."""

    if TYPE_CHECKING:
        notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, without fields that were not given."""
        return self.model_dump(by_alias=True, exclude_unset=True)


A = TypeVar("A", bound=Answer)
P = TypeVar("P", bound=Part)


@dataclass(frozen=True)
class Job(Generic[A]):
    """A call of a module's function whose answer depends on ``key`` alone.

    Attributes
    ----------
    title : names it where it failed.
    key : everything that the answer depends on, as JSON would give it back.
    file : name of the file that keeps the answer.
    answer : class of the answer.
    call, arguments : the function, which must pickle, and what it takes.
    """

    title: str
    key: Mapping[str, Any]
    file: str
    answer: type[A]
    call: Callable[..., A]
    arguments: Mapping[str, Any]


def run_jobs(
    jobs: Sequence[Job[A]],
    work: Path | None,
    *,
    processes: int | None = None,
    calls_per_process: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[A | Failure]:
    """Return answers in order; those kept in ``work``, a folder that is ours alone meanwhile, are not made again."""
    with nullcontext() if work is None else sole_use(work):
        kept = {} if work is None else {n: read_kept(work / job.file, job) for n, job in enumerate(jobs)}
        answers: dict[int, A | Failure] = {n: answer for n, answer in kept.items() if answer is not None}
        progress(len(answers), len(jobs))
        todo = [number for number in range(len(jobs)) if number not in answers]

        def keep(place: int, found: Returned[A] | Failure) -> None:
            number = todo[place]
            if isinstance(found, Failure):
                answers[number] = found
            else:
                answer = found.value
                answer = answer.model_copy(update={"notes": (*answer.notes, *found.warned)})
                if work is not None:
                    write_kept(work / jobs[number].file, jobs[number].key, answer)
                answers[number] = answer
            progress(len(answers), len(jobs))

        calls = [Call(jobs[number].call, jobs[number].arguments) for number in todo]
        run_calls(calls, keep, processes=processes, calls_per_process=calls_per_process)
    return [answers[number] for number in range(len(jobs))]


@reading(ResultsFileError)
def read_stored(path: Path, model: type[P]) -> P:
    """Return the object of a JSON file that a study wrote; `ResultsFileError` where the file holds another thing."""
    try:
        return model.model_validate(read_strict_json(path, ResultsFileError, limit=MAX_STORED))
    except ValidationError as error:
        raise ResultsFileError(f"{path}: {refusal(error)}") from None


def read_kept(file: Path, job: Job[A]) -> A | None:
    """Return the answer that a file keeps for a job; None where there is none, or one of another key.

    A file that is damaged, or that we did not write, is told in a `KeptRunWarning` and stands for no answer.
    """
    try:
        os.lstat(file)
    except FileNotFoundError:
        return None
    except OSError:
        pass  # a folder that may not be looked into is told below
    try:
        found = read_strict_json(file, ResultsFileError, limit=MAX_BYTES, values=MAX_VALUES)
        if isinstance(found, dict) and set(found) == {"key", "run"}:
            return None  # as an earlier version kept it
        if not isinstance(found, dict) or set(found) != {"key", "answer", "sha256"}:
            raise ResultsFileError(f"{file}: expected a key, an answer and its digest")
        if not isinstance(found["answer"], dict) or found["sha256"] != _digest(found["answer"]):
            raise ResultsFileError(f"{file} does not match its digest: the file is damaged or was changed")
        if found["key"] != job.key:
            return None
        return job.answer.model_validate(found["answer"])
    except ValidationError as error:
        problem = f"{file}: {refusal(error)}"
    except ResultsFileError as error:
        problem = str(error)
    warnings.warn(f"a kept run cannot be used and is run again: {problem}", KeptRunWarning, stacklevel=2)
    return None


def write_kept(file: Path, key: Mapping[str, Any], answer: Answer) -> None:
    """Keep the answer for a key."""
    plain = answer.as_dict()
    content = {"key": key, "answer": plain, "sha256": _digest(plain)}
    with atomic_file(file, overwrite=True) as handle:
        handle.write(json.dumps(content, allow_nan=False).encode())


def _digest(answer: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(answer, allow_nan=False).encode()).hexdigest()
