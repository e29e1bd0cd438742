"""Write the tables of docs/benchmarks/speed.md from the results of a version: ``python benchmarks/table.py [--check]``.

The tables stand between two marks of the page. With ``--check`` the page is left as it is, and the exit code is 1 if it
does not have them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compare import read_result
from harness import RESULTS, ROOT, figure_table
from run import FULL, QUICK, result_name

import fairerclip
from fairerclip._util.files import atomic_file
from fairerclip._util.markdown_text import escape
from fairerclip._util.numbers import significant
from fairerclip.cli import show
from fairerclip.report.result_table import Cell, ResultTable, to_markdown

PAGE = ROOT / "docs" / "benchmarks" / "speed.md"
BEGIN, END = "<!-- results: written by benchmarks/table.py -->\n", "<!-- end of results -->\n"


def machine_sentence(result: dict[str, Any]) -> str:
    """Describe in one sentence on what, and with what load, a result was measured."""
    machine = result["machine"]
    blas = next((pool for pool in machine["blas"] if pool.get("user_api") == "blas"), None)
    parts = [
        machine["cpu"],
        f"{machine['cores']} cores",
        *([f"{significant(machine['memory_gb'])} GB"] if machine["memory_gb"] else []),
        f"Python {machine['python']}",
        f"numpy {machine['libraries']['numpy']}",
        *([f"{blas['internal_api']} {blas['version']}, {blas['num_threads']} threads"] if blas else []),
    ]
    load = machine["load_before"]
    busy = "" if load is None else f"; load of the machine before: {significant(load)}"
    return f"{result['date']}, commit {result['commit'] or 'unknown'}: {', '.join(parts)}{busy}."


def tables(results: Path, version: str) -> str:
    """Return the Markdown of the results of a version, in the order in which `run.py` measures them."""
    paths = [results / version / f"{result_name(entry)}.json" for entry in (*QUICK, *FULL)]
    files = [file for file in paths if file.is_file()]
    if not files:
        return f"No results of version {version} are kept yet.\n\n"
    lines = [f"Version {version}.", ""]
    for file in files:
        result = read_result(file)
        lines += [f"### {escape(result['name'])}", "", escape(result["about"]), ""]
        lines += to_markdown(figure_table(result["name"], result["figures"]))
        for entry in result["tables"]:
            rows = [
                [Cell(c, "significant") if isinstance(c, float) else c for c in row] for row in entry["rows"]
            ]
            table = ResultTable(entry["title"], entry["columns"], rows)
            lines += [f"{escape(table.title)}:", "", *to_markdown(table)]
        lines += [" ".join([*map(escape, _sentences(result["notes"])), escape(machine_sentence(result))]), ""]
    return "\n".join(lines) + "\n"


def _sentences(notes: Sequence[str]) -> list[str]:
    return [note if note.endswith(".") else f"{note}." for note in notes]


def page_with(text: str, content: str) -> str:
    """Return the text of the page with other content between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE.name} lacks the marks {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}{content}{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    parser.add_argument("--version", default=fairerclip.__version__)
    parser.add_argument("--page", type=Path, default=PAGE, help="page to write to")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page differs")
    asked = parser.parse_args(arguments)
    text = asked.page.read_text(encoding="utf-8")
    wanted = page_with(text, tables(asked.results, asked.version))
    if asked.check:
        show.say("the page has these results" if wanted == text else "the page has other results")
        return int(wanted != text)
    with atomic_file(asked.page, overwrite=True) as handle:
        handle.write(wanted.encode())
    show.say(f"{asked.page.name}: results of version {asked.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
