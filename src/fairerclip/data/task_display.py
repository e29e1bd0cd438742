"""A task as a notebook and a terminal show it: names, prompts, numbers of rows, and first rows without embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairerclip._util.checks import check_count
from fairerclip._util.clean_text import clean, shorten
from fairerclip._util.html_text import notebook_block, notebook_table, paragraph
from fairerclip._util.numbers import NOTHING, count
from fairerclip._util.types import Ints
from fairerclip.data.task import Split, Task
from fairerclip.data.task_counts import UNKNOWN, cell_name, count_cells
from fairerclip.data.task_fields import UNNAMED

MOST_HEAD = 1000
"""Rows of each split that `task_head` takes at most."""
WIDEST = 30
"""Characters of a cell in plain text."""


@dataclass(frozen=True, repr=False)
class TaskHead:
    """First rows of each split, as text: split, row number or id, class, and a column for each sensitive attribute.

    Printed, it is a table; a notebook shows it as HTML.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        lines = [[clean(shorten(cell, WIDEST)) for cell in line] for line in (self.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        return notebook_block(notebook_table(self.columns, self.rows, left=len(self.columns)))


def task_head(task: Task, n: int) -> TaskHead:
    """Return the first ``n`` rows of each split."""
    check_count("n", n, MOST_HEAD)
    attributes = list(task.sensitive)
    titles = ["sensitive value" if name == UNNAMED else name for name in attributes]
    rows = [row for name, split in task.splits.items() for row in _rows(task, name, split, attributes, n)]
    return TaskHead(("split", "row", "class", *titles), tuple(rows))


def _rows(task: Task, name: str, split: Split, attributes: Sequence[str], n: int) -> list[tuple[str, ...]]:
    n = min(n, len(split))
    ids = [str(k) for k in range(n)] if split.ids is None else [str(given) for given in split.ids[:n]]
    columns = [_names(split.y, task.class_names, n)]
    columns += [
        _names(split.s.get(attribute), task.sensitive[attribute].names, n) for attribute in attributes
    ]
    return list(zip([name] * n, ids, *columns, strict=True))


def _names(codes: Ints | None, names: Sequence[str], n: int) -> list[str]:
    """Return the names of the first codes; "?" is an unknown label, a dash a column that the split does not have."""
    return [NOTHING] * n if codes is None else [[*names, UNKNOWN][int(code)] for code in codes[:n]]


def task_title(task: Task) -> str:
    """Return the name of a task with the width of its embeddings and the rows of its splits, on one line."""
    rows = ", ".join(f"{name} {count(len(split))}" for name, split in task.splits.items())
    kind = "simulated embeddings" if task.simulated else "embeddings"
    return f"Task {clean(shorten(task.name))}: {kind} of width {count(task.width)}; rows: {rows}"


def task_html(task: Task) -> str:
    """Return the title, the rows of each class and sensitive value by split, and the prompts, as HTML."""
    counts = count_cells(task)
    cells = {cell: None for counted in counts.values() for cell in counted}
    sizes = [
        [cell_name(cell), *(count(counted.get(cell, 0)) for counted in counts.values())] for cell in cells
    ]
    prompts = [
        ["class", name, prompt] for name, prompt in zip(task.class_names, task.target_prompts, strict=True)
    ]
    for attribute in task.sensitive.values():
        kind = "sensitive value" if attribute.name == UNNAMED else attribute.name
        prompts += [[kind, *pair] for pair in zip(attribute.names, attribute.prompts, strict=True)]
    return notebook_block(
        paragraph(task_title(task), strong=True),
        *([notebook_table(["group", *counts], sizes)] if sizes else []),
        notebook_table(["", "name", "prompt"], prompts, left=3),
    )
