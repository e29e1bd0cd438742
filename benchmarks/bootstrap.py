"""Time of 1000 bootstrap replicates of all group figures, as a ratio to one plain evaluation of the same rows."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from fairerclip.metrics import FIGURES, group_report

TARGET = 3.0


def best_of(function: Callable[[], object], repeats: int) -> float:
    """Return the shortest time of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the ratio for several numbers of classes and sensitive values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--replicates", type=int, default=1000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"{options.replicates} replicates of {len(FIGURES)} figures, n={options.rows}; target ≤ {TARGET:g}")
    print("| classes × values | plain evaluation, s | bootstrap, s | ratio |\n|---|---|---|---|")
    for c, k in ((2, 2), (2, 7), (7, 4)):
        y, s = rng.integers(c, size=options.rows), rng.integers(k, size=options.rows)
        p = np.where(rng.random(options.rows) < 0.8, y, rng.integers(c, size=options.rows))
        train = {(a, b): 1 + a + b for a in range(c) for b in range(k)}
        plain = best_of(lambda y=y, p=p, s=s, t=train: group_report(y, p, s, train_groups=t), 3)
        report = group_report(y, p, s, train_groups=train)
        boot = best_of(lambda r=report: r.bootstrap(options.replicates, random_state=0), 3)
        print(f"| {c} × {k} | {plain:.3f} | {boot:.3f} | {boot / plain:.3f} |")


if __name__ == "__main__":
    main()
