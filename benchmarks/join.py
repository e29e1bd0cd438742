"""Time of joining ids of embeddings with ids of labels, over sorting the same ids."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from harness import Benchmark, options

from fairerclip._util.memory import peak_memory
from fairerclip.data.join import join


def main(arguments: Sequence[str] | None = None) -> int:
    """Time `join` of shuffled ids with themselves, and `np.argsort` of one side."""
    parser = options(repeats=1)
    parser.add_argument("--rows", type=int, default=10_000_000)
    bench = Benchmark(parser, arguments)
    n = bench.settings.rows
    rng = np.random.default_rng(0)
    ids = np.char.add(np.char.zfill(rng.permutation(n).astype("U9"), 9), ".jpg")
    other = ids[rng.permutation(n)]
    bench.note(f"{n:,} ids of {ids.dtype} ({ids.nbytes / (1 << 20):.0f} MB a side)")
    before = peak_memory() or math.nan
    result = bench.time("join", lambda: join(ids, other))
    added = (peak_memory() or math.nan) - before
    assert result.matched == n
    assert np.array_equal(other[result.rows_in_labels], ids)
    bench.in_turns({"argsort": lambda: np.argsort(ids), "join": lambda: join(ids, other)}, warm_up=False)
    bench.ratio("join / argsort of one side", "join", "argsort")
    bench.figure("memory that the join adds", added, "MB")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
