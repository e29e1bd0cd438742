"""Softmax regression with an L2 penalty, minimised until the gradient bounds the error of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from fairerclip._util.types import F64, Ints
from fairerclip.baselines.shared_solutions import once

_FORCING = 0.1  # each Newton system is solved until its residual is this share of the gradient
_LAST_STEP = 0.3  # or this share of the gradient that counts as converged
_MOST_PRODUCTS = 500  # with the Hessian, for one step
_NEIGHBOURS = 4  # solutions through which a start is extrapolated
_SHORTEST_STEP = 2.0**-30
_ARMIJO = 1e-4  # share of the decrease predicted by the slope that a step must reach
_EPS = float(np.finfo(np.float64).eps)


class SoftmaxSolution(NamedTuple):
    """Weights (c, p) and intercepts (c,) for the given rows, and their convergence."""

    coef: F64
    intercept: F64
    steps: int
    """Newton steps taken."""
    gradient: float
    """Norm of the gradient of ``½‖W‖² + C·Σ wᵢ·CEᵢ``, relative to ‖W‖."""
    converged: bool
    """Whether the gradient is below the tolerance, or within rounding of zero."""


def softmax_path(
    X: F64,
    y: Ints,
    weight: F64,
    n_classes: int,
    grid: Iterable[float],
    *,
    tol: float,
    max_iter: int,
    offset: F64 | None = None,
    free_intercept: bool = True,
) -> Iterator[SoftmaxSolution]:
    """Minimise ``½‖W‖² + C·Σ wᵢ·CEᵢ`` for each C in turn, each from the solutions of the nearest C so far.

    For two classes C is that of scikit-learn, which penalises the single vector ``W₁ − W₀``.

    Parameters
    ----------
    X, y, weight : array of shape (n, p), (n,) and (n,)
        Rows, class codes and positive weights.
    n_classes : int
        Number of classes.
    grid : iterable of float
        Values of C.
    tol : float
        Largest norm of the gradient, relative to ‖W‖.
    max_iter : int
        Largest number of Newton steps for one C.
    offset : array of shape (n, c), optional
        Numbers that are added to the logits of the rows.
    free_intercept : bool, default=True
        Whether the penalty leaves the intercepts out.

    Yields
    ------
    SoftmaxSolution
        The solution for each C.

    Notes
    -----
    The objective is 1-strongly convex in W. With optimal intercepts, the distance of W from the minimiser is therefore
    at most the norm of the gradient, and ``tol`` bounds the relative error of W for every C, n and scale of the rows.
    A tolerance on the gradient of the mean loss gives a weaker bound the weaker the penalty is.

    Newton steps are solved by conjugate gradients. Their preconditioner is the Hessian at an earlier point, exact for
    two classes and without the products of different classes for more; one decomposition of it serves every C. It is
    computed again after as many additional products with the Hessian as it costs. The start is extrapolated as a
    polynomial of log C. O(n·p² + p³) time for a preconditioner, and O(n·p·c) for a product.
    """
    problem = once(_Problem, X, y, weight, n_classes, offset, free_intercept)
    for C in grid:
        theta, steps, gradient, converged = problem.minimise(C, tol, max_iter)
        if problem.binary:
            theta = np.concatenate([-theta, theta]) / 2
        coef = theta[:, :-1] if problem.axes is None else theta[:, :-1] @ problem.axes.T
        yield SoftmaxSolution(coef, theta[:, -1] - coef @ problem.mean, steps, gradient, converged)


class _Point(NamedTuple):
    """Weights and intercepts (k, p + 1), with what follows from them."""

    theta: F64
    value: float
    """Objective."""
    P: F64
    """Class probabilities (n, c); for two classes the probabilities (n, 1) of the wrong class."""
    residual: F64
    """Derivatives (n, k) of the loss of each row by its scores."""


class _Problem:
    """Centred rows with a column of ones for the intercept, and the solutions found so far.

    For two classes there is one vector of weights (k = 1), W₁ − W₀; otherwise one for each class (k = c). Rows are not
    centred if the intercept is penalised, since it would be another one.
    """

    def __init__(
        self, X: F64, y: Ints, weight: F64, n_classes: int, offset: F64 | None, free_intercept: bool
    ) -> None:
        self.mean = weight @ X / weight.sum() if free_intercept else np.zeros(X.shape[1])
        rows = X - self.mean
        self.axes = None
        if X.shape[0] < X.shape[1]:  # solutions lie in the span of the rows
            self.axes = np.linalg.qr(rows.T)[0]  # (p, n)
            rows = rows @ self.axes
        self.X = np.column_stack([rows, np.ones(len(X))])
        self.y, self.weight, self.binary = y, weight[:, None], n_classes == 2
        self.sign = 2.0 * y[:, None] - 1  # of the class, if there are two
        self.offset = offset if offset is None or not self.binary else offset[:, 1:] - offset[:, :1]
        self.penalty = np.append(np.ones(rows.shape[1]), 0.0 if free_intercept else 1.0)
        self.shape = (1 if self.binary else n_classes, self.X.shape[1])
        self.rounding = _EPS * float(weight @ np.linalg.norm(self.X, axis=1))
        # About as many products with the Hessian take the time of a decomposition. It depends on the width of the given
        # rows, so that repeated rows and their weights give the same steps.
        self.cost = X.shape[1] / (2 * self.shape[0])
        self.solved: dict[float, F64] = {}
        self.metric: _Metric | None = None

    def minimise(self, C: float, tol: float, max_iter: int) -> tuple[F64, int, float, bool]:
        """Return weights and intercepts (k, p + 1), the steps, the relative gradient, and whether it converged."""
        point = self.start(C)
        for step in range(max_iter + 1):
            gradient = self.through_rows(C * point.residual) + self.penalty * point.theta
            size, length = float(np.linalg.norm(gradient)), float(np.linalg.norm(point.theta[:, :-1]))
            goal = max(tol * length, C * self.rounding)
            converged = size <= goal
            result = None if converged or step == max_iter else self.step(point, C, gradient, goal)
            if result is None:
                break
            point = result
        self.solved[C] = point.theta
        return point.theta, step, size / length if length else 0.0, converged

    def start(self, C: float) -> _Point:
        """Return the best of zero, the solution of the nearest C, and the polynomial through those of several C."""
        zero = np.zeros(self.shape)
        near = sorted(self.solved, key=lambda other: abs(math.log(C / other)))[:_NEIGHBOURS]
        if not near or near[0] == C:
            return self.at(self.solved[C] if near else zero, C)
        away = np.log([other / C for other in near])
        lagrange = [np.prod([b / (b - a) for b in away if b != a]) for a in away]
        several = sum(share * self.solved[other] for share, other in zip(lagrange, near, strict=True))
        with np.errstate(over="ignore", invalid="ignore"):  # nearly equal C may lead far away
            points = [self.at(theta, C) for theta in (zero, self.solved[near[0]], several)]
        best = min(points, key=lambda point: point.value if math.isfinite(point.value) else math.inf)
        if best is points[0]:
            self.metric = None  # it was made for larger weights
        return best

    def at(self, theta: F64, C: float) -> _Point:
        """Evaluate the objective for weights and intercepts (k, p + 1)."""
        scores = self.X @ theta.T
        if self.offset is not None:
            scores += self.offset
        if self.binary:
            margin = self.sign * scores
            small = np.exp(-np.abs(margin))
            P = np.where(margin >= 0, small, 1.0) / (1 + small)
            loss = np.log1p(small) + np.maximum(-margin, 0)
            residual = -self.sign * P
        else:
            own = np.arange(len(scores)), self.y
            scores -= scores.max(axis=1, keepdims=True)
            P = np.exp(scores)
            total = P.sum(axis=1, keepdims=True)
            loss = np.log(total) - scores[own][:, None]
            P /= total
            residual = P.copy()
            residual[own] -= 1
        value = 0.5 * float(np.sum(self.penalty * theta**2)) + C * float(np.sum(self.weight * loss))
        return _Point(theta, value, P, residual)

    def through_rows(self, by_row: F64) -> F64:
        """Return the weighted sum (k, p + 1) of the rows, each times its numbers (n, k)."""
        return np.asarray((self.weight * by_row).T @ self.X)

    def product(self, P: F64, C: float, search: F64) -> F64:
        """Multiply a vector (k, p + 1) by the Hessian at probabilities P."""
        scores = self.X @ search.T
        bent = (1 - P) * scores if self.binary else scores - np.sum(P * scores, axis=1, keepdims=True)
        return self.through_rows(C * P * bent) + self.penalty * search

    def step(self, point: _Point, C: float, gradient: F64, goal: float) -> _Point | None:
        """Take one Newton step with backtracking; return None if no step lowers the objective."""
        direction = self.direction(point.P, C, gradient, goal)
        slope, length = float(np.sum(gradient * direction)), 1.0
        # The loss of a row has a rounding error of about epsilon.
        rounding = 8 * _EPS * (point.value + C * float(self.weight.sum()))
        while slope < 0 and length >= _SHORTEST_STEP:
            theta = point.theta + length * direction
            if not self.binary:
                # The mean over classes changes no probability, and the penalty is smallest without it.
                theta -= theta.mean(axis=0)
            candidate = self.at(theta, C)
            if candidate.value <= point.value + _ARMIJO * length * slope + rounding:
                return candidate
            length /= 2
        return None

    def direction(self, P: F64, C: float, gradient: F64, goal: float) -> F64:
        """Compute the Newton direction (k, p + 1) by conjugate gradients, to a tenth of the gradient."""
        metric = self.metric
        if metric is None or metric.excess > self.cost:
            metric = self.metric = _Metric(self.X, self.weight * P * (1 - P))
        direction, residual = np.zeros_like(gradient), -gradient
        scaled = metric.solve(residual, C)
        search, size = scaled, float(np.sum(residual * scaled))
        enough = _FORCING**2 * size
        count = 0
        while count < _MOST_PRODUCTS:
            count += 1
            product = self.product(P, C, search)
            curvature = float(np.sum(search * product))
            if not curvature > 0:  # underflow: every probability is 0 or 1
                break
            direction = direction + size / curvature * search
            residual = residual - size / curvature * product
            if float(np.linalg.norm(residual)) <= _LAST_STEP * goal:
                break
            scaled = metric.solve(residual, C)
            last, size = size, float(np.sum(residual * scaled))
            if size <= enough:
                break
            search = scaled + size / last * search
        metric.used(count)
        return direction


class _Metric:
    """Hessian of the loss with one matrix for all classes, up to a factor for each, decomposed for every penalty."""

    def __init__(self, X: F64, curvature: F64) -> None:
        by_row = curvature.sum(axis=1)
        total = max(float(by_row.sum()), np.finfo(np.float64).tiny)
        self.share = np.maximum(curvature.sum(axis=0) / total, _EPS)[:, None]  # of each class
        self.total = total
        self.centre = by_row @ X[:, :-1] / total
        rows = np.sqrt(by_row)[:, None] * (X[:, :-1] - self.centre)
        inertia, self.axes = np.linalg.eigh(rows.T @ rows)
        self.inertia = np.maximum(inertia, 0.0)
        self.fewest, self.excess = math.inf, 0.0  # products of a step, and those beyond

    def solve(self, R: F64, C: float) -> F64:
        """Return the solution (k, p + 1) of ``M·x = R`` for the penalty of C."""
        bend = C * self.share
        right = R[:, :-1] - R[:, -1:] * self.centre
        coef = (right @ self.axes) / (1 + bend * self.inertia) @ self.axes.T
        intercept = R[:, -1:] / (bend * self.total) - coef @ self.centre[:, None]
        return np.column_stack([coef, intercept])

    def used(self, count: int) -> None:
        """Note how many products with the Hessian a step took."""
        self.fewest = min(self.fewest, count)
        self.excess += count - self.fewest
