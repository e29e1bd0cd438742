"""Checks of a store of embeddings or of a task: what is in it, what is wrong, and which commands can use it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairerclip._util.files import is_url
from fairerclip.auditing.task_check import Possible, TaskFacts, check_arrays, check_task
from fairerclip.data import open_task
from fairerclip.data.io.npy import DEFAULT_LIMITS
from fairerclip.data.io.remote_path import Location, RemotePath, as_location
from fairerclip.data.layouts import MANIFEST, TEXT, read_manifest
from fairerclip.data.preflight import Preflight, preflight
from fairerclip.data.simulate import is_simulated
from fairerclip.data.stores import open_store
from fairerclip.data.task_files import is_task, read_arrays
from fairerclip.data.writer import SKIPPED, read_skipped, read_text


@dataclass(frozen=True)
class InputCheck:
    """Result of `check`.

    Attributes
    ----------
    path : str
        Store or task that was checked.
    kind : str
        "store" or "task".
    problems : tuple of str
        Faults that prevent its use.
    notes : tuple of str
        Faults that do not.
    rows : Preflight or None
        Lengths, damaged rows and duplicates of all rows; None if the arrays cannot be used as a task.
    task : TaskFacts or None
        Content of a task.
    commands : tuple of Possible
        Commands, each with the reason why it cannot be run.
    facts : tuple of str
        Sentences on the content.
    """

    path: str
    kind: str
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rows: Preflight | None = None
    task: TaskFacts | None = None
    commands: tuple[Possible, ...] = ()
    facts: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether nothing prevents the use of the input."""
        return not self.problems

    def lines(self) -> list[str]:
        """Return the result as sentences, the content first."""
        out = [f"{self.kind} {self.path}", *self.facts]
        out += [f"Note: {note}" for note in self.notes]
        for command in self.commands:
            if command.reason is None:
                out.append(f"Can run: {command.command}{f'  ({command.note})' if command.note else ''}")
        out += [f"Cannot run: {c.command}: {c.reason}" for c in self.commands if c.reason is not None]
        out += [f"Problem: {problem}" for problem in self.problems]
        return [*out, f"Usable: {'yes' if self.usable else 'no'}."]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "path": self.path,
            "kind": self.kind,
            "usable": self.usable,
            "problems": list(self.problems),
            "notes": list(self.notes),
            "rows": None if self.rows is None else self.rows.as_dict(),
            "task": None if self.task is None else self.task.as_dict(),
            "commands": [
                {"command": c.command, "possible": c.reason is None, "reason": c.reason, "note": c.note}
                for c in self.commands
            ],
        }


def check(path: str | os.PathLike[str] | RemotePath) -> InputCheck:
    """Check a store of embeddings or a task.

    Parameters
    ----------
    path : path-like
        Any store that `fairerclip.data.open_store` opens, a task file, or ``simulated:NAME``.

    Returns
    -------
    InputCheck
        Time: one or two passes over the rows. Memory: a task once; of a store one block, and the ids.

    Raises
    ------
    StoreError, TaskFileError
        The path holds neither, or a file cannot be read.

    Examples
    --------
    >>> found = check("simulated:waterbirds")
    >>> found.kind, found.usable, list(found.task.splits)
    ('task', True, ['train', 'val', 'test'])
    """
    location = as_location(path)
    given = None if isinstance(path, RemotePath) else os.fspath(path)
    name = str(location) if given is None or is_url(given) else given
    if is_simulated(name):
        return _task(name, *check_task(open_task(name), name))
    if not isinstance(location, Path) or not is_task(location):
        return _store(location)
    arrays = read_arrays(Path(name), DEFAULT_LIMITS)
    task, problems, notes = check_arrays(arrays, Path(name))
    if task is None:
        listed = ", ".join(f"{key} {array.dtype} {array.shape}" for key, array in arrays.items())
        return InputCheck(name, "task", tuple(problems), tuple(notes), facts=(f"Arrays: {listed}.",))
    return _task(name, *check_task(task, name), notes=notes)


def _task(
    name: str, facts: TaskFacts, rows: Preflight, commands: list[Possible], found: list[str], notes: Any = ()
) -> InputCheck:
    again = f"{rows.duplicate_rows:,} rows equal an earlier row, of the same or of another split."
    sentences = [*facts.lines(), rows.lines()[1], again]
    possible = [command for command in commands if command.reason is None]
    problems = (
        []
        if possible
        else ["no command can use it: " + "; ".join(f"{c.command}: {c.reason}" for c in commands)]
    )
    return InputCheck(
        name, "task", tuple(problems), (*notes, *found), rows, facts, tuple(commands), tuple(sentences)
    )


def _store(path: Location) -> InputCheck:
    store = open_store(path, incomplete=True)
    rows = preflight(store)
    problems, notes, facts = [], [], rows.lines()
    if isinstance(path, Path) and (path / MANIFEST).is_file():
        if not read_manifest(path)[0]["complete"]:
            problems.append(
                "the store is not complete: run fairerclip embed again with the same images to finish it"
            )
        skipped = read_skipped(path) if (path / SKIPPED).is_file() else []
        if skipped:
            notes.append(f"{len(skipped):,} images have no embedding, first {skipped[0][0]}: {skipped[0][1]}")
        if (path / TEXT).is_file():
            facts.append(f"Prompts: {len(read_text(path)[0]):,}.")
    for count, first, fault in (
        (rows.non_finite_rows, rows.first_non_finite, "hold NaN or infinity"),
        (rows.zero_rows, rows.first_zero, "are zero"),
    ):
        if count:
            where = f"first row {first[0]}" + ("" if store.ids is None else f" ({store.ids[first[0]]})")
            problems.append(f"{count:,} rows {fault}, {where}: embed those images again or leave them out")
    if rows.repeated_ids:
        problems.append(
            f"{rows.repeated_ids:,} ids are repeated: labels cannot be joined by id; give each row its own"
        )
    if not rows.has_ids:
        notes.append("rows have no ids: give --ids FILE, or --by-position, to fairerclip task embeddings")
    by = "--id COLUMN" if rows.has_ids else "--ids FILE --id COLUMN"
    reason = None if not problems else "see the problems"
    name = shlex.quote(str(path))
    commands = [
        Possible(f"fairerclip task embeddings {name} --labels FILE {by} … -o TASK", reason),
        Possible(f"fairerclip apply MODEL {name} -o OUT", reason),
    ]
    return InputCheck(
        str(path), "store", tuple(problems), tuple(notes), rows, None, tuple(commands), tuple(facts)
    )
