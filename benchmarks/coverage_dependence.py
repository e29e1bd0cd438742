"""Coverage and width of the intervals of dependence measures over simulated data sets; nominal 95 per cent.

A data set has two groups of normal rows whose means differ by a known shift in every coordinate. The bandwidth is
fixed, so that the population values of Dep and HSIC are known in closed form; that of KCC is extrapolated from large
data sets.
"""

from __future__ import annotations

import argparse
from functools import cache

import numpy as np

from fairerclip.metrics import dependence_interval, kcc

BANDWIDTH = 2.0
SHIFTS = {"none": 0.0, "weak": 0.3, "middling": 1.0, "heavy": 3.0}
SETTINGS = ((2, 0.5), (2, 0.1), (20, 0.5))
"""Number of dimensions, and share of the second group."""


def draw(
    n: int, d: int, share: float, shift: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows (n, d) and groups (n,) of one data set."""
    s = (rng.random(n) < share).astype(int)
    s[:2] = 0, 1
    return rng.normal(size=(n, d)) + shift * s[:, None] / np.sqrt(d / 2), s


@cache
def truth(measure: str, d: int, share: float, shift: float) -> float:
    """Return the population value of a measure."""
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
    """Return the shares of intervals that contain the truth, lie above it and below it, and the mean width."""
    rng = np.random.default_rng([seed, n, d, round(100 * share), round(10 * shift), len(measure)])
    value = truth(measure, d, share, shift)
    ends = []
    for _ in range(sets):
        X, s = draw(n, d, share, shift, rng)
        interval = dependence_interval(X, s, measure=measure, bandwidth=BANDWIDTH, random_state=rng)
        ends.append((interval.low, interval.high))
    low, high = np.array(ends).T
    covered = (low <= value) & (value <= high)
    return (
        float(covered.mean()),
        float((low > value).mean()),
        float((high < value).mean()),
        float((high - low).mean()),
    )


def main() -> None:
    """Print coverage in per cent, the misses on both sides, and the mean width."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--measures", default="dep,hsic,kcc")
    parser.add_argument("--rows", default="50,100,200,500")
    options = parser.parse_args()
    sizes = [int(n) for n in options.rows.split(",")]
    print(f"coverage in per cent of {options.sets} data sets (above / below the truth), width; nominal 95\n")
    print(
        "| measure | dimensions | share | dependence | truth | "
        + " | ".join(f"n = {n}" for n in sizes)
        + " |"
    )
    print("|---|---|---|---|---|" + "---|" * len(sizes))
    for measure in options.measures.split(","):
        for d, share in SETTINGS:
            for name, shift in SHIFTS.items():
                cells = []
                for n in sizes:
                    covered, above, below, width = coverage(measure, n, d, share, shift, options.sets)
                    cells.append(f"{100 * covered:.1f} ({100 * above:.1f} / {100 * below:.1f}), {width:.3g}")
                line = f"| {measure} | {d} | {share:g} | {name} | {truth(measure, d, share, shift):.3g} | "
                print(line + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
