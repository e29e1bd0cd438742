"""A fit on a Dask cluster of two worker processes, over the same fit in two threads; a cost model checked against both.

The same rows are in a store on disk. Times are the shortest of several, taken in turns, because other work slows both.
``--estimate`` prints the table of docs/scale.md for 400 million rows from the rate that was measured here.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
from cluster_model import Machine, Shape, estimate, printed
from distributed import Client, LocalCluster

from fairerclip import FairerCLIP, distribute
from fairerclip.data.cluster_client import REUSED_MEMORY
from fairerclip.data.simulate import simulate
from fairerclip.data.stores import open_store
from fairerclip.model.automatic import LABELLED

LEAST_RATIO, EQUAL = 0.8, 1e-6


def write_rows(file: Path, n: int) -> tuple[np.ndarray, Any]:
    """Write n rows of float16, drawn from a simulated task with noise, and return their classes and the task."""
    task = simulate("waterbirds", seed=0)
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(task.train.X), size=n)
    out = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=(n, task.train.X.shape[1]))
    for start in range(0, n, 8192):
        rows = task.train.X[drawn[start : start + 8192]]
        out[start : start + 8192] = rows + 0.01 * rng.normal(size=rows.shape)
    out.flush()
    return task.train.y[drawn], task


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call and what it returns."""
    start = time.perf_counter()
    answer = call()
    return time.perf_counter() - start, answer


def main() -> None:
    """Measure, compare with the model, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--estimate", action="store_true", help="print the table for 400 million rows")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npy"
        y, task = write_rows(file, asked.rows)
        prompts = {"text": task.text_target, "sensitive_text": task.sensitive_attribute().text}

        def fit(X: Any, **more: Any) -> FairerCLIP:
            parameters = {**LABELLED, "n_features": asked.features, "random_state": 0}
            return FairerCLIP(**parameters).fit(X, y, **prompts, **more)

        measured, model = measure(file, fit, task, asked.repeats)
    shape = Shape(asked.rows, int(task.train.X.shape[1]), asked.features)
    machine = Machine.measured(shape, measured["threads"], cores=2)
    print(f"rate of a core: {machine.flops / 1e9:.1f} GFLOP/s in the whole fit (float32)")
    for workers in (1, 2):
        predicted = estimate(shape, machine, machines=workers, cores=1).seconds
        found = measured[f"{workers} workers"]
        print(
            f"{workers} workers: predicted {predicted:.1f} s, measured {found:.1f} s ({found / predicted:.2f})"
        )
    ratio = measured["threads"] / measured["2 workers"]
    print(
        f"2 workers over 2 threads: {ratio:.2f} of the rate (target {LEAST_RATIO}), "
        f"largest difference of scores {model:.1e} (target {EQUAL:.0e}); load {os.getloadavg()[0]:.1f}"
    )
    if asked.estimate:
        print(printed(machine))


def measure(
    file: Path, fit: Callable[..., FairerCLIP], task: Any, repeats: int
) -> tuple[dict[str, float], float]:
    """Return the shortest seconds of each way to fit, and the largest relative difference of scores between them."""
    seconds: dict[str, list[float]] = {}
    difference = 0.0
    settings = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "memory_limit": "1.4GB"}
    environment = {f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in REUSED_MEMORY.items()}
    with (
        dask.config.set(environment),  # as `--cluster local` does
        LocalCluster(n_workers=1, **settings) as one,
        LocalCluster(n_workers=2, **settings) as two,
        Client(one, set_as_default=False) as alone,
        Client(two, set_as_default=False) as both,
    ):
        ways = {
            "threads": lambda: fit(open_store(file)),
            "1 workers": lambda: fit(distribute(file, alone)),
            "2 workers": lambda: fit(distribute(file, both)),
        }
        for turn in range(repeats + 1):  # the first one loads libraries
            scores = {}
            for name, call in ways.items():
                taken, model = timed(call)
                scores[name] = model.scores(task.test.X)
                del model
                if turn:
                    seconds.setdefault(name, []).append(taken)
            largest = np.abs(scores["threads"]).max()
            for name in scores:
                difference = max(difference, float(np.abs(scores[name] - scores["threads"]).max() / largest))
        killed: list[int] = []

        def kill(done: int, total: int) -> None:
            if not killed:
                killed.append(next(iter(both.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        taken, model = timed(lambda: fit(distribute(file, both), progress=kill))
        lost = float(np.abs(model.scores(task.test.X) - scores["threads"]).max() / largest)
        print(
            f"a worker killed in the pass over the features: {taken:.1f} s, difference of scores {lost:.1e}"
        )
    return {name: min(times) for name, times in seconds.items()}, difference


if __name__ == "__main__":
    main()
