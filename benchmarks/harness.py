"""What all benchmarks share: timing in turns, ratios with targets, and how a result is printed, kept and drawn.

Seconds of one machine say little about another one, and less while other work runs. So a benchmark also times something
bare in the same run, in turns with what it measures, and its figures are ratios of the shortest times. A result is
printed as a table, and kept as ``results/NAME.json``; a run with other sizes than the usual ones has them in its name.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import math
import os
import platform
import re
import subprocess
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fairerclip
from fairerclip._util.files import atomic_file
from fairerclip.cli import show
from fairerclip.report.result_table import Cell, Content, ResultTable

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
SHARED = ("repeats", "results")
"""Options that do not change what is measured."""
UNITS = {"ratio": "", "slope": "", "share": "", "s": " s", "MB": " MB", "per second": " /s"}
"""Units of figures, as they are written after a number. Seconds and rates depend on the machine."""
MACHINE_UNITS = ("s", "per second")


@dataclass(frozen=True)
class Figure:
    """One measured number, with the limit that it is to keep, if it has one.

    Attributes
    ----------
    name, value, unit : str, float, str
        What was measured; ``unit`` is a key of `UNITS`.
    at_most, at_least : float or None
        Target; at most one of them is set.
    better : {"lower", "higher"}
        Direction in which the number improves.
    """

    name: str
    value: float
    unit: str = "ratio"
    at_most: float | None = None
    at_least: float | None = None
    better: str = "lower"

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target. A number that is not finite meets none."""
        if self.at_most is None and self.at_least is None:
            return None
        if not math.isfinite(self.value):
            return False
        return self.value <= self.at_most if self.at_most is not None else self.value >= self.at_least

    @property
    def target(self) -> str | None:
        """The target in words."""
        if self.met is None:
            return None
        word, limit = ("at most", self.at_most) if self.at_most is not None else ("at least", self.at_least)
        return f"{word} {limit:g}{UNITS[self.unit]}"


class Benchmark:
    """One run of a benchmark.

    Parameters
    ----------
    parser : argparse.ArgumentParser
        Options of the benchmark, from `options`.
    arguments : sequence of str or None
        Command line; None for that of the process.

    Attributes
    ----------
    settings : argparse.Namespace
        Values of the options.
    seconds : dict of str to list of float
        All times of everything that was timed.
    """

    def __init__(self, parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> None:
        self.settings = parser.parse_args(arguments)
        own = {k: _without_folder(v) for k, v in vars(self.settings).items() if k not in SHARED}
        changed = {k: v for k, v in own.items() if v != parser.get_default(k)}
        self.name = ".".join([parser.prog, *(f"{k}={_plain(v)}" for k, v in changed.items())])
        self.about = (parser.description or "").strip()
        self.kept_settings = own
        self.machine = describe_machine()
        self.seconds: dict[str, list[float]] = {}
        self.figures: list[Figure] = []
        self.tables: list[ResultTable] = []
        self.notes: list[str] = []
        self._latest = 0.0

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        """Call once, keep the time under a name, and return what the call returned."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings on the result do not concern its time
            if self._latest > 1.0:
                gc.collect()  # what a large fit left would take memory that this one may use for features
            start = time.perf_counter()
            answer = call()
            self._latest = time.perf_counter() - start
        self.seconds.setdefault(name, []).append(self._latest)
        return answer

    def in_turns(
        self, calls: Mapping[str, Callable[[], Any]], *, warm_up: bool = True, most: int | None = None
    ) -> dict[str, Any]:
        """Time several calls in turns, so that other work slows all of them, and return the last answer of each.

        With ``warm_up`` each is first called once without being timed: the first call also loads libraries. ``most``
        limits how often slow calls are timed.
        """
        answers: dict[str, Any] = {}
        if warm_up:
            for name, call in calls.items():
                self.time(name, call)
                del self.seconds[name][-1]
        for _ in range(min(self.settings.repeats, most or self.settings.repeats)):
            for name, call in calls.items():
                answers[name] = None  # an earlier answer would take memory
                answers[name] = self.time(name, call)
        return answers

    def best(self, name: str) -> float:
        """Return the shortest time of what was timed under a name; longer times include other work."""
        return min(self.seconds[name])

    def figure(self, name: str, value: float, unit: str = "ratio", **limits: Any) -> float:
        """Keep a figure; ``limits`` are ``at_most`` or ``at_least``, or ``better`` where there is no target."""
        better = limits.pop("better", "higher" if limits.get("at_least") is not None else "lower")
        self.figures.append(Figure(name, float(value), unit, better=better, **limits))
        return float(value)

    def ratio(self, name: str, above: str, below: str, **limits: Any) -> float:
        """Keep the ratio of the shortest times of two things that were timed."""
        return self.figure(name, self.best(above) / self.best(below), **limits)

    def note(self, text: str) -> None:
        """Keep a sentence on how this run was made."""
        self.notes.append(text)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Content]]) -> None:
        """Keep a table beside the figures."""
        self.tables.append(ResultTable(title, columns, rows))

    def finish(self) -> int:
        """Print and write the result; return 1 if a target is missed, else 0."""
        if "=" in self.name:
            show.say("sizes are not the usual ones, which the targets are for")
        for note in self.notes:
            show.say(note)
        show.put(show.rendered(figure_table(self.name, [asdict(f) for f in self.figures])))
        for table in self.tables:
            show.put(show.rendered(table))
        write_result(Path(self.settings.results) / f"{self.name}.json", self.as_dict())
        missed = [f.name for f in self.figures if f.met is False]
        show.say(f"targets missed: {'; '.join(missed)}" if missed else "no target missed")
        return 1 if missed else 0

    def as_dict(self) -> dict[str, Any]:
        """Return the result, ready for JSON."""
        return {
            "name": self.name,
            "about": self.about,
            "version": fairerclip.__version__,
            "commit": commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": self.machine,
            "settings": {**self.kept_settings, "repeats": self.settings.repeats},
            "figures": [{**asdict(f), "target": f.target, "met": f.met} for f in self.figures],
            "seconds": {name: min(times) for name, times in self.seconds.items()},
            "tables": [
                {
                    "title": table.title,
                    "columns": list(table.columns),
                    "rows": [[c.value if isinstance(c, Cell) else c for c in row] for row in table.rows],
                }
                for table in self.tables
            ],
            "notes": self.notes,
        }


def options(repeats: int = 5) -> argparse.ArgumentParser:
    """Return a parser for the script that calls this, with the options that all benchmarks have."""
    caller = inspect.stack()[1].frame.f_globals
    parser = argparse.ArgumentParser(
        prog=Path(caller["__file__"]).stem,
        description=caller["__doc__"].strip().splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--repeats", type=_count, default=repeats, help="times that everything is timed")
    parser.add_argument("--results", default=str(RESULTS), help="folder of results")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1; got {value}")
    return value


def counts(text: str) -> tuple[int, ...]:
    """Return whole numbers that are separated by commas; the type of an option."""
    return tuple(_count(part) for part in text.split(","))


def _without_folder(value: Any) -> Any:
    """Return the value of an option; of a path, the name of the file only, because results name no folders."""
    return Path(value).name if isinstance(value, str) and os.sep in value else value


def _plain(value: Any) -> str:
    """Return the value of an option for the name of a file."""
    text = "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return re.sub(r"[^\w+-]+", "-", text)


def write_result(file: Path, result: Mapping[str, Any]) -> None:
    """Write a result with one line for each entry and each figure; a number that is not finite becomes null."""
    lines = []
    for key, value in _finite(result).items():
        one = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if isinstance(value, list) and value:
            items = (json.dumps(item, ensure_ascii=False, allow_nan=False) for item in value)
            one = "[\n  " + ",\n  ".join(items) + "]"
        lines.append(f" {json.dumps(key)}: {one}")
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file, overwrite=True) as handle:
        handle.write(("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def figure_table(title: str, figures: Sequence[Mapping[str, Any]]) -> ResultTable:
    """Return the table of figures."""
    rows: list[list[Content]] = []
    for entry in figures:
        names = ("name", "value", "unit", "at_most", "at_least", "better")
        known = {key: entry[key] for key in names}
        figure = Figure(**{**known, "value": math.nan if known["value"] is None else known["value"]})
        verdict = {None: None, True: "met", False: "missed"}[figure.met]
        unit = UNITS[figure.unit].strip() or None
        rows.append([figure.name, Cell(figure.value, "significant"), unit, figure.target, verdict])
    return ResultTable(title, ["figure", "measured", "unit", "target", ""], rows)


# The machine -----------------------------------------------------------------------------------------


def describe_machine() -> dict[str, Any]:
    """Describe processor, memory, versions and threads; nothing in it names the machine or a folder."""
    libraries = ("numpy", "scipy", "scikit-learn", "torch")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory(),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in libraries},
        "blas": _blas(),
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30), 1)
    except (AttributeError, OSError, ValueError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _blas() -> list[dict[str, Any]]:
    import scipy.linalg  # noqa: F401 - it may bring a BLAS of its own
    from threadpoolctl import threadpool_info

    keys = ("user_api", "internal_api", "version", "architecture", "num_threads")
    return [{key: pool[key] for key in keys if key in pool} for pool in threadpool_info()]


@cache
def commit() -> str | None:
    """Return the commit of the source, with a plus sign if files were changed since; None outside of a repository."""
    try:
        run = [
            subprocess.run(
                ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
            ).stdout
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", "src"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return run[0].strip() + "+" * bool(run[1].strip())
