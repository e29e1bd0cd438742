"""Time of logistic probes for 40 penalties, over scikit-learn's path of the same penalties, each from the last one.

Rows have a power-law spectrum and several classes. scikit-learn's L-BFGS stops by its default tolerance, which leaves
weakly penalised weights far from the minimum; ours stops where the gradient is 1e-4 of the weights. For two classes its
Newton steps by Cholesky, which reach such a gradient, are timed too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from harness import Benchmark, counts, options
from sklearn.linear_model import LogisticRegression

from fairerclip.baselines.softmax import SoftmaxSolution, softmax_path


def labelled_rows(n: int, width: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw rows (n, p) of unit variance on average, and their classes (n,), which overlap."""
    rng = np.random.default_rng(0)
    spectrum = np.arange(1, width + 1) ** -0.5
    y = np.arange(n) % n_classes
    X = (rng.normal(size=(n, width)) + 0.4 * rng.normal(size=(n_classes, width))[y]) * spectrum
    return (X - X.mean()) / X.std(), y


def ours(X: np.ndarray, y: np.ndarray, n_classes: int, grid: Sequence[float]) -> list[SoftmaxSolution]:
    """Solve every penalty with the package."""
    return list(softmax_path(X, y, np.ones(len(y)), n_classes, grid, tol=1e-4, max_iter=100))


def theirs(X: np.ndarray, y: np.ndarray, grid: Sequence[float], solver: str) -> LogisticRegression:
    """Solve every penalty with scikit-learn, and return the last model."""
    model = LogisticRegression(solver=solver, warm_start=True, max_iter=1000)
    for C in grid:
        model.set_params(C=C).fit(X, y)
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(repeats=3)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--classes", type=counts, default=(2, 7))
    parser.add_argument("--penalties", type=int, default=40, help="values of C from 1e-5 to 631")
    bench = Benchmark(parser, arguments)
    asked = bench.settings
    grid = np.logspace(-5, 2.8, asked.penalties).tolist()
    for c in asked.classes:
        X, y = labelled_rows(asked.rows, asked.width, c)
        calls = {
            f"ours, {c} classes": lambda X=X, y=y, c=c: ours(X, y, c, grid),
            f"L-BFGS, {c} classes": lambda X=X, y=y: theirs(X, y, grid, "lbfgs"),
        }
        if c == 2:
            calls["Newton by Cholesky"] = lambda X=X, y=y: theirs(X, y, grid, "newton-cholesky")
        answers = bench.in_turns(calls, warm_up=False)
        if not all(solution.converged for solution in answers[f"ours, {c} classes"]):
            raise SystemExit(f"a fit of {c} classes did not converge")
        bench.ratio(
            f"scikit-learn's L-BFGS / ours, {c} classes",
            f"L-BFGS, {c} classes",
            f"ours, {c} classes",
            better="higher",
        )
        if c == 2:
            name = "scikit-learn's Newton steps by Cholesky / ours, 2 classes"
            bench.ratio(name, "Newton by Cholesky", "ours, 2 classes", better="higher")
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())
