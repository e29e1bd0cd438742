"""`store_task`: a task whose rows stay in a store, for a fit on more rows than memory holds."""

from __future__ import annotations

import numpy as np

from fairerclip._util.types import Ints
from fairerclip.data.build import TaskTexts, check_prompts, missing_notes, sentence_notes
from fairerclip.data.coded_labels import CodedLabels, smallest_type
from fairerclip.data.labelled_rows import Labelled, RandomShares
from fairerclip.data.labelled_store import LabelledStore
from fairerclip.data.prompts import EncodedPrompts, PromptSet
from fairerclip.data.store_rows import select_rows
from fairerclip.data.task import Split, Task
from fairerclip.data.task_counts import few_rows_note

VALIDATION_ROWS = 50_000
"""Most validation rows that choose a model; they are in memory. Of more rows, a random sample is drawn."""


def store_task(
    labelled: LabelledStore,
    prompts: EncodedPrompts | None,
    *,
    name: str,
    validation_rows: int = VALIDATION_ROWS,
    seed: int = 0,
) -> tuple[Task, list[str]]:
    """Return a task of a labelled store, as `build_task` does, but with the rows of train and test left on disk.

    Parameters
    ----------
    labelled : LabelledStore
        Rows and labels.
    prompts : EncodedPrompts or None
        Prompt embeddings; their names must be those of the labels.
    name : str
        Name of the task.
    validation_rows : int
        Most validation rows, which are read into memory; of more rows, so many are drawn at random.
    seed : int
        Seed of that draw.

    Returns
    -------
    task : Task
        ``X`` of its train and test splits are stores, and labels have one or two bytes per row.
    notes : list of str
        Sentences on rows, classes and values that did not match, and on what was held out.
    """
    source = _as_labelled(labelled, name)
    texts = TaskTexts.of(source, prompts)
    splits, notes = {}, list(labelled.notes)
    for split in labelled.splits:
        rows = labelled.rows(split)
        if split == "val" and len(rows) > validation_rows:
            notes.append(
                f"{validation_rows:,} of {len(rows):,} validation rows, drawn at random, choose the model."
            )
            rows = np.sort(np.random.default_rng(seed).choice(rows, validation_rows, replace=False))
        X = labelled.store[rows] if split == "val" else select_rows(labelled.store, rows)
        y = None if labelled.target is None else labelled.labels[labelled.target]
        splits[split] = Split(
            X=X,
            y=None if y is None else _moved(y, texts.class_move)[rows],
            s={a: _moved(labelled.labels[a], texts.value_moves[a])[rows] for a in labelled.sensitive},
        )
    task = texts.task(source, splits)
    if labelled.splits == ["train"]:
        held = ["Nothing was held out: there is no split column, so all rows are training rows."]
    else:
        held = missing_notes(task)
    return task, [*notes, *held, *few_rows_note(task), *sentence_notes(task, prompts)]


def check_store_prompts(labelled: LabelledStore, prompts: PromptSet) -> None:
    """Raise, before anything is embedded, if the labels have names for which there are no prompts."""
    check_prompts(_as_labelled(labelled, "store"), prompts)


def _as_labelled(labelled: LabelledStore, name: str) -> Labelled:
    target = None if labelled.target is None else labelled.labels[labelled.target]
    return Labelled(
        name,
        None,
        RandomShares(len(labelled.store), (1.0, 0.0, 0.0), 0),  # the splits are known already
        None if target is None else target.codes,
        () if target is None else target.names,
        {a: (labelled.labels[a].codes, labelled.labels[a].names) for a in labelled.sensitive},
    )


def _moved(labels: CodedLabels, move: Ints) -> Ints:
    """Return codes in the order of the prompts, in a small type."""
    return np.asarray(move.astype(smallest_type(int(move.max()) + 1))[labels.codes])
