"""What commands print: tables for people, JSON for machines, bars while they wait.

No command prints otherwise. Names of tasks, classes, prompts and files are foreign text: it is cleaned here, and never
read as the markup of the library that draws.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table as Table
from rich.text import Text

from fairerclip._util.numbers import bare, interval, number, setting
from fairerclip.cli import streams
from fairerclip.cli.signals import Stopped
from fairerclip.metrics.names import FIGURES
from fairerclip.report.clean_text import clean, shorten

if TYPE_CHECKING:
    from fairerclip.report.result_table import ResultTable

PLAIN_WIDTH = 110
"""Columns where standard output is not a terminal and COLUMNS does not say how wide it is."""
WIDE = 100
"""Columns from which tables have room for everything."""
out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH)
err = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    streams.write_json(value)


def say(text: str) -> None:
    """One line of plain text."""
    out.print(_line(text), soft_wrap=True)


def head(text: str) -> None:
    """One line that stands out."""
    out.print(_line(text, "bold"))


def put(table: Table) -> None:
    """A table."""
    out.print(table)


def note(text: str) -> None:
    """One line on standard error about what was read."""
    err.print(_line(f"note: {text}"), soft_wrap=True)


def warn(text: str) -> None:
    """One line on standard error about what the reader should know of a result."""
    err.print(_line(f"warning: {streams.one_line(text)}", "yellow"), soft_wrap=True)


def _line(text: str, style: str = "") -> Text:
    return Text(clean(shorten(text, streams.LONGEST_LINE)), style)


LONGEST_TITLE = 240
"""Characters of a title, which says more than a name; a long name in it is cut."""
Cell = str | tuple[str, ...]
"""Text in one line, or in several: a line end inside foreign text is none."""


def _title(text: str) -> Text:
    return Text(clean(shorten(text, LONGEST_TITLE)))


def _cell(text: Cell) -> Text:
    lines = (text,) if isinstance(text, str) else text
    return Text("\n".join(clean(shorten(line)) for line in lines))


def plain_table(
    title: str | None,
    columns: Sequence[Cell],
    rows: Sequence[Sequence[Cell]],
    *,
    left: Collection[int] = (0,),
    whole: Collection[int] = (),
    tight: bool = False,
) -> Table:
    """A table of text.

    Parameters
    ----------
    title, columns, rows : what it says; nothing in it is markup, and long lines are shortened.
    left : places of columns that are set to the left; the others are set to the right.
    whole : places of columns whose lines are not folded.
    tight : leave no space beside columns.
    """
    table = Table(
        title=None if title is None else _title(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0 if tight else 1),
    )
    for place, column in enumerate(columns):
        table.add_column(
            _cell(column),
            justify="left" if place in left else "right",
            overflow="ellipsis" if place in whole else "fold",
            no_wrap=place in whole,
        )
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    return table


def rendered(table: ResultTable) -> Table:
    """Return a table of results as text in the form of a terminal."""
    from fairerclip.report.result_table import text_of

    rows = [[text_of(content) for content in row] for row in table.rows]
    return plain_table(table.title, table.columns, rows, left=range(table.left))


def report_table(title: str, rows: Sequence[tuple[str, Any]]) -> Table:
    """Group reports side by side: both averages, worst group with interval, name and n, gap, EOD."""
    average, weighted, worst, gap, eod = (
        FIGURES[name].short for name in ("average", "train_weighted_average", "worst_group", "gap", "eod")
    )
    hyphen = weighted.find("-") + 1  # where a narrow column may break
    columns: list[Cell] = ["model", average, (weighted[:hyphen], weighted[hyphen:])]
    columns += [f"{worst} [95 %]", gap, eod]
    body: list[list[Cell]] = [
        [
            name,
            bare(report.average),
            bare(report.train_weighted_average),
            (
                f"{bare(report.worst.accuracy)} {interval(*report.intervals['worst_group'])}",
                f"{shorten(report.worst.name)}, n={report.worst.n}{' (small)' if report.worst.small else ''}",
            ),
            bare(report.gap),
            bare(report.eod),
        ]
        for name, report in rows
    ]
    return plain_table(title, columns, body, left=(0, 3), whole=(1, 2, 4, 5), tight=out.width < WIDE)


def path_table(title: str, rows: Sequence[Mapping[str, Any]], mark: int | None = None) -> Table:
    """The trade-off along a path, with a bar for the worst group; the chosen point is marked."""
    constant = len({row["tau_z"] for row in rows}) == 1
    shown = ("average", "worst_group", "gap", "eod")
    columns = ["", "criterion", "τ", *([] if constant else ["τ_z"]), *(FIGURES[name].short for name in shown)]
    bars = out.width >= WIDE
    left = {1, len(columns)}  # the bar is the last one
    columns += [f"{FIGURES['worst_group'].short}, 0 to 100"] if bars else []
    body = []
    for index, row in enumerate(rows):
        strengths = [setting(row["tau"]), *([] if constant else [setting(row["tau_z"])])]
        figures = [bare(row[name]) for name in shown]
        worst = row["worst_group"]
        bar = ["no solution" if worst is None else "█" * round(20 * worst)] if bars else []
        body.append(["→" if index == mark else "", row["criterion"], *strengths, *figures, *bar])
    return plain_table(title, columns, body, left=left, whole=range(len(columns)))


class Advance(Protocol):
    """What moves a bar."""

    def __call__(self, done: int, total: int | None, what: str | None = None) -> None:
        """Move to ``done`` of ``total``; with ``what``, name what is counted from here on."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("– /s" if not task.speed else f"{number(task.speed, 1)}/s")


@contextmanager
def progress(text: str, *, rate: bool = False) -> Iterator[Advance]:
    """A bar on a terminal, with the rate if asked for, nothing elsewhere; yields what moves it."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        *([_Rate()] if rate else []),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(clean(text), total=None)

        def advance(done: int, total: int | None, what: str | None = None) -> None:
            if what is not None and clean(what) != bar.tasks[0].description:
                bar.reset(task, description=clean(what))  # the time left is of what is counted now
            bar.update(task, completed=done, total=total)

        yield advance


@contextmanager
def warnings_as_lines() -> Iterator[list[str]]:
    """Collect warnings and print each once, as a line on standard error."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield lines
        except Stopped:
            caught.clear()  # the line that says so is all there is to say
            raise
        finally:
            lines += dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught)
            for line in lines:
                warn(line)
