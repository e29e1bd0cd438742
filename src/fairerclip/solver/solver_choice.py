"""Choice between a Cholesky factor of C and conjugate gradients, by estimated costs; docs/math.md#cg.

Costs are counted in operations of a matrix product, so that only ratios of speeds enter, which differ less between
machines than speeds do. The ratios were measured over a grid of n and D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairerclip.solver.iterative import MAX_STEPS, TOLERANCES
from fairerclip.solver.preconditioner import sample_size
from fairerclip.solver.rows import FeatureRows, cache_budget

SYRK = 1.05
"""Cost of one operation of ΦᵀΦ in float32, with centring, weighting and the sum in float64."""
CHOLESKY = 2.3
"""Cost of one operation of a Cholesky factor in float64."""
SAMPLED = 1.35
"""Cost of one operation of the Gram matrix of sampled rows and of its Cholesky factor, in float32."""
STEP = 50.0
"""Cost of one kept feature in one step: it is read from memory and multiplied twice with a few columns."""
COSINE = 250.0
"""Cost of one feature besides its product with a frequency: phase, cosine and factor."""
STEPS_AT_ONE, STEPS_POWER = 14.3, 0.22
"""Steps for six digits are about 14.3 (1 / γm)^0.22, with m sampled rows."""
CHECKS = 3
"""Cost of the last pass in steps: it has all label columns, gives the true residual and projects the rows."""
USUAL_GAMMA, USUAL_WIDTH = 3e-4, 768
"""γ and width of the rows where they are not known."""
LEAST_WORK, MARGIN = 5e11, 1.5
"""Conjugate gradients need n·D² of this size, which takes seconds, and an advantage of this factor. Below, a Cholesky
factor is preferred, since it serves further labels at less cost and has no tolerance."""


@dataclass(frozen=True)
class SolverCosts:
    """Estimated costs beyond the first computation of the features, in operations of a matrix product."""

    cholesky: float
    cg: float


def expected_steps(gamma: float, sampled: int, itemsize: int) -> float:
    """Return the number of steps of conjugate gradients to expect, for features of total variance one."""
    tolerance = TOLERANCES["float32" if itemsize == 4 else "float64"]
    digits = math.log(tolerance) / math.log(1e-6)
    return STEPS_AT_ONE * math.pow(gamma * sampled, -STEPS_POWER) * digits


def solver_costs(
    n_rows: int, n_features: int, itemsize: int, *, kept: bool, gamma: float, width: int, fits: int = 1
) -> SolverCosts:
    """Return the costs of both solvers.

    Parameters
    ----------
    n_rows, n_features, itemsize : int
        n, D and the bytes of a feature.
    kept : bool
        Whether features stay in memory between passes.
    gamma : float
        Ridge.
    width : int
        Width of the rows.
    fits : int
        Number of fits, such as those of folds, that can share one sum ΦᵀΦ.
    """
    n, D = float(n_rows), float(n_features)
    double = itemsize / 4.0  # a float64 takes twice the time of a float32, from memory and in products
    cholesky = double * SYRK * n * D**2 + fits * CHOLESKY * D**3 / 3
    m = min(sample_size(n_features), n_rows)
    small = min(m, D)
    sample = double * SAMPLED * (m * D * small + small**3 / 3)
    steps = expected_steps(gamma, m, itemsize)
    if steps > MAX_STEPS:
        return SolverCosts(cholesky, math.inf)
    anew = 0.0 if kept else 2.0 * width + COSINE
    return SolverCosts(
        cholesky, fits * (sample + double * (steps + CHECKS) * D * ((n + m) * STEP + n * anew))
    )


def choose_solver(
    solver: str,
    n_rows: int,
    n_features: int,
    itemsize: int,
    *,
    kept: bool | None = None,
    gamma: float = USUAL_GAMMA,
    width: int = USUAL_WIDTH,
    fits: int = 1,
) -> str:
    """Resolve ``"auto"``: "cg" if the problem is large and conjugate gradients are clearly cheaper, else "cholesky".

    Parameters are those of `solver_costs`. If `kept` is None, features are kept where there is memory for them.
    """
    if solver != "auto":
        return solver
    if n_rows * n_features**2 < LEAST_WORK:
        return "cholesky"
    if kept is None:
        kept = n_rows * n_features * itemsize <= cache_budget()
    costs = solver_costs(n_rows, n_features, itemsize, kept=kept, gamma=gamma, width=width, fits=fits)
    return "cg" if MARGIN * costs.cg < costs.cholesky else "cholesky"


def solver_for(
    solver: str, rows: FeatureRows, width: int, *, gamma: float = USUAL_GAMMA, fits: int = 1
) -> str:
    """Resolve ``"auto"`` for features of rows of some width, as `choose_solver` does."""
    size = rows.n_rows, rows.n_features, rows.dtype.itemsize
    return choose_solver(solver, *size, kept=rows.kept, gamma=gamma, width=width, fits=fits)
