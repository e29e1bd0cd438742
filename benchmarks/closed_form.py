"""Time of a fit and of a whole path on small data (Waterbirds), over the arithmetic that a fit needs at least.

The bare sum is XΩ, cos, ΦᵀΦ and Cholesky. ``scipy.linalg.eigh(B, C)`` is timed over our solution of the same
eigenproblem from the same inputs, and over a whole fit. A path solves every point of a plane from the factorisation of
its fit, which counts as a part of it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from bare import BareFeatures
from harness import Benchmark, counts, options
from scipy import linalg
from simulated_rows import FIXED

from fairerclip import FairerCLIP
from fairerclip.data.simulate import waterbirds
from fairerclip.solver.lowrank import CholeskyFactor, solve_reduced

GAMMA = 1e-4
PATH_TARGETS = {21: 1.3, 41: 1.25}
"""Largest ratio of a path of m × m points and its fit to the fit."""


def eigenproblem(model: FairerCLIP, task: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the problem of a fit as in the paper: covariance (D, D), factors M (D, k), signed weights (k,)."""
    Phi = model.features_.transform(task.train.X).astype(np.float64)
    n, centred = len(Phi), Phi - Phi.mean(axis=0)
    s_hat = (task.train.X @ task.sensitive_attribute().text.T).argmax(axis=1)
    factors = [centred.T @ np.eye(2)[codes] / n for codes in (task.train.y, s_hat)]
    weights = [sigma / np.linalg.norm(M, 2) ** 2 for sigma, M in zip((1.0, -0.7 / 0.3), factors, strict=True)]
    return centred.T @ centred / n, np.concatenate(factors, axis=1), np.repeat(weights, 2)


def reduced_solve(covariance: np.ndarray, M: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Solve the problem as the package does: one Cholesky in place of the covariance, then k×k."""
    reduced = CholeskyFactor(covariance, GAMMA).reduce(M)
    solution = solve_reduced((reduced.coordinates * sigma) @ reduced.coordinates.T, 1)
    return reduced.basis @ solution.coefficients


def time_solvers(bench: Benchmark, model: FairerCLIP, task: Any) -> None:
    """Time the eigenproblem alone: ours, scipy's with both drivers, and the non-symmetric one if asked for."""
    covariance, M, sigma = eigenproblem(model, task)
    C = covariance + GAMMA * np.eye(len(covariance))
    B = (M * sigma) @ M.T
    ours = reduced_solve(covariance.copy(), M, sigma)[:, 0]
    _, vectors = bench.time("eigh", lambda: linalg.eigh(B, C))
    cosine = abs(ours @ C @ vectors[:, -1])
    if cosine < 1 - 1e-6:
        raise SystemExit(f"the two solutions differ: cosine {cosine}")
    for _ in range(bench.settings.repeats):
        copy = covariance.copy()  # the solution overwrites its covariance, as in a fit
        bench.time("our solve", lambda copy=copy: reduced_solve(copy, M, sigma))
    bench.time("eigh", lambda: linalg.eigh(B, C))
    bench.time("eigh, driver gv", lambda: linalg.eigh(B, C, driver="gv"))
    if bench.settings.authors:
        bench.time("eig(inv(C) @ B)", lambda: np.linalg.eig(np.linalg.inv(C) @ B))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options()
    parser.add_argument("--scale", type=float, default=1.0, help="share of the 4,795 rows")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--features", type=int, default=3000)
    parser.add_argument("--points", type=counts, default=(21, 41), help="values of τ and of τ_z of each path")
    parser.add_argument("--authors", action="store_true", help="also time eig(inv(C) @ B); takes minutes")
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    task = waterbirds(seed=0, width=asked.width, scale=asked.scale)
    X, y = task.train.X, task.train.y
    given = {"text": task.text_target, "sensitive_text": task.sensitive_attribute().text}
    bare = BareFeatures.draw(asked.width, asked.features)
    model = FairerCLIP(n_features=asked.features, random_state=0, **{**FIXED, "gamma": GAMMA})
    automatic = FairerCLIP(n_features=asked.features, random_state=0)
    grids = {m: np.linspace(0, 0.95, m) for m in asked.points}
    bench.note(f"n={len(X)}, p={asked.width}, D={asked.features}; parameters of the fit are fixed")
    bench.in_turns(
        {
            "bare sum": lambda: bare.factor(X, GAMMA),
            "fit": lambda: model.fit(X, y, **given),
            **{
                f"path, {m} × {m} points": lambda g=grid: model.path(g, g, refine=False)
                for m, grid in grids.items()
            },
            "fit, parameters auto": lambda: automatic.fit(X, y, **given),
        }
    )
    time_solvers(bench, model, task)
    fit = bench.best("fit")
    bench.ratio("fit / XΩ, cos, ΦᵀΦ and Cholesky", "fit", "bare sum", at_most=1.25)
    for m in grids:
        both = fit + bench.best(f"path, {m} × {m} points")
        name = f"path of {m} × {m} points with its fit / fit"
        bench.figure(name, both / fit, at_most=PATH_TARGETS.get(m))
    bench.ratio("fit with parameters auto / fit", "fit, parameters auto", "fit")
    bench.ratio("scipy's eigh / our solution of the same problem", "eigh", "our solve", at_least=20.0)
    # For scale: the eigenproblem alone over a whole fit, features and sums included.
    bench.ratio("scipy's eigh / fit", "eigh", "fit", better="higher")
    bench.ratio("scipy's eigh, driver gv / fit", "eigh, driver gv", "fit", better="higher")
    if asked.authors:
        bench.ratio("eig(inv(C) @ B) / fit", "eig(inv(C) @ B)", "fit", better="higher")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
