"""Coverage and width of the intervals of dependence measures over simulated data sets; nominal 95 per cent.

Two groups of normal rows whose means differ by a known shift in every coordinate. The bandwidth is fixed, so that the
population values of Dep and HSIC are known in closed form; that of KCC is extrapolated from large data sets.
"""

from __future__ import annotations

import argparse
from functools import cache

import numpy as np

from fairerclip.metrics import dependence_interval, kcc

BANDWIDTH = 2.0
SHIFTS = {"none": 0.0, "weak": 0.3, "middling": 1.0, "heavy": 3.0}
SETTINGS = ((2, 0.5), (2, 0.1), (20, 0.5))
"""Dimensions, and share of the second group."""


def draw(
    n: int, d: int, share: float, shift: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) and groups (n,) of one data set."""
    s = (rng.random(n) < share).astype(int)
    s[:2] = 0, 1
    return rng.normal(size=(n, d)) + shift * s[:, None] / np.sqrt(d / 2), s


@cache
def truth(measure: str, d: int, share: float, shift: float) -> float:
    """Population value."""
    scale, apart = 2 * share**2 * (1 - share) ** 2, 2 * shift**2
    if measure == "dep":
        return scale * apart
    if measure == "hsic":
        mean = (BANDWIDTH**2 / (BANDWIDTH**2 + 2)) ** (d / 2)
        return scale * 2 * mean * (1 - np.exp(-apart / (2 * (BANDWIDTH**2 + 2))))
    if shift == 0:
        return 0.0
    rng = np.random.default_rng(1)
    small, large = (
        np.mean([kcc(*draw(n, d, share, shift, rng), bandwidth=BANDWIDTH) for _ in range(sets)])
        for n, sets in ((500, 200), (1000, 100))
    )
    return float(2 * large - small)  # the bias is of the order of 1/n


def coverage(
    measure: str, n: int, d: int, share: float, shift: float, sets: int, seed: int = 0
) -> tuple[float, float, float, float]:
    """Shares of intervals that hold the truth, lie above it and below it, and the mean width."""
    rng = np.random.default_rng([seed, n, d, round(100 * share), round(10 * shift), len(measure)])
    value = truth(measure, d, share, shift)
    ends = []
    for _ in range(sets):
        X, s = draw(n, d, share, shift, rng)
        found = dependence_interval(X, s, measure=measure, bandwidth=BANDWIDTH, random_state=rng)
        ends.append((found.low, found.high))
    low, high = np.array(ends).T
    held = (low <= value) & (value <= high)
    return (
        float(held.mean()),
        float((low > value).mean()),
        float((high < value).mean()),
        float((high - low).mean()),
    )


def main() -> None:
    """Print coverage in per cent, the misses on both sides, and the width by the true value."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--measures", default="dep,hsic,kcc")
    parser.add_argument("--rows", default="50,100,200,500")
    given = parser.parse_args()
    sizes = [int(n) for n in given.rows.split(",")]
    print(f"coverage in per cent of {given.sets} data sets (above / below the truth), width; nominal 95\n")
    print(
        "| measure | dimensions | share | dependence | truth | "
        + " | ".join(f"n = {n}" for n in sizes)
        + " |"
    )
    print("|---|---|---|---|---|" + "---|" * len(sizes))
    for measure in given.measures.split(","):
        for d, share in SETTINGS:
            for name, shift in SHIFTS.items():
                cells = []
                for n in sizes:
                    held, above, below, width = coverage(measure, n, d, share, shift, given.sets)
                    cells.append(f"{100 * held:.1f} ({100 * above:.1f} / {100 * below:.1f}), {width:.3g}")
                line = f"| {measure} | {d} | {share:g} | {name} | {truth(measure, d, share, shift):.3g} | "
                print(line + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
