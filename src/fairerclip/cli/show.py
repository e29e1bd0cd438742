"""Everything that commands print: lines, tables, JSON and progress bars.

Names of tasks, classes, prompts and files are foreign text: it is cleaned here, and never read as markup by rich.
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

from fairerclip._util.clean_text import clean, shorten
from fairerclip._util.numbers import bare, interval, number, setting
from fairerclip.cli import streams
from fairerclip.cli.signals import Stopped
from fairerclip.metrics.names import FIGURES

if TYPE_CHECKING:
    from fairerclip.report.result_table import ResultTable

PLAIN_WIDTH = 110
"""Width in columns where standard output is not a terminal and COLUMNS is not set."""
WIDE = 100
"""Width in columns from which tables show all their columns."""
out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH)
err = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    streams.write_json(value)


def say(text: str) -> None:
    """Print one line of plain text."""
    out.print(_line(text), soft_wrap=True)


def head(text: str) -> None:
    """Print one line in bold."""
    out.print(_line(text, "bold"))


def answer(verdict: Sequence[str]) -> None:
    """Print the answer of an audit or a fit: what it shows, and what to do."""
    sentence, *advice = verdict
    say(sentence)
    for text in advice:
        out.print(_line(f"→ {text}", "bold"), soft_wrap=True)


def put(table: Table) -> None:
    """Print a table."""
    out.print(table)


def note(text: str) -> None:
    """Print a note about the input, one line on standard error."""
    err.print(_line(f"note: {text}"), soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning about a result, one line on standard error."""
    err.print(_line(f"warning: {streams.one_line(text)}", "yellow"), soft_wrap=True)


def _line(text: str, style: str = "") -> Text:
    return Text(clean(shorten(text, streams.LONGEST_LINE)), style)


LONGEST_TITLE = 240
"""Characters of a title that are printed."""
Cell = str | tuple[str, ...]
"""Text of one line, or a tuple with one text per line: line ends inside foreign text do not break lines."""


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
    unfolded: Collection[int] = (),
    tight: bool = False,
) -> Table:
    """Make a table of plain text, without markup; long lines are shortened.

    Parameters
    ----------
    title : str or None
        Line above the table.
    columns, rows : sequence of `Cell`, sequence of sequences of `Cell`
        Heads of the columns, and the cells of each row.
    left : collection of int
        Indices of columns that are flushed left; the others are flushed right.
    unfolded : collection of int
        Indices of columns whose lines are cut instead of folded.
    tight : bool
        Leave no space beside columns.
    """
    table = Table(
        title=None if title is None else _title(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 0 if tight else 1),
    )
    for index, column in enumerate(columns):
        table.add_column(
            _cell(column),
            justify="left" if index in left else "right",
            overflow="ellipsis" if index in unfolded else "fold",
            no_wrap=index in unfolded,
        )
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    return table


def rendered(table: ResultTable) -> Table:
    """Make a terminal table from a table of results."""
    from fairerclip.report.result_table import text_of

    rows = [[text_of(content) for content in row] for row in table.rows]
    return plain_table(table.title, table.columns, rows, left=range(table.left))


def report_table(title: str, rows: Sequence[tuple[str, Any]]) -> Table:
    """Make a table with a row per group report: both averages, worst group (interval, name, n), gap, EOD."""
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
    return plain_table(title, columns, body, left=(0, 3), unfolded=(1, 2, 4, 5), tight=out.width < WIDE)


def path_table(title: str, rows: Sequence[Mapping[str, Any]], mark: int | None = None) -> Table:
    """Make a table of the trade-off along a path, with a bar for the worst group; the chosen point is marked."""
    constant = len({row["tau_z"] for row in rows}) == 1
    names = ("average", "worst_group", "gap", "eod")
    columns = ["", "criterion", "τ", *([] if constant else ["τ_z"]), *(FIGURES[name].short for name in names)]
    bars = out.width >= WIDE
    left = {1, len(columns)}  # the criterion, and the bar in the last column
    columns += [f"{FIGURES['worst_group'].short}, 0 to 100"] if bars else []
    body = []
    for index, row in enumerate(rows):
        strengths = [setting(row["tau"]), *([] if constant else [setting(row["tau_z"])])]
        figures = [bare(row[name]) for name in names]
        worst = row["worst_group"]
        bar = ["no solution" if worst is None else "█" * round(20 * worst)] if bars else []
        body.append(["→" if index == mark else "", row["criterion"], *strengths, *figures, *bar])
    return plain_table(title, columns, body, left=left, unfolded=range(len(columns)))


class Advance(Protocol):
    """Function that moves a progress bar."""

    def __call__(self, done: int, total: int | None, label: str | None = None) -> None:
        """Move the bar to ``done`` of ``total``; a new ``label`` starts a new count."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text("– /s" if not task.speed else f"{number(task.speed, 1)}/s")


@contextmanager
def progress(text: str, *, rate: bool = False) -> Iterator[Advance]:
    """Show a progress bar if standard error is a terminal, with the rate if asked; yield the function that moves it."""
    if not err.is_terminal:  # a disabled bar of rich before 14.3 would end with a blank line
        yield lambda done, total, label=None: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        *([_Rate()] if rate else []),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(clean(text), total=None)

        def advance(done: int, total: int | None, label: str | None = None) -> None:
            if label is not None and clean(label) != bar.tasks[0].description:
                bar.reset(task, description=clean(label))  # so that the time left is of the new count
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
            caught.clear()  # the message of the stop is printed alone
            raise
        finally:
            lines += dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught)
            for line in lines:
                warn(line)
