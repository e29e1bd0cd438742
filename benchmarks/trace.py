"""Modules that take part in one fit, one `fairerclip fit` and one `fairerclip audit`.

For each, ``python benchmarks/trace.py`` prints the number of modules of the package in which a function ran, of pairs
of modules with a call from one to the other, and of calls between modules. Each is run twice, and only the second run
is counted, so that imports are left out. These numbers are no targets: smaller modules make them larger.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import fairerclip
from fairerclip import FairerCLIP
from fairerclip.cli.main import main as command
from fairerclip.data import save_task, simulate

ROOT = str(Path(fairerclip.__file__).parent)


def crossings(call: Callable[[], object]) -> tuple[set[str], Counter[tuple[str, str]]]:
    """Return the modules in which a function ran, and the number of calls by pair of modules."""
    visited: set[str] = set()
    crossed: Counter[tuple[str, str]] = Counter()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        here = frame.f_code.co_filename
        if event != "call" or not here.startswith(ROOT) or frame.f_code.co_name == "<module>":
            return
        visited.add(here)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(ROOT):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != here:
            crossed[caller.f_code.co_filename, here] += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return visited, crossed


def run(*arguments: str) -> None:
    """Run a command of the command line."""
    sys.argv = ["fairerclip", *arguments, "--overwrite"]
    with contextlib.suppress(SystemExit):
        command()


def main() -> None:
    """Print one line for each of the three, and with ``--list`` the modules."""
    warnings.simplefilter("ignore")
    listed = "--list" in sys.argv
    task = simulate("waterbirds", seed=0)
    X, y, text = task.train.X, task.train.y, dict(enumerate(task.text_target))
    sensitive_text = task.sensitive_attribute().text
    model = FairerCLIP(n_features=200, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        file, out = str(save_task(task, Path(folder) / "task.npz")), f"{folder}/out"
        calls = {
            "FairerCLIP.fit": lambda: model.fit(X, y, text=text, sensitive_text=sensitive_text),
            "fairerclip fit": lambda: run("fit", file, "-o", f"{out}-model"),
            "fairerclip audit": lambda: run("audit", file, "-o", f"{out}-audit"),
        }
        for name, call in calls.items():
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                call()
                visited, crossed = crossings(call)
            total = sum(crossed.values())
            print(f"{name}: {len(visited)} modules, {len(crossed)} pairs of them, {total} calls across")
            if listed:
                print("".join(f"  {file.removeprefix(ROOT + '/')}\n" for file in sorted(visited)), end="")


if __name__ == "__main__":
    main()
