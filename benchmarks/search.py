"""Time of a whole search with validation rows at the size of CelebA, over one fit of the same D."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from harness import Benchmark, options
from simulated_rows import FIXED, SimulatedRows

from fairerclip import FairerCLIP, FairerCLIPSearch


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=3)
    parser.add_argument("--rows", type=int, default=162_770)
    parser.add_argument("--validation", type=int, default=19_867, help="validation rows")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--features", type=int, default=1000)
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    source = SimulatedRows(asked.width)
    rows, judged = source.draw(asked.rows), source.draw(asked.validation, first=10_000)

    # Models are dropped: features that they keep would take memory from the next fit.
    def fit(n: int) -> None:
        model = FairerCLIP(n_features=asked.features, random_state=0, **FIXED)
        model.fit(rows.X[:n], rows.y[:n], **source.prompts)

    def search() -> tuple[int, str]:
        found = FairerCLIPSearch(FairerCLIP(n_features=asked.features, random_state=0))
        found.fit(rows.X, rows.y, validation=tuple(judged), **source.prompts)
        return len(found.results_), found.strategy_

    bench.note(
        f"n={len(rows.X)} and {len(judged.X)} validation rows, p={asked.width}, D={asked.features}; the fit has fixed "
        "parameters, the search is the default one"
    )
    fit(min(1000, asked.rows))  # the first call also loads libraries
    answers = bench.in_turns({"fit": lambda: fit(asked.rows), "search": search}, warm_up=False)
    candidates, strategy = answers["search"]
    bench.note(f"the search had {candidates} candidates and chose: {strategy}")
    bench.ratio("search / fit", "search", "fit", at_most=4.0)
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
