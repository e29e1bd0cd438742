"""Print what became slower since the latest earlier version: ``python benchmarks/compare.py [--version V]``.

Every result of a version is compared with the same result, of the same settings, of the latest earlier version that has
it. Ratios are always compared; seconds and rates only if processor, cores and threads are the same. Exits with 1 if a
figure is worse by more than a fifth.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import FORMAT, MACHINE_UNITS, RESULTS

import fairerclip
from fairerclip._util.files import read_bounded
from fairerclip.cli import show
from fairerclip.errors import ParameterError
from fairerclip.report.result_table import Cell, ResultTable

WORSE = 0.2
LARGEST_FILE = 10 << 20


class Change(NamedTuple):
    """One figure of two versions; ``worse`` is the share by which it got worse, negative if it improved."""

    benchmark: str
    figure: str
    before: float | None
    after: float | None
    worse: float


def read_result(file: Path) -> dict[str, Any]:
    """Read a result of a benchmark."""
    result = json.loads(read_bounded(file, LARGEST_FILE, ParameterError))
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise ParameterError(f"{file}: expected a result of a benchmark ({FORMAT})")
    return result


def version_key(name: str) -> tuple[tuple[int, ...], bool, str]:
    """Return a key that sorts versions: numbers by value, and 1.0rc1 before 1.0."""
    numbers, rest = re.match(r"([\d.]*)(.*)", name).groups()  # type: ignore[union-attr] # it matches any text
    parts = [int(part) for part in numbers.split(".") if part]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts), not rest, rest


def earlier(results: Path, version: str, file: str) -> Path | None:
    """Return the same result of the latest earlier version that has it; None if none has."""
    versions = [folder.name for folder in results.iterdir() if (folder / file).is_file()]
    before = sorted((v for v in versions if version_key(v) < version_key(version)), key=version_key)
    return results / before[-1] / file if before else None


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the change of every figure that both results have, or only the old one."""
    same_machine = all(old["machine"].get(k) == new["machine"].get(k) for k in ("cpu", "cores", "blas"))
    now = {f["name"]: f for f in new["figures"]}
    for was in old["figures"]:
        found = now.get(was["name"])
        before, after = was["value"], None if found is None else found["value"]
        if before is None or (was["unit"] in MACHINE_UNITS and not same_machine):
            continue
        if after is None:
            yield Change(new["name"], was["name"], before, None, float("inf"))
        elif before > 0 and after > 0:
            ratio = after / before if was["better"] == "lower" else before / after
            yield Change(new["name"], was["name"], before, after, ratio - 1)


def compare(results: Path, version: str) -> tuple[list[Change], list[str]]:
    """Return all changes of a version, and sentences on what could not be compared."""
    found: list[Change] = []
    notes: list[str] = []
    folder = results / version
    if not folder.is_dir():
        raise ParameterError(f"there are no results of version {version} in {results.name}: run make bench")
    for file in sorted(folder.glob("*.json")):
        before = earlier(results, version, file.name)
        if before is None:
            notes.append(f"{file.stem}: no earlier version has this result")
            continue
        old, new = read_result(before), read_result(file)
        if old["machine"]["cpu"] != new["machine"]["cpu"]:
            notes.append(f"{file.stem}: version {before.parent.name} was measured on another processor")
        found += changes(old, new)
    return found, notes


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--version", default=fairerclip.__version__)
    asked = parser.parse_args(arguments)
    found, notes = compare(asked.results, asked.version)
    for note in notes:
        show.say(note)
    worse = [change for change in found if change.worse > WORSE]
    rows = [
        [c.benchmark, c.figure, Cell(c.before, "significant"), Cell(c.after, "significant")] for c in worse
    ]
    if rows:
        columns = ["benchmark", "figure", "before", "now"]
        show.put(show.rendered(ResultTable(f"worse by more than {WORSE:.0%}", columns, rows, left=2)))
    show.say(f"{len(found)} figures compared, {len(worse)} worse by more than {WORSE:.0%}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
