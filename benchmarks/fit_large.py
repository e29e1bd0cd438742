"""Time of fits at the size of CelebA, over one bare pass that computes the features.

The bare pass is XΩ + b and cos in blocks of 8192 rows. From the size on at which ``solver="auto"`` iterates instead of
forming ΦᵀΦ, the fit that forms it (``solver="cholesky"``) is timed, too. Without labels, the time of one more round of
Algorithm 1 is the difference of fits with more and with fewer rounds, divided by the difference of their rounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from bare import BareFeatures
from harness import Benchmark, counts, options
from simulated_rows import FIXED, Labelled, SimulatedRows

from fairerclip import FairerCLIP
from fairerclip.model.automatic import GUESSED

FIT_TARGETS = {1000: 2.2, 8000: 2.4}
"""Largest ratio of a fit to the bare pass, by D; other sizes are for information."""
ROUND_TARGETS = {1000: 0.25, 8000: 0.25}
"""Largest ratio of one round without labels to the bare pass, by D."""
COVARIANCE_TARGETS = {8000: 1.4}
"""Least ratio of the fit that forms ΦᵀΦ to the fit with ``solver="auto"``, by D."""
ROUND_SHARE = 0.5
"""Zero-shot share without labels; with 1, labels settle after two rounds, and there is no further round to time."""


Summary = tuple[int, str]
"""Rounds and solver of a fit."""


def fitting(
    source: SimulatedRows, X: np.ndarray, y: np.ndarray | None, **params: Any
) -> Callable[[], Summary]:
    """Return a call that fits a new model and drops it: its kept features would take memory from the next fit."""

    def fit() -> Summary:
        model = FairerCLIP(random_state=0, **params).fit(X, y, **source.prompts)
        return model.n_iter_, model.diagnostics_["solver"]

    return fit


def time_fits(bench: Benchmark, source: SimulatedRows, rows: Labelled, D: int) -> None:
    """Time the bare pass and fits with labels."""
    bare = BareFeatures.draw(source.width, D)
    pass_, fit, covariance = f"bare pass, D={D}", f"fit, D={D}", f"fit that forms ΦᵀΦ, D={D}"
    automatic = f"fit, parameters auto, D={D}"
    calls = {
        pass_: lambda: bare.feature_pass(rows.X),
        fit: fitting(source, rows.X, rows.y, n_features=D, **FIXED),
    }
    if D in bench.settings.covariance:
        calls[covariance] = fitting(source, rows.X, rows.y, n_features=D, solver="cholesky", **FIXED)
    if D in bench.settings.automatic:
        calls[automatic] = fitting(source, rows.X, rows.y, n_features=D)
    answers = bench.in_turns(calls, warm_up=False)
    bench.note(f"D={D}: the fit with solver='auto' used {answers[fit][1]!r}")
    bench.ratio(f"fit / bare pass, D={D}", fit, pass_, at_most=FIT_TARGETS.get(D))
    if covariance in calls:
        least = COVARIANCE_TARGETS.get(D)
        bench.ratio(f"fit that forms ΦᵀΦ / fit, D={D}", covariance, fit, at_least=least, better="higher")
    if automatic in calls:
        bench.ratio(f"fit with parameters auto / fit, D={D}", automatic, fit)


def time_rounds(bench: Benchmark, source: SimulatedRows, rows: Labelled, D: int) -> None:
    """Time fits without labels with two numbers of rounds."""
    fixed = {**GUESSED, "zero_shot": ROUND_SHARE, "refine": True, "n_features": D}
    few, many = (f"fit without labels, {k} rounds, D={D}" for k in bench.settings.rounds)
    calls = {
        name: fitting(source, rows.X, None, max_iter=k, **fixed)
        for name, k in zip((few, many), bench.settings.rounds, strict=True)
    }
    answers = bench.in_turns(calls, warm_up=False)
    rounds = answers[many][0] - answers[few][0]
    if rounds < 1:
        raise SystemExit(f"D={D}: labels settled after {answers[few][0]} rounds: use fewer --rounds")
    each = (bench.best(many) - bench.best(few)) / rounds
    bench.figure(f"seconds of one more round without labels, D={D}", each, "s")
    ratio = each / bench.best(f"bare pass, D={D}")
    bench.figure(f"one more round without labels / bare pass, D={D}", ratio, at_most=ROUND_TARGETS.get(D))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=3)
    parser.add_argument("--rows", type=int, default=162_770)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--features", type=counts, default=(1000, 3000, 8000), help="values of D")
    parser.add_argument(
        "--covariance", type=counts, default=(8000,), help="values of D whose fit with ΦᵀΦ is timed"
    )
    parser.add_argument(
        "--without-labels", type=counts, default=(1000, 8000), help="values of D for rounds without labels"
    )
    parser.add_argument("--rounds", type=counts, default=(2, 6), help="two numbers of rounds")
    parser.add_argument("--automatic", type=counts, default=(1000,), help="values of D for parameters auto")
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    source = SimulatedRows(asked.width)
    rows = source.draw(asked.rows)
    bench.note(f"n={len(rows.X)}, p={asked.width}; parameters are fixed unless the row says auto")
    first = rows.X[:2000], rows.y[:2000]
    FairerCLIP(n_features=100, **FIXED).fit(
        *first, **source.prompts
    )  # so that no fit pays for the first call
    for D in asked.features:
        time_fits(bench, source, rows, D)
        if D in asked.without_labels:
            time_rounds(bench, source, rows, D)
    if np.isin(asked.without_labels, asked.features, invert=True).any():
        bench.note("rounds without labels are timed only for values of D that are among --features")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
