"""What commands print: tables for people, JSON for machines, bars while they wait."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from fairerclip.cli.signals import Stopped
from fairerclip.metrics.names import FIGURES, RETRIEVAL
from fairerclip.numbers import NOTHING, bare, interval, number, setting, with_spread
from fairerclip.report.text import clean, shorten

PLAIN_WIDTH = 110
"""Columns where standard output is not a terminal and COLUMNS does not say how wide it is."""
WIDE = 100
"""Columns from which tables have room for everything."""
out = Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH)
err = Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def say(text: str) -> None:
    """One line of plain text."""
    out.print(clean(text), markup=False, soft_wrap=True)


def report_table(title: str, rows: Sequence[tuple[str, Any]]) -> Table:
    """Group reports side by side: both averages, worst group with interval, name and n, gap, EOD."""
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1 if out.width >= WIDE else 0)
    )
    table.add_column("model", overflow="fold")
    for name in ("average", "train_weighted_average"):
        table.add_column(FIGURES[name].short.replace("-", "-\n"), justify="right", no_wrap=True)
    table.add_column(f"{FIGURES['worst_group'].short} [95 %]", overflow="fold")
    for name in ("gap", "eod"):
        table.add_column(FIGURES[name].short, justify="right", no_wrap=True)
    for name, report in rows:
        worst = report.worst
        table.add_row(
            Text(clean(name)),
            bare(report.average),
            bare(report.train_weighted_average),
            f"{bare(worst.accuracy)} {interval(*report.intervals['worst_group'])}\n"
            f"{clean(worst.name)}, n={worst.n}{' (small)' if worst.small else ''}",
            bare(report.gap),
            bare(report.eod),
        )
    return table


def plain_table(title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of text: the first column to the left, the others to the right; nothing in it is markup."""
    table = Table(title=None if title is None else _plain(title), title_justify="left", box=box.SIMPLE_HEAD)
    for place, column in enumerate(columns):
        table.add_column(_plain(column), justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    return table


def _plain(text: str) -> Text:
    return Text("\n".join(shorten(clean(line)) for line in text.split("\n")))


def skew_table(title: str, rows: Sequence[Mapping[str, Any]], after: str = "FairerCLIP") -> Table:
    """MaxSkew of each prompt before and after, which has a name."""
    title = f"{title}: {RETRIEVAL['max_skew'].label}@{rows[0]['k']}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("prompt", "zero-shot", after):
        table.add_column(column, justify="left" if column == "prompt" else "right")
    for row in rows:
        table.add_row(Text(clean(row["prompt"])), number(row["before"]), number(row["after"]))
    return table


def path_table(title: str, rows: Sequence[Mapping[str, Any]], mark: int | None = None) -> Table:
    """The trade-off along a path, with a bar for the worst group; the chosen point is marked."""
    constant = len({row["tau_z"] for row in rows}) == 1
    shown = ("average", "worst_group", "gap", "eod")
    columns = ["", "criterion", "τ", *([] if constant else ["τ_z"]), *(FIGURES[name].short for name in shown)]
    bars = out.width >= WIDE
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="left" if column == "criterion" else "right", no_wrap=True)
    if bars:
        table.add_column(f"{FIGURES['worst_group'].short}, 0 to 100", no_wrap=True)
    for index, row in enumerate(rows):
        strengths = [setting(row["tau"]), *([] if constant else [setting(row["tau_z"])])]
        figures = [bare(row[name]) for name in shown]
        worst = row["worst_group"]
        bar = ["no solution" if worst is None else "█" * round(20 * worst)] if bars else []
        table.add_row("→" if index == mark else "", row["criterion"], *strengths, *figures, *bar)
    return table


def say_tuning(tuning: Mapping[str, Any]) -> None:
    """The chosen point of a search and its neighbours."""
    rows = [tuning["chosen"], *tuning["neighbours"]]
    if tuning["objective"] == "max_skew":
        title = (
            f"Rankings tuned on {tuning['rows']} validation rows, the figures of which flatter; chosen first"
        )
        body = [[setting(r["strength"]), number(r["max_skew"]), number(r["rank_correlation"])] for r in rows]
        heads = ["strength", RETRIEVAL["max_skew"].label, "order kept inside groups"]
        out.print(plain_table(title, heads, body))
        return
    fits = f"{tuning['fits']} of {tuning['fits_planned']} fits, {tuning['candidates']} models"
    title = f"Searched by {tuning['objective']} on {tuning['rows']} validation rows ({fits}), whose figures flatter"
    shown = ["average", "worst_group", *(["eod"] if tuning["objective"] in ("eod", "equalized_odds") else [])]
    body = []
    for row in rows:
        p = row["parameters"]
        share = "default" if p["zero_shot"] is None else setting(p["zero_shot"])
        free = [str(p["class_weight"]), setting(p["tau"]), p["criterion"], share]
        figures = [
            NOTHING if row[name] is None else with_spread(row[name], None, row["intervals"][name])
            for name in shown
        ]
        body.append([*free, *figures])
    header = [
        "weights",
        "τ",
        "criterion",
        "zero-shot share",
        *(FIGURES[name].short for name in shown),
    ]
    out.print(plain_table(title, header, body))
    if len(tuning["held_out"]) > 1:
        say(f"What held up best on rows that it was not chosen on: {tuning['strategy']}.")


class Advance(Protocol):
    """What moves a bar."""

    def __call__(self, done: int, total: int, what: str | None = None) -> None:
        """Move to ``done`` of ``total``; with ``what``, name what is counted from here on."""


@contextmanager
def progress(text: str) -> Iterator[Advance]:
    """A bar on a terminal, nothing elsewhere; yields what moves it."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task(text, total=None)

        def advance(done: int, total: int, what: str | None = None) -> None:
            if what is not None and clean(what) != bar.tasks[0].description:
                bar.reset(task, description=clean(what))  # the time left is of what is counted now
            bar.update(task, completed=done, total=total)

        yield advance


def warn(text: str) -> None:
    """One line on standard error about what the reader should know of a result."""
    err.print(f"warning: {' '.join(clean(text).split())}", style="yellow", soft_wrap=True, markup=False)


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
