"""Coverage of the intervals of retrieval figures on simulated galleries.

Scores are normal around a mean per query, group and relevance, so that the true share of every group in the top k/n is
known. The expectations of NDKL and KL have no closed form; their means over the simulated galleries are used. Prints a
line of JSON per setting with the coverage of every interval: of single queries, of the mean over queries, and of
changes ("change:"). The standard error of a coverage of 0.95 from 1000 galleries is 0.007.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from fairerclip.metrics.retrieval import gallery as _gallery
from fairerclip.metrics.retrieval.top_rows import rankings

QUERIES = 5
BOOST, RELEVANT = 0.7, 0.3
BIASES = {"none": 0.0, "mild": 0.25, "strong": 1.0}


@dataclass(frozen=True)
class Setting:
    """A distribution of galleries: number of groups and rows, share in the top, and dependence of scores on groups."""

    groups: int
    n: int
    top: float
    bias: str
    reference: str = "population"

    @property
    def shares(self) -> np.ndarray:
        """Unequal shares (A,) of the groups."""
        weights = np.linspace(1.0, 2.0, self.groups)
        return weights / weights.sum()

    @property
    def k(self) -> int:
        """Number of rows in the top."""
        return round(self.top * self.n)

    def means(self, after: bool) -> np.ndarray:
        """Return the mean score (q, A) of each query and group; after mitigation it is 0.4 times that before."""
        rng = np.random.default_rng(self.groups)
        directions = np.linspace(-1, 1, self.groups)
        signs = np.where(rng.random((QUERIES, 1)) < 0.5, -1, 1)
        means = BIASES[self.bias] * signs * (directions + 0.2 * rng.normal(size=(QUERIES, self.groups)))
        return (0.4 if after else 1.0) * means

    def truth(self, after: bool) -> dict[str, np.ndarray]:
        """Return the true figures (q,) and shares (q, A) of the top k/n of all rows."""
        desired = self.shares if self.reference == "population" else np.full(self.groups, 1 / self.groups)
        figures = defaultdict(list)
        for mean in self.means(after):

            def above(t: float, mean: np.ndarray = mean) -> np.ndarray:
                levels = np.stack([mean, mean + BOOST])  # (relevance, A)
                weights = np.array([[1 - RELEVANT], [RELEVANT]]) * self.shares
                return weights * ndtr(levels - t)

            cut = brentq(lambda t: above(t).sum() - self.top, -20, 20)
            joint = above(cut)
            share = joint.sum(axis=0) / self.top
            skews = np.log(share / desired)
            figures["share"].append(share)
            figures["max_skew"].append(skews.max())
            figures["min_skew"].append(skews.min())
            figures["bias"].append((share[-1] - share[0]) / (share[-1] + share[0]))
            figures["precision"].append(joint[1].sum() / self.top)
            figures["recall"].append(joint[1].sum() / RELEVANT)
        return {name: np.array(values) for name, values in figures.items()}

    def gallery(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Draw scores before and after (n, q), groups (n,) and relevance (n, q)."""
        codes = rng.choice(self.groups, p=self.shares, size=self.n)
        relevant = rng.random((self.n, QUERIES)) < RELEVANT
        common, single, new = (rng.normal(size=(self.n, width)) for width in (1, QUERIES, QUERIES))
        noise = np.sqrt(0.3) * common + np.sqrt(0.7) * single
        scores = []
        for after, part in ((False, noise), (True, 0.8 * noise + 0.6 * new)):
            scores.append(self.means(after).T[codes] + BOOST * relevant + part)
        return scores[0], scores[1], codes, relevant


def intervals(setting: Setting, rng: np.random.Generator, n_replicates: int) -> Iterator[tuple[str, Any]]:
    """Yield name, and array (…, 3) of value and interval, of every figure of one gallery."""
    before, after, codes, relevant = setting.gallery(rng)
    gallery = _gallery.Gallery.read(
        before, codes, setting.k, relevant, setting.reference, (setting.groups - 1, 0)
    )
    ranked = [rankings(table, "expected", None) for table in (before, after)]
    samples = _gallery.sample_rows(gallery, ranked, n_replicates, rng)
    each, mean = _gallery.figures_of(samples[0], 0.95)
    share = [_gallery.intervals_of(samples[0].shares[query], 0.95) for query in range(QUERIES)]
    yield "share", np.array(share)
    yield from ((name, np.array(value)) for name, value in each.items())
    yield from ((f"mean {name}", np.array(value)) for name, value in mean.items())
    each, mean = _gallery.changes_of(samples[0], samples[1], np.zeros(QUERIES, dtype=bool), 0.95)
    yield from ((f"change: {name}", np.array(value)) for name, value in each.items())
    yield from ((f"change: mean {name}", np.array(value)) for name, value in mean.items())


def coverage(setting: Setting, sets: int, n_replicates: int = 400, seed: int = 1) -> dict[str, float]:
    """Return the share of ``sets`` galleries in which each interval contains the truth, as a mean over queries."""
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[Any]] = defaultdict(list)
    for _ in range(sets):
        for name, value in intervals(setting, rng, n_replicates):
            drawn[name].append(value)
    first, second = setting.truth(False), setting.truth(True)
    covered = {}
    for name, values in drawn.items():
        value, low, high = np.moveaxis(np.array(values), -1, 0)
        figure = name.removeprefix("change: ").removeprefix("mean ")
        if figure in _gallery.DIVERGENCES:
            true = value.mean(axis=0)
        else:
            true = second[figure] - first[figure] if name.startswith("change") else first[figure]
            true = true.mean(axis=0) if "mean" in name else true
        covered[name] = float(((low <= true + 1e-12) & (true <= high + 1e-12)).mean())
    return covered


def settings(n: int) -> Iterator[Setting]:
    """Yield every setting of the full run."""
    for groups in (2, 7):
        for top in (0.05, 0.2, 0.5):
            for bias in BIASES:
                yield Setting(groups, n, top, bias)
    yield from (Setting(7, n, 0.1, bias, "uniform") for bias in BIASES)


def main() -> None:
    """Run every setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument(
        "--halves", type=int, default=60, help="half-samples behind the intervals of NDKL and KL"
    )
    parser.add_argument("--every", type=int, default=1, help="take each N-th setting only")
    parser.add_argument("--start", type=int, default=0, help="from this one on")
    arguments = parser.parse_args()
    _gallery.HALF_SAMPLES = arguments.halves
    for setting in list(settings(arguments.rows))[arguments.start :: arguments.every]:
        covered = coverage(setting, arguments.sets, arguments.replicates)
        rounded = {name: round(value, 3) for name, value in covered.items()}
        print(json.dumps({"setting": vars(setting), "k": setting.k, "coverage": rounded}), flush=True)


if __name__ == "__main__":
    main()
