"""Run the quick benchmarks one after another, and sum up: ``python benchmarks/run.py [--only NAME,NAME]``.

A missed target or a failure does not stop the rest. Exits with 1 if a target was missed or a benchmark failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness import RESULTS, ROOT

from fairerclip._util.numbers import significant
from fairerclip.cli import show

FOLDER = Path(__file__).resolve().parent
QUICK = (
    *("imports", "closed_form", "folds", "bootstrap", "probe_path", "transform", "predict", "serve", "embed"),
    "join --rows 1000000",
    "peers --max-steps 300",
)
"""A few minutes on two cores."""


def run(words: Sequence[str], results: Path) -> str:
    """Run one benchmark, and return how it ended."""
    script = FOLDER / f"{words[0]}.py"
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, str(script), *words[1:], "--results", str(results)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, check=False)
    return {0: "no target missed", 1: "target missed or failed"}.get(done.returncode, "failed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and sum up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=None, help="names of benchmarks, separated by commas")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
    asked = parser.parse_args(arguments)
    chosen = QUICK
    if asked.only is not None:
        names = asked.only.split(",")
        unknown = set(names) - {line.split()[0] for line in chosen}
        if unknown:
            parser.error(f"expected names of quick benchmarks; got {min(unknown)!r}")
        chosen = tuple(line for line in chosen if line.split()[0] in names)
    ended = {}
    for line in chosen:
        show.head(f"\n{line}")
        began = time.perf_counter()
        how = run(line.split(), asked.results)
        ended[line] = f"{how}, {significant(time.perf_counter() - began)} s"
    rows = [[line, how] for line, how in ended.items()]
    show.put(show.plain_table("\nSummary", ["benchmark", "end"], rows, left=(0, 1)))
    return int(any(how.startswith(("target", "failed")) for how in ended.values()))


if __name__ == "__main__":
    sys.exit(main())
