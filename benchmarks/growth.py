"""Growth of the time of a fit with the number of rows: slope of log time on log n."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from harness import Benchmark, counts, options
from simulated_rows import FIXED, SimulatedRows

from fairerclip import FairerCLIP


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=3)
    parser.add_argument("--rows", type=counts, default=(10_000, 31_623, 100_000, 316_228, 1_000_000))
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--features", type=int, default=1000)
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    source = SimulatedRows(asked.width)
    rows = source.draw(max(asked.rows))

    def fit(
        n: int,
    ) -> None:  # the model is dropped: features that it keeps would take memory from the next fit
        model = FairerCLIP(n_features=asked.features, random_state=0, **FIXED)
        model.fit(rows.X[:n], rows.y[:n], **source.prompts)

    fit(min(1000, *asked.rows))  # the first call also loads libraries
    bench.note(f"p={asked.width}, D={asked.features}; the shortest of {asked.repeats} times of each size")
    names = {n: f"fit of {n} rows" for n in asked.rows}
    bench.in_turns({name: lambda n=n: fit(n) for n, name in names.items()}, warm_up=False)
    best = [bench.best(name) for name in names.values()]
    slope = np.polyfit(np.log(asked.rows), np.log(best), 1)[0]
    bench.figure("slope of log time on log n", slope, "slope", at_most=1.05)
    for n, name in names.items():
        bench.figure(f"rows fitted, n={n}", n / bench.best(name), "per second", better="higher")
    bench.draw_lines("rows n", "seconds of a fit", {f"fit, D={asked.features}": (list(names), best)})
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
