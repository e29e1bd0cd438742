"""Costs of both solvers: the coefficients of ``solver="auto"``, and how often it chooses the faster one.

Times each stage of a fit relative to a matrix product in float32 of the same run, counts steps of conjugate gradients
over γ and fits their law, and times both solvers over a grid of n and D. Prints JSON. Rows are simulated; stages
alternate and the best of several times counts, because other work on the machine only adds time. With
``OPENBLAS_NUM_THREADS=1`` and ``--clock cpu`` the time of the processor counts, on a machine with other work.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fairerclip.data.simulate import celeba
from fairerclip.features import FourierFeatures
from fairerclip.solver import solver_choice
from fairerclip.solver.covariance_product import covariance_product
from fairerclip.solver.iterative import ConjugateGradientFactor
from fairerclip.solver.lowrank import CholeskyFactor
from fairerclip.solver.moments import Moments
from fairerclip.solver.preconditioner import SampledPreconditioner, sample_size
from fairerclip.solver.rows import FeatureRows

GAMMAS = (1e-3, 3e-4, 3e-5)


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def best_of(repeats: int, calls: dict[str, Callable[[], Any]], clock: str) -> dict[str, float]:
    """Return the shortest time of each call; calls take turns."""
    now = CLOCKS[clock]
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = now()
            call()
            times[name].append(now() - start)
    return {name: min(found) for name, found in times.items()}


class Case:
    """Features of n simulated rows, kept in memory, and label columns of two classes and two groups."""

    def __init__(self, n: int, D: int, p: int) -> None:
        self.X = np.ascontiguousarray(celeba(scale=1.05 * n / 162_770, width=p).train.X[:n], dtype=np.float32)
        self.features = FourierFeatures.fit(self.X[:2000], n_features=D, random_state=0)
        self.rows = FeatureRows(self.features, self.X, budget=1 << 62)
        rng = np.random.default_rng(0)
        cell = 2 * (self.X @ rng.normal(size=p) > 0) + (self.X @ rng.normal(size=p) > 0)
        J = np.eye(4)[cell]
        self.J = np.column_stack([J[:, :2].sum(1), J[:, 2:].sum(1), J])
        self.weight = np.full(len(self.X), 1.0 / len(self.X))
        self.moments = self.sum(covariance=False)

    def sum(self, *, covariance: bool) -> Any:
        """Return the moments of all rows."""
        start = partial(Moments, self.rows.n_features, self.J.shape[1], covariance=covariance)
        return self.rows.sum(start, [self.J, self.weight]).finalise()

    def cholesky(self, gamma: float) -> None:
        """Solve directly, from kept features."""
        found = self.sum(covariance=True)
        CholeskyFactor(found.covariance, gamma).reduce(found.cross)

    def cg(self, gamma: float) -> int:
        """Solve iteratively, from kept features; return the number of steps."""
        found = self.sum(covariance=False)
        factor = ConjugateGradientFactor(self.rows, self.weight, found.mean, gamma, np.random.RandomState(0))
        factor.reduce(found.cross)
        return factor.steps


def coefficients(case: Case, repeats: int, clock: str) -> dict[str, float]:
    """Return the cost of one operation of each stage relative to one of a matrix product in float32."""
    n, p = case.X.shape
    D = case.rows.n_features
    omega = case.features.omega.astype(np.float32)
    m = sample_size(D)
    sample = case.rows.take(np.arange(m))
    C = case.sum(covariance=True).covariance
    V = np.random.default_rng(0).normal(size=(D, 3))
    times = best_of(
        repeats,
        {
            "product": lambda: case.X @ omega,
            "features": lambda: case.features.transform(case.X),
            "cross": lambda: case.sum(covariance=False),
            "sums": lambda: case.sum(covariance=True),
            "cholesky": lambda: CholeskyFactor(C.copy(), 1e-3),
            "sampled": lambda: SampledPreconditioner(sample, 1e-3),
            "step": lambda: covariance_product(case.rows, case.weight, case.moments.mean, V),
        },
        clock,
    )
    operation = times["product"] / (2.0 * n * p * D)
    small = min(m, D)
    return {
        "SYRK": (times["sums"] - times["cross"]) / (n * D**2) / operation,
        "CHOLESKY": times["cholesky"] / (D**3 / 3) / operation,
        "SAMPLED": times["sampled"] / (m * D * small + small**3 / 3) / operation,
        "STEP": times["step"] / (n * D) / operation,
        "COSINE": (times["features"] - times["product"]) / (n * D) / operation,
    }


def step_law(cases: list[Case]) -> dict[str, float]:
    """Return the constant and the power of steps = constant (1 / γm)^power for six digits, by least squares."""
    digits = np.log(1e-6) / np.log(solver_choice.TOLERANCES["float32"])
    found = [
        (np.log(1 / (gamma * sample_size(case.rows.n_features))), np.log(case.cg(gamma) * digits))
        for case in cases
        for gamma in GAMMAS
    ]
    x, y = np.array(found).T
    power, constant = np.polyfit(x, y, 1)
    error = float(np.exp(np.abs(power * x + constant - y).max()) - 1)
    return {"STEPS_AT_ONE": float(np.exp(constant)), "STEPS_POWER": float(power), "largest_error": error}


def grid(cases: list[Case], repeats: int, clock: str) -> list[dict[str, Any]]:
    """Time both solvers of each case, and compare with the choice of the model."""
    out = []
    for case in cases:
        (n, p), D = case.X.shape, case.rows.n_features
        for gamma in GAMMAS[::2]:
            times = best_of(
                repeats,
                {
                    "cross": lambda case=case: case.sum(covariance=False),
                    "cholesky": lambda case=case, gamma=gamma: case.cholesky(gamma),
                    "cg": lambda case=case, gamma=gamma: case.cg(gamma),
                },
                clock,
            )
            costs = solver_choice.solver_costs(n, D, 4, kept=True, gamma=gamma, width=p)
            chosen = "cg" if costs.cg < costs.cholesky else "cholesky"
            other = "cholesky" if chosen == "cg" else "cg"
            out.append(
                {
                    "n": n,
                    "D": D,
                    "gamma": gamma,
                    "cholesky_over_cg": (times["cholesky"] - times["cross"]) / (times["cg"] - times["cross"]),
                    "model": costs.cholesky / costs.cg,
                    "chosen": chosen,
                    "right": times[chosen] <= times[other],
                    "time_lost": max(0.0, times[chosen] / times[other] - 1),
                }
            )
    return out


def main() -> int:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[4000, 16_000, 48_000])
    parser.add_argument("--features", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    arguments = parser.parse_args()
    sizes = [(n, D) for n in arguments.rows for D in arguments.features]
    largest = Case(max(arguments.rows), max(arguments.features), arguments.width)
    cases = [largest if size == sizes[-1] else Case(*size, arguments.width) for size in sizes]
    found = grid(cases, arguments.repeats, arguments.clock)
    results = {
        "machine": platform.machine(),
        "coefficients": coefficients(largest, arguments.repeats, arguments.clock),
        "steps": step_law(cases),
        "grid": found,
        "right": sum(point["right"] for point in found) / len(found),
        "largest_time_lost": max(point["time_lost"] for point in found),
    }
    json.dump(results, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
