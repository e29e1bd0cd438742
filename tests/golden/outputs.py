"""Record what the commands say and write about five simulated tasks, two studies and calls that are refused.

``python tests/golden/outputs.py`` records every part anew below ``outputs``; ``--check`` records elsewhere, prints how
the two differ and exits with 1 if they do. Names of parts after it restrict both. `test_golden_outputs` compares, too:
numbers, predictions, tensors and exit codes must never change; texts may, on purpose, with a line in
``outputs/CHANGES.md``. Only the command line and documented imports are used, so that everything else can move.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest.mock import patch

HOME = Path(__file__).parent / "outputs"
Call = Callable[..., tuple[int, str, str]]
"""The command line in process: arguments → exit code, standard output, standard error."""
KERNEL = "Haswell"
"""Kernels of BLAS that outputs are recorded with, and that `make test` sets: others round in other places."""
WIDTH = 110
"""Columns of the tables that commands print."""

# --- What differs from run to run ---------------------------------------------------------------------------------

GONE = "…"
RUN_KEYS = {"seconds", "seconds_in_all", "peak_mb", "made", "fairerclip_version"}
"""Keys of JSON whose values are times, memory, dates, versions or facts of the machine."""
DATE = r"\b\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\dZ)?"
RUN_TEXTS = (
    (DATE, "DATE"),
    (r"\b(in|took|Fitting:) \d+(\.\d+)? s\b", r"\1 … s"),
    (r"(seconds to fit\D{1,80}?)\d+(\.\d+)?", r"\1…"),
    (r"\b(fairerclip|python|numpy|scipy|scikit-learn)(</bdi>)? \d+\.\d+[\w.]*", r"\1\2 VERSION"),
)
RUN_COLUMNS = re.compile(r"\w+, s\b|MB\b|seconds")
"""Heads of table columns whose cells are times or memory."""


def normalised(value: Any) -> Any:
    """Take out what differs from run to run: times, memory, dates, versions; of JSON values, or of text."""
    if isinstance(value, dict):
        return {key: GONE if key in RUN_KEYS else normalised(held) for key, held in value.items()}
    if isinstance(value, list):
        return [normalised(held) for held in value]
    if not isinstance(value, str):
        return value
    for pattern, instead in RUN_TEXTS:
        value = re.sub(pattern, instead, value)
    return "\n".join(_without_times(value.split("\n")))


def _without_times(lines: list[str]) -> Iterator[str]:
    """Lines whose tables, drawn or Markdown, have no cells of time or memory."""
    spans: list[tuple[int, int]] = []
    columns: list[int] = []
    for line in lines:
        if line.startswith("|"):
            cells = line.split("|")
            if not columns:
                columns = [k for k, cell in enumerate(cells) if RUN_COLUMNS.search(cell)] or [-1]
            elif not set(line) <= set("|-: "):
                cells = [GONE if k in columns else cell for k, cell in enumerate(cells)]
            yield "|".join(cells)
            continue
        columns = []
        found = [match.span() for match in RUN_COLUMNS.finditer(line)] if line.startswith("  ") else []
        spans = found or (spans if line.strip() else [])
        for start, end in () if found else spans:
            line = line[:start] + re.sub(r"\d", "0", line[start:end]) + line[end:]
        yield line


# --- What is kept of what is long ---------------------------------------------------------------------------------

MOST_ROWS = 40
"""Rows of a CSV table that are kept of a longer one."""


def thinned(text: str) -> str:
    """A CSV table whole; of a long one evenly spaced rows, and how many there are with the sum of each column."""
    rows = list(csv.reader(io.StringIO(text)))
    head, body = rows[0], rows[1:]
    if len(body) <= MOST_ROWS:
        return text
    sums = [repr(sum(map(_number, cells))) for cells in zip(*body, strict=True)]
    kept = [head, *body[:: -(-len(body) // MOST_ROWS)], [f"{len(body)} rows, sums:"], sums]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(kept)
    return out.getvalue()


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return 0.0


def digest(data: bytes | str) -> str:
    """Short enough not to be taken for the hash of a tensor."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]


class Outline(HTMLParser):
    """The words of a page, a line per block, and digests of its sections' markup, style and script.

    The results in it are compared with those of the file; what differs is kept.
    """

    BLOCKS = frozenset(
        (
            *("title", "h1", "h2", "h3", "p", "li", "tr", "dt", "dd", "caption", "figcaption", "summary"),
            *("legend", "label", "button", "section", "div"),
        )
    )

    def __init__(self, page: str, results: dict[str, Any]) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._results, self._words, self._held = results, [], ""
        page = re.sub(DATE, "DATE", page)
        for part in re.split(r"(?=<section)", re.sub(r"(?s)<(style|script).*?</\1>", "", page)):
            self.lines.append(f"markup {digest(part)}, {len(part)} characters: {part[:60].splitlines()[0]}")
        self.feed(page)

    def _end_block(self) -> None:
        words = " ".join("".join(self._words).split())
        self.lines += [words] if words else []
        self._words = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.BLOCKS:
            self._end_block()
        if tag in ("th", "td"):
            self._words.append(" | ")
        self._held = (dict(attrs).get("id") or tag) if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        if tag in self.BLOCKS:
            self._end_block()
        self._held = ""

    def handle_data(self, data: str) -> None:
        if not self._held:
            self._words.append(data)
            return
        if self._held == "results":
            held = normalised(json.loads(data))
            other = {key: value for key, value in held.items() if self._results.get(key) != value}
            data = f"as in results.json but {json.dumps(other)}, without {sorted({*self._results} - {*held})}"
        elif self._held != "names":
            data = f"{digest(data)}, {len(data)} characters"
        self.lines.append(f"{self._held}: {data}")


# --- The parts ----------------------------------------------------------------------------------------------------


class Recorder:
    """Calls commands in the present folder and writes what comes of them below another one."""

    def __init__(self, folder: Path, call: Call) -> None:
        self.folder, self._call = folder, call
        self.exits: dict[str, int] = {}

    def run(self, *arguments: object, text: str | None = None) -> str:
        """Call a command, keep its exit code, and what it says as a text file; its standard output."""
        code, out, err = self._call(*arguments)
        self.exits[" ".join(map(str, arguments))] = code
        if text is not None:
            self.write(text, f"{out}--- standard error\n{err}")
        return out

    def write(self, name: str, text: str) -> None:
        """A text file, normalised."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(normalised(text), encoding="utf-8")

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file, normalised; rows of numbers stay on one line."""
        text = json.dumps(normalised(value), indent=1, ensure_ascii=False)
        short = re.sub(r"\[\s*([^][{}\"]*?)\s*\]", lambda match: f"[{' '.join(match[1].split())}]", text)
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(short + "\n", encoding="utf-8")

    def end(self) -> None:
        """Write the exit codes."""
        self.write_json("exits.json", self.exits)


def _task(name: str) -> Any:
    """One of the five tasks, cut down in rows."""
    import numpy as np

    from fairerclip.data import simulate

    kind, scale, width = {
        "two-classes": ("waterbirds", 0.04, 32),
        "missing-labels": ("celeba", 0.0015, 32),
        "many-classes": ("multiclass", 0.05, 48),
        "gallery": ("gallery", 0.03, 48),
        "scarce-labels": ("cheekbones", 0.004, 32),
    }[name]
    task = simulate(kind, seed=1, scale=scale, width=width)
    rng = np.random.default_rng(2)

    def some_unknown(codes: Any, share: float) -> Any:
        return np.where(rng.random(len(codes)) < share, -1, codes)

    splits = dict(task.splits)
    for split, rows in task.splits.items():
        if name == "missing-labels":
            s = {key: some_unknown(codes, 0.1) for key, codes in rows.s.items()}
            splits[split] = replace(rows, y=some_unknown(rows.y, 0.3), s=s)
        elif (
            name == "scarce-labels"
        ):  # none in training, no sensitive ones in validation, half of the classes in test
            y = {"train": None, "val": rows.y, "test": some_unknown(rows.y, 0.5)}[split]
            ids = np.array([f"{split}/{k}" for k in range(len(rows))])
            splits[split] = replace(rows, y=y, s=rows.s if split == "test" else {}, ids=ids)
    return replace(task, splits=splits)


def _record_task(name: str, to: Recorder) -> None:
    from fairerclip.data import save_task

    task = _task(name)
    file = save_task(task, Path(f"{name}.npz"))
    both = ("--sensitive", "sex,race") if name == "gallery" else ()
    one = ("--sensitive", "sex") if name == "gallery" else ()
    seeds = 2 if name == "two-classes" else 1

    by_hand = ("--set", "n_features=64") if name == "many-classes" else ()  # an audit that does not tune
    quick = ("--seeds", seeds, "--permutations", 19, *both, *by_hand)
    mitigate = ("audit", file, "--mitigate", *quick, "-o", "results.json")
    for_machines = name in ("two-classes", "gallery")  # the others say it once, in words
    said = to.run(*mitigate, "--json") if for_machines else to.run(*mitigate, "--verbose", text="audit.txt")
    results = json.loads(Path("results.json").read_text(encoding="utf-8"))
    to.write_json("results.json", results)
    known = normalised(results)
    if for_machines:
        printed = normalised(json.loads(said))
        to.write_json("audit.json", {key: held for key, held in printed.items() if known.get(key) != held})

    to.run("report", "results.json", "-o", "report.md", text="report.txt")
    to.write("report.md", Path("report.md").read_text(encoding="utf-8"))
    to.run("report", "results.json", "-o", "card.md", "--format", "card")
    to.write("card.md", Path("card.md").read_text(encoding="utf-8"))
    to.run("report", "results.json", "-o", "page.html")
    page = Outline(normalised(Path("page.html").read_text(encoding="utf-8")), known)
    to.write("page.txt", "\n".join(page.lines) + "\n")
    to.run("report", "results.json", "-o", "tables", "--format", "csv")
    for table in sorted(Path("tables").glob("*.csv")):
        to.write(f"tables/{table.name}", thinned(table.read_text(encoding="utf-8")))

    fitted = json.loads(to.run("fit", file, "-o", "model", *one, "--json"))
    to.write_json("fit.json", fitted)
    given = () if for_machines else ("--tau", 0.5, "--set", "n_features=64")
    to.run("fit", file, "-o", "other", *one, *given, "--verbose", text="fit.txt")
    for model in ("model", "other"):
        _record_model(model, task.test.X, to)
    to.run("apply", "model", file, "-o", "predictions.csv", text="apply.txt")
    to.write("predictions.csv", Path("predictions.csv").read_text(encoding="utf-8"))

    if for_machines:
        to.run("audit", file, "--after", "other", "--permutations", 19, *one, "--verbose", text="audit.txt")
    path = ("path", file, "--taus", "0:0.8:3", "--set", "n_features=64", *one)
    to.run(*path, text="path.txt")
    to.write_json("path.json", json.loads(to.run(*path, "--json")))


def _record_model(name: str, X: Any, to: Recorder) -> None:
    """Tensors, manifest and answers of a saved model."""
    import numpy as np
    from safetensors.numpy import load_file

    from fairerclip import FairerCLIP

    (file,) = Path(name).glob("*.safetensors")
    tensors = {
        key: {
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype),
            "sha256": hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).hexdigest(),
            "sum": float(np.sum(tensor, dtype=np.float64)),
            "sum_of_squares": float(np.sum(np.square(tensor, dtype=np.float64))),
        }
        for key, tensor in sorted(load_file(file).items())
    }
    whole = hashlib.sha256(file.read_bytes()).hexdigest()
    to.write_json(f"{name}-tensors.json", {"file": {"sha256": whole}, "tensors": tensors})
    (manifest,) = Path(name).glob("*.json")
    kept = normalised(json.loads(manifest.read_text(encoding="utf-8")))
    to.write(f"{name}-manifest.txt", "".join(f"{line}\n" for line in _keys(kept)))
    model = FairerCLIP.load(name)
    scores = [[float(f"{value:.12e}") for value in row] for row in model.scores(X[:12]).tolist()]
    to.write_json(f"{name}-answers.json", {"predicted": model.predict(X).tolist(), "scores": scores})


def _keys(value: Any, prefix: str = "") -> Iterator[str]:
    """Names of what a manifest holds, a line each, those of a list's entries once."""
    if isinstance(value, list):
        value = {"*": value[0]} if value and isinstance(value[0], dict) else None
    if not isinstance(value, dict) or not value:
        yield prefix
        return
    for key, held in value.items():
        yield from _keys(held, f"{prefix}.{key}" if prefix else key)


def _record_studies(_: str, to: Recorder) -> None:
    from fairerclip.data import save_task

    Path("suite").mkdir()
    file = save_task(_task("two-classes"), Path("suite/waterbirds.npz"))
    named = ("--methods", "zero-shot,orth-proj,probe", "--seeds", 1, "--jobs", 1)
    to.run("compare", file, *named, "-o", "compared", text="compare.txt")
    to.write_json("comparison.json", json.loads(Path("compared/comparison.json").read_text(encoding="utf-8")))
    to.write("comparison.md", Path("compared/comparison.md").read_text(encoding="utf-8"))
    to.run("fit", file, "-o", "leace", "--method", "leace", "--verbose", text="fit-leace.txt")
    to.run("apply", "leace", file, "-o", "best.csv", "--top", 3, text="apply-leace.txt")
    to.write("best.csv", Path("best.csv").read_text(encoding="utf-8"))
    entries = ("heatmaps", "models", "implementation")
    to.run(
        *("reproduce", *entries, "--suite", "suite", "--quick", "--jobs", 1, "-o", "out"),
        text="reproduce.txt",
    )
    for name in entries:
        to.write_json(f"{name}.json", json.loads(Path(f"out/{name}.json").read_text(encoding="utf-8")))
        to.write(f"{name}.md", Path(f"out/{name}.md").read_text(encoding="utf-8"))


def _record_refusals(_: str, to: Recorder) -> None:
    from fairerclip.data import save_task

    save_task(_task("gallery"), Path("gallery.npz"))
    birds = _task("two-classes")
    save_task(birds, Path("birds.npz"))
    no_groups = {name: replace(rows, s={}) for name, rows in birds.splits.items()}
    save_task(replace(birds, splits=no_groups), Path("no-groups.npz"))
    Path("text.npz").write_text("not an archive")
    Path("results.json").write_text('{"format": "other"}')
    calls: tuple[tuple[object, ...], ...] = (
        ("audit", "gone.npz"),
        ("audit", "text.npz", "--json"),
        ("audit", "birds.npz", "--seeds", 2),
        ("audit", "gallery.npz", "--sensitive", "sox"),
        ("audit", "no-groups.npz"),
        ("fit", "birds.npz"),
        ("fit", "birds.npz", "-o", "model", "--tau", 2, "--json"),
        ("fit", "birds.npz", "-o", "model", "--set", "taau=1"),
        ("fit", "birds.npz", "-o", "birds.npz"),
        ("path", "gallery.npz", "--sensitive", "sex,race"),
        ("apply", "gone", "birds.npz", "-o", "out.csv"),
        ("report", "results.json", "-o", "page.html"),
        ("report", "results.json", "--format", "docx"),
        ("compare", "birds.npz", "--methods", "magic"),
        ("reproduce", "table-9"),
        ("simulate",),
    )
    for call in calls:
        to.run(*call, text=f"{len(to.exits) + 1:02}-{call[0]}.txt")


TASKS = ("two-classes", "missing-labels", "many-classes", "gallery", "scarce-labels")
PARTS: dict[str, Callable[[str, Recorder], None]] = {
    **dict.fromkeys(TASKS, _record_task),
    "studies": _record_studies,
    "refusals": _record_refusals,
}


def record(name: str, folder: Path, call: Call) -> None:
    """Record one part below a folder."""
    from rich.console import Console, ConsoleDimensions

    to = Recorder(folder.resolve() / name, call)
    # Whatever COLUMNS said when the console was made: pytest's workers have one of their own.
    size = property(lambda _: ConsoleDimensions(WIDTH, 25))
    wide = patch.multiple(Console, size=size, width=property(lambda _: WIDTH))
    with wide, tempfile.TemporaryDirectory() as work, chdir(work):
        PARTS[name](name, to)
    to.end()


# --- As a program -------------------------------------------------------------------------------------------------


def call_here(*arguments: object) -> tuple[int, str, str]:
    """Call the command line in this process."""
    from fairerclip.cli.main import main as command

    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["fairerclip", *map(str, arguments)]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    code: Any = 0
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            command()
    except SystemExit as stop:
        code = stop.code or 0
    finally:  # it ends a process, and ignores signals from there on
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return code, out.getvalue(), err.getvalue()


def files_below(folder: Path) -> dict[str, str]:
    """Name → text of every recorded file."""
    found = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8") for file in found}


def differences(name: str, folder: Path) -> Iterator[str]:
    """Lines of a unified diff between what is recorded of a part and what is below a folder."""
    old, new = files_below(HOME / name), files_below(folder / name)
    for file in sorted({*old, *new}):
        before, after = (held.get(file, "").splitlines() for held in (old, new))
        yield from difflib.unified_diff(
            before, after, f"recorded/{name}/{file}", f"now/{name}/{file}", lineterm=""
        )


def main() -> int:
    """Record or check; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"Parts: {', '.join(PARTS)}. Default: all.")
    parser.add_argument("--check", action="store_true", help="Write nothing; show differences.")
    chosen = parser.parse_args()
    if unknown := {*chosen.names} - {*PARTS}:
        parser.error(f"no parts {sorted(unknown)}; there are {', '.join(PARTS)}")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy is not loaded yet
    changed = False
    for name in chosen.names or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            record(name, Path(folder), call_here)
            for line in differences(name, Path(folder)):
                changed = True
                sys.stdout.write(f"{line}\n" if chosen.check else "")
            if not chosen.check:
                shutil.rmtree(HOME / name, ignore_errors=True)
                shutil.copytree(Path(folder) / name, HOME / name)
    return int(chosen.check and changed)


if __name__ == "__main__":
    os.environ["OPENBLAS_CORETYPE"] = KERNEL  # before numpy is imported
    sys.exit(main())
