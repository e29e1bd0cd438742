"""Fit of rows that are larger than the memory should be: peak memory, and rate over the same fit in memory.

The rows are float16 in a .npy file that is written first, by blocks. Every fit runs in a process of its own, so that
the peak of its memory, which also counts pages of files that the process has mapped, is that of the fit. The file is
dropped from the cache of the system before each fit, where the system allows it, so that it is read from disk. The fit
in memory has float32 rows, as many as fit.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import ROOT, Benchmark, options
from simulated_rows import FIXED, SimulatedRows

from fairerclip._util.memory import peak_memory

MEMORY_SHARE = 0.25
"""Share of the free memory that the rows of the fit in memory may take."""
DISK_SHARE = 0.5
"""Share of the free disk space that the file may take."""
SAMPLE_SECONDS = 0.05
"""Time between two looks at the memory that is not mapped from files."""


class OwnMemory(threading.Thread):
    """Peak of the memory of this process that is not mapped from files, in MB; needs Linux, 0 elsewhere."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self._ended = 0.0, threading.Event()

    def run(self) -> None:
        """Look at the memory until `end` is called."""
        while not self._ended.wait(SAMPLE_SECONDS):
            try:
                lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            except OSError:
                return
            own = sum(int(entry.split()[1]) for entry in lines if entry.startswith("RssAnon"))
            self.peak = max(self.peak, own / 1024)

    def end(self) -> float:
        """Stop, and return the peak."""
        self._ended.set()
        self.join()
        return self.peak


def child(arguments: Sequence[str]) -> int:
    """Fit the rows of a file, streamed or in memory, and print rows, seconds and peak memory as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--features", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--in-memory", action="store_true")
    asked = parser.parse_args(arguments)
    from fairerclip import FairerCLIP
    from fairerclip.data import open_store

    prompts = np.load(asked.folder / "prompts.npz")
    X: Any = open_store(asked.folder / "rows.npy")
    y = np.load(asked.folder / "y.npy")[: asked.rows]
    if asked.in_memory:
        X = np.asarray(X[: asked.rows], dtype=np.float32)
    model = FairerCLIP(n_features=asked.features, random_state=0, **FIXED)
    memory = OwnMemory()
    memory.start()
    start = time.perf_counter()
    model.fit(X, y, text=prompts["text"], sensitive_text=prompts["sensitive_text"])
    seconds = time.perf_counter() - start
    answer = {"seconds": seconds, "peak_mb": peak_memory(), "own_mb": memory.end(), "rows": len(y)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def run_child(folder: Path, features: int, rows: int, *, in_memory: bool) -> dict[str, float]:
    """Run one fit in a process of its own, after dropping the file from the system's cache."""
    drop_from_cache(folder / "rows.npy")
    words = [sys.executable, str(Path(__file__).resolve()), "child", str(folder)]
    words += ["--features", str(features), "--rows", str(rows), *["--in-memory"] * in_memory]
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def drop_from_cache(file: Path) -> bool:
    """Drop a file from the cache of the system; return False where the system has no way to ask for it."""
    if not hasattr(os, "posix_fadvise"):
        return False
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def affordable(bench: Benchmark, folder: Path) -> tuple[int, int]:
    """Return the numbers of rows on disk and in memory that are asked for, or fewer if there is no space for them."""
    asked = bench.settings
    most = int(DISK_SHARE * shutil.disk_usage(folder).free) // (2 * asked.width)
    if most < asked.rows:
        bench.note(f"the disk has space for {most:,} of the {asked.rows:,} rows that were asked for")
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fitting = int(MEMORY_SHARE * free) // (4 * asked.width)
    on_disk = min(most, asked.rows)
    in_memory = min(on_disk, fitting, asked.memory_rows)
    bench.note(
        f"{on_disk:,} rows on disk ({on_disk * asked.width * 2 / 1e9:.2f} GB), {in_memory:,} in memory"
    )
    return on_disk, in_memory


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=1)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--memory-rows", type=int, default=2_000_000, help="most rows of the fit in memory")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--distinct", type=int, default=64, help="blocks that are drawn; they are repeated")
    parser.add_argument("--folder", default=None, help="where to write the rows; default: a temporary folder")
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        on_disk, in_memory = affordable(bench, folder)
        source = SimulatedRows(asked.width)
        y = source.write(folder / "rows.npy", on_disk, asked.distinct)
        np.save(folder / "y.npy", y.astype(np.int8))
        np.savez(folder / "prompts.npz", text=source.text, sensitive_text=source.sensitive_text)
        if not drop_from_cache(folder / "rows.npy"):
            bench.note("this system cannot be asked to drop a file from its cache: rows may come from there")
        answers: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        for _ in range(asked.repeats):
            for kind, n in ((True, in_memory), (False, on_disk)):
                answers[kind].append(run_child(folder, asked.features, n, in_memory=kind))
    bench.seconds["fit in memory"] = [a["seconds"] for a in answers[True]]
    bench.seconds["fit from disk"] = [a["seconds"] for a in answers[False]]
    rates = {kind: max(a["rows"] / a["seconds"] for a in found) for kind, found in answers.items()}
    peak = max(a["peak_mb"] for a in answers[False])
    bench.figure("peak memory of the fit from disk", peak, "MB", at_most=1024.0)
    own = max(a["own_mb"] for a in answers[False])
    bench.figure("of it not mapped from files", own, "MB")
    bench.figure("rate from disk / rate in memory", rates[False] / rates[True], at_least=0.8)
    bench.figure("rows fitted from disk", rates[False], "per second", better="higher")
    bench.figure("rows fitted in memory", rates[True], "per second", better="higher")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(child(sys.argv[2:]) if sys.argv[1:2] == ["child"] else main())
