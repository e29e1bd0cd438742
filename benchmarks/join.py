"""Time of joining ten million ids, as a ratio to sorting the same ids: ``python benchmarks/join.py [n]``."""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from fairerclip.data.join import join


def main(n: int) -> None:
    """Time `join` of n shuffled ids with themselves and `np.argsort` of the same ids, in one run."""
    rng = np.random.default_rng(0)
    digits = rng.permutation(n)
    ids = np.char.add(np.char.zfill(digits.astype("U9"), 9), ".jpg")
    other = ids[rng.permutation(n)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    result = join(ids, other)
    joined = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.matched == n
    assert np.array_equal(other[result.rows_in_labels], ids)
    started = time.perf_counter()
    np.argsort(ids)
    sorted_in = time.perf_counter() - started
    print(f"{n:,} ids of {ids.dtype} ({ids.nbytes / 1e6:.0f} MB a side)")
    print(f"join {joined:.2f} s, argsort of one side {sorted_in:.2f} s, ratio {joined / sorted_in:.2f}")
    print(f"additional memory of the join: {peak / 1024:.0f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
