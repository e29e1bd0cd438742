"""Coverage of every interval of a group figure over simulated data sets; `make coverage` prints the table.

Rows are drawn independently from a known distribution, so that the true value of every figure is known. Scenarios
include ties: if all groups are alike, the percentile bootstrap of a worst group or of a largest difference has a
coverage near 0. It is printed for comparison.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np

from fairerclip.metrics.groups.bounds import group_intervals
from fairerclip.metrics.groups.group_figures import evaluate
from fairerclip.metrics.groups.paired import paired_from_counts
from fairerclip.metrics.groups.paired_rates import PairCounts
from fairerclip.metrics.names import FIGURES

TRAIN = 100


def pair_counts(J: np.ndarray) -> PairCounts:
    """Convert counts J (|S|, c, c, c) by sensitive value, class and both predictions to `PairCounts`."""
    s, y, before, after = np.nonzero(J)
    return PairCounts(s, y, (before, after), J[J > 0].astype(float), J.shape[1], J.shape[0])


def law(S: int, c: int, right: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return P(s, y, p): cells (y, s) have these shares, and are predicted correctly with these probabilities."""
    P = np.empty((S, c, c))
    for s in range(S):
        for y in range(c):
            P[s, y] = share[y, s] * (1 - right[y, s]) / max(c - 1, 1)
            P[s, y, y] = share[y, s] * right[y, s]
    return P


def joint(P0: np.ndarray, right: np.ndarray, kept: float) -> np.ndarray:
    """Return P(s, y, p, q): with probability ``kept`` the second prediction is the first, else it is drawn anew."""
    S, c, _ = P0.shape
    share = P0.sum(axis=2)
    fresh = law(S, c, right, share.T) / share[:, :, None]
    J = (1 - kept) * P0[..., None] * fresh[:, :, None, :]
    J += kept * P0[..., None] * np.eye(c)
    return J


def scenarios() -> dict[str, tuple[np.ndarray, np.ndarray, float, int]]:
    """Return (P before, probability of a correct prediction after, share kept, n) by name."""
    even = np.full((2, 2), 0.25)
    skew = np.array([[0.6, 0.05], [0.05, 0.3]])
    rng = np.random.default_rng(5)
    named = {
        "2×2 alike": (law(2, 2, np.full((2, 2), 0.8), even), np.full((2, 2), 0.8), 0.6, 1000),
        "2×2 apart": (
            law(2, 2, np.array([[0.95, 0.7], [0.4, 0.9]]), even),
            np.array([[0.9, 0.85], [0.8, 0.88]]),
            0.5,
            1000,
        ),
        "2×2 rare": (
            law(2, 2, np.array([[0.97, 0.8], [0.6, 0.95]]), skew),
            np.array([[0.93, 0.9], [0.85, 0.9]]),
            0.5,
            600,
        ),
    }
    # Small groups next to large ones, and rates near 1: intervals that are not exact fail here.
    sizes = np.array([[5000.0] + [20.0] * 6] * 2)
    named["2×7 extreme"] = (
        law(7, 2, np.array([[1.0] + [0.985] * 6] * 2), sizes / sizes.sum()),
        np.array([[0.99] + [0.95] * 6] * 2),
        0.5,
        int(sizes.sum()),
    )
    sizes = np.array([[500.0, 8.0]] * 5)
    named["5×2 thin"] = (
        law(2, 5, np.array([[0.95, 0.9]] * 5), sizes / sizes.sum()),
        np.array([[0.93, 0.93]] * 5),
        0.5,
        int(sizes.sum()),
    )
    for c, S, n in ((2, 7, 3000), (7, 4, 3000)):
        share = np.full((c, S), 1 / (c * S))
        named[f"{c}×{S} alike"] = (
            law(S, c, np.full((c, S), 0.75), share),
            np.full((c, S), 0.75),
            0.5,
            n,
        )
        right = rng.uniform(0.5, 0.95, size=(c, S))
        named[f"{c}×{S} apart"] = (law(S, c, right, share), rng.uniform(0.6, 0.95, (c, S)), 0.5, n)
    return named


def coverage(n_sets: int, seed: int = 0, only: tuple[str, ...] | None = None) -> list[dict[str, object]]:
    """Return the share of data sets whose interval contains the truth, per scenario and figure."""
    rows: list[dict[str, object]] = []
    for name, (P, right, kept, n) in scenarios().items():
        if only is not None and name not in only:
            continue
        rng = np.random.default_rng([seed, *name.encode()])
        J = joint(P, right, kept)
        S, c = P.shape[:2]
        train = np.full((c, S), float(TRAIN))
        truth = {k: float(v) for k, v in evaluate(P, None, train).items()}
        truth_after = {k: float(v) for k, v in evaluate(J.sum(axis=2), None, train).items()}
        covered: dict[tuple[str, str], list[bool]] = defaultdict(list)
        for draw in rng.multinomial(n, J.ravel(), size=n_sets):
            counts = draw.reshape(J.shape)
            N = counts.sum(axis=3)
            for figure, (low, high) in group_intervals(N, 0.95, None, train).items():
                covered["one", figure].append(low <= truth[figure] <= high)
            for figure, (low, high) in paired_from_counts(pair_counts(counts), 0.95, None, train).items():
                covered["change", figure].append(low <= truth_after[figure] - truth[figure] <= high)
            naive = naive_percentile(N, rng)
            for figure, (low, high) in naive.items():
                covered["percentile", figure].append(low <= truth[figure] <= high)
        rows += [
            {
                "scenario": name,
                "kind": kind,
                "figure": figure,
                "coverage": float(np.mean(hits)),
                "n": len(hits),
            }
            for (kind, figure), hits in covered.items()
        ]
    return rows


def naive_percentile(N: np.ndarray, rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return percentile bootstrap intervals of the extremes, which fail with ties."""
    draws = rng.multinomial(N.sum(), (N / N.sum()).ravel(), size=200).reshape(-1, *N.shape)
    figures = evaluate(draws)
    return {
        name: (float(np.nanquantile(figures[name], 0.025)), float(np.nanquantile(figures[name], 0.975)))
        for name in ("worst_group", "eod", "equalized_odds_difference")
    }


def main() -> None:
    """Print coverage in per cent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1000)
    rows = coverage(parser.parse_args().sets)
    names = list(dict.fromkeys(row["scenario"] for row in rows))
    print(f"coverage in per cent of {parser.parse_args().sets} data sets; nominal 95\n")
    print("| interval | figure | " + " | ".join(map(str, names)) + " |")
    print("|---|---|" + "---|" * len(names))
    for kind in ("one", "change", "percentile"):
        for figure in FIGURES:
            by_scenario = {
                row["scenario"]: row["coverage"]
                for row in rows
                if row["kind"] == kind and row["figure"] == figure
            }
            if by_scenario:
                cells = [f"{100 * by_scenario[name]:.1f}" if name in by_scenario else "" for name in names]
                print(f"| {kind} | {figure} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
