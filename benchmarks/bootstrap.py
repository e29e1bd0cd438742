"""Time of 1000 bootstrap replicates of all group figures, over one plain evaluation of the same rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from harness import Benchmark, options

from fairerclip.metrics import FIGURES, group_report


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure for several numbers of classes and sensitive values."""
    parser = options(repeats=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--replicates", type=int, default=1000)
    bench = Benchmark(parser, arguments)
    n, replicates = bench.settings.rows, bench.settings.replicates
    rng = np.random.default_rng(0)
    bench.note(f"{replicates} replicates of {len(FIGURES)} figures, n={n}")
    for c, k in ((2, 2), (2, 7), (7, 4)):
        y, s = rng.integers(c, size=n), rng.integers(k, size=n)
        p = np.where(rng.random(n) < 0.8, y, rng.integers(c, size=n))
        train = {(a, b): 1 + a + b for a in range(c) for b in range(k)}
        report = group_report(y, p, s, train_groups=train)
        size = f"{c} classes × {k} values"
        calls = {
            f"evaluation, {size}": lambda y=y, p=p, s=s, t=train: group_report(y, p, s, train_groups=t),
            f"bootstrap, {size}": lambda r=report: r.bootstrap(replicates, random_state=0),
        }
        bench.in_turns(calls, warm_up=False)
        names = list(calls)
        bench.ratio(f"bootstrap / plain evaluation, {size}", names[1], names[0], at_most=3.0)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
