"""A fit on a Dask cluster of two worker processes, over the same fit in two threads; a cost model checked against both.

The same rows are in a store on disk. Times are the shortest of several, taken in turns, because other work slows both.
The last note is the table of docs/benchmarks/scaling.md for 400 million rows, from the rate that was measured here.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
from cluster_model import Machine, Shape, estimate, printed
from distributed import Client, LocalCluster
from harness import Benchmark, options

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and compare with the model."""
    parser = options(repeats=3)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--features", type=int, default=1000)
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npy"
        y, task = write_rows(file, asked.rows)
        prompts = {"text": task.text_target, "sensitive_text": task.sensitive_attribute().text}

        def fit(X: Any, **more: Any) -> FairerCLIP:
            parameters = {**LABELLED, "n_features": asked.features, "random_state": 0}
            return FairerCLIP(**parameters).fit(X, y, **prompts, **more)

        measure(bench, file, fit, task)
    shape = Shape(asked.rows, int(task.train.X.shape[1]), asked.features)
    machine = Machine.measured(shape, bench.best("threads"), cores=2)
    bench.note(f"rate of a core in the whole fit: {machine.flops / 1e9:.1f} GFLOP/s")
    for workers in (1, 2):
        predicted = estimate(shape, machine, machines=workers, cores=1).seconds
        found = bench.best(f"{workers} workers")
        bench.figure(f"{workers} workers: time / time of the cost model", found / predicted, better="lower")
    bench.ratio("rate of 2 workers / rate of 2 threads", "threads", "2 workers", at_least=LEAST_RATIO)
    bench.note("400 million rows:\n" + printed(machine))
    return bench.finish()


def measure(bench: Benchmark, file: Path, fit: Callable[..., FairerCLIP], task: Any) -> None:
    """Time each way to fit in turns, and compare their scores."""
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
        for turn in range(bench.settings.repeats + 1):  # the first one loads libraries
            scores = {}
            for name, call in ways.items():
                model = bench.time(name, call) if turn else call()
                scores[name] = model.scores(task.test.X)
                del model
            largest = np.abs(scores["threads"]).max()
            for name in scores:
                difference = max(difference, float(np.abs(scores[name] - scores["threads"]).max() / largest))
        killed: list[int] = []

        def kill(done: int, total: int) -> None:
            if not killed:
                killed.append(next(iter(both.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        model = bench.time("2 workers, one killed", lambda: fit(distribute(file, both), progress=kill))
        lost = float(np.abs(model.scores(task.test.X) - scores["threads"]).max() / largest)
    bench.figure("largest difference of scores", difference, at_most=EQUAL)
    bench.figure("largest difference of scores, a worker killed", lost, at_most=EQUAL)


if __name__ == "__main__":
    sys.exit(main())
