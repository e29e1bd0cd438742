"""Softmax regression with an L2 penalty, minimised until the gradient bounds the error of the weights."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from fairerclip._util.types import F64, Ints

_FORCING = 0.1  # each Newton system is solved until its residual is this share of the gradient
_MOST_PRODUCTS = 500  # with the Hessian, for one step
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
    """Minimise ``½‖W‖² + C·Σ wᵢ·CEᵢ`` for each C in turn, each from the solution of the nearest C so far.

    For two classes C is that of scikit-learn, which penalises the single vector ``W₁ − W₀``; so it is halved here.

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

    Newton steps are solved by conjugate gradients in the basis of the principal axes of the rows, where the diagonal
    is a good preconditioner. O(n·p² + p³) time once, and O(n·p·c) for each product with the Hessian.
    """
    problem, solved = _shared_problem(X, y, weight, n_classes, offset, free_intercept)
    for C in grid:
        nearest = min(solved, key=lambda other: abs(math.log(C / other)), default=None)
        start = np.zeros((n_classes, X.shape[1] + 1)) if nearest is None else solved[nearest]
        theta, steps, gradient, converged = problem.minimise(C, start, tol, max_iter)
        solved[C] = theta
        coef = theta[:, :-1] @ problem.axes.T
        yield SoftmaxSolution(coef, theta[:, -1] - coef @ problem.mean, steps, gradient, converged)


_Solved = dict[float, F64]
_LATEST: ContextVar[dict[bytes, tuple[_Problem, _Solved]] | None] = ContextVar("latest", default=None)


@contextmanager
def shared_solutions() -> Iterator[None]:
    """Share work between fits of several models on the same rows, inside this context.

    The latest rows are prepared once, and another C starts from the solution of the nearest C. Solutions may differ
    within the tolerance of each fit.
    """
    token = _LATEST.set({})
    try:
        yield
    finally:
        _LATEST.reset(token)


def _shared_problem(
    X: F64, y: Ints, weight: F64, n_classes: int, offset: F64 | None, free_intercept: bool
) -> tuple[_Problem, _Solved]:
    """Return the problem of these rows and its solutions by C: the shared ones if they are of the same rows."""
    latest = _LATEST.get()
    if latest is None:
        return _Problem(X, y, weight, n_classes, offset, free_intercept), {}
    content = hashlib.blake2b(repr((X.shape, n_classes, free_intercept)).encode())
    for array in (X, y, weight) if offset is None else (X, y, weight, offset):
        content.update(np.ascontiguousarray(array).data)
    key = content.digest()
    if key not in latest:
        latest.clear()  # only the latest rows are kept, so memory is that of one fit
        latest[key] = (_Problem(X, y, weight, n_classes, offset, free_intercept), {})
    return latest[key]


class _Problem:
    """Rows, centred and rotated to their principal axes, with a column of ones for the intercept.

    Rows are not centred if the intercept is penalised, since it would be another one.
    """

    def __init__(
        self, X: F64, y: Ints, weight: F64, n_classes: int, offset: F64 | None, free_intercept: bool
    ) -> None:
        self.mean = weight @ X / weight.sum() if free_intercept else np.zeros(X.shape[1])
        centred = X - self.mean
        inertia, self.axes = np.linalg.eigh((centred * weight[:, None]).T @ centred)
        self.inertia = np.append(np.maximum(inertia, 0.0), weight.sum())  # with the intercept's column
        self.X = np.column_stack([centred @ self.axes, np.ones(len(X))])
        self.y, self.weight, self.offset = y, weight, offset
        self.onehot = np.eye(n_classes)[y]
        self.penalty = np.append(np.ones(X.shape[1]), 0.0 if free_intercept else 1.0)
        self.share = 0.5 if n_classes == 2 else 1.0
        self.rounding = _EPS * float(weight @ np.linalg.norm(self.X, axis=1))

    def minimise(self, C: float, theta: F64, tol: float, max_iter: int) -> tuple[F64, int, float, bool]:
        """Return weights and intercepts (c, p + 1), the steps, the relative gradient, and whether it converged."""
        C = C * self.share
        value, P = self.value(theta, C)
        for step in range(max_iter + 1):
            gradient = C * (self.weight[:, None] * (P - self.onehot)).T @ self.X + self.penalty * theta
            size, length = float(np.linalg.norm(gradient)), float(np.linalg.norm(theta[:, :-1]))
            converged = size <= max(tol * length, C * self.rounding)
            result = None if converged or step == max_iter else self.step(theta, C, value, P, gradient)
            if result is None:
                break
            theta, value, P = result
        return theta, step, size / length if length else 0.0, converged

    def value(self, theta: F64, C: float) -> tuple[float, F64]:
        """Return the objective and the class probabilities (n, c)."""
        scores = self.X @ theta.T
        if self.offset is not None:
            scores += self.offset
        scores -= scores.max(axis=1, keepdims=True)
        P = np.exp(scores)
        total = P.sum(axis=1)
        loss = np.log(total) - scores[np.arange(len(scores)), self.y]
        objective = 0.5 * float(np.sum(self.penalty * theta**2)) + C * float(self.weight @ loss)
        return objective, P / total[:, None]

    def step(
        self, theta: F64, C: float, value: float, P: F64, gradient: F64
    ) -> tuple[F64, float, F64] | None:
        """Take one Newton step with backtracking; return None if no step lowers the objective."""
        direction = self.direction(C, P, gradient)
        slope, length = float(np.sum(gradient * direction)), 1.0
        rounding = (
            8 * _EPS * (value + C * self.inertia[-1])
        )  # the loss of a row has a rounding error of about epsilon
        while length >= _SHORTEST_STEP:
            candidate = theta + length * direction
            # The mean over classes changes no probability, and the penalty is smallest without it.
            candidate -= candidate.mean(axis=0)
            new_value, probabilities = self.value(candidate, C)
            if new_value <= value + _ARMIJO * length * slope + rounding:
                return candidate, new_value, probabilities
            length /= 2
        return None

    def direction(self, C: float, P: F64, gradient: F64) -> F64:
        """Compute the Newton direction (c, p + 1) by conjugate gradients, to a tenth of the gradient."""
        weighted = C * self.weight[:, None] * P
        curvature = np.sum(weighted * (1 - P), axis=0) / self.weight.sum()  # (c,)
        diagonal = self.penalty + np.maximum(curvature, _EPS)[:, None] * self.inertia
        direction, residual = np.zeros_like(gradient), -gradient
        scaled = residual / diagonal
        search, size = scaled, float(np.sum(residual * scaled))
        enough = _FORCING**2 * size
        for _ in range(_MOST_PRODUCTS):
            scores = self.X @ search.T
            scores -= np.sum(P * scores, axis=1, keepdims=True)
            product = (weighted * scores).T @ self.X + self.penalty * search
            length = size / float(np.sum(search * product))
            direction = direction + length * search
            residual = residual - length * product
            scaled = residual / diagonal
            last, size = size, float(np.sum(residual * scaled))
            if size <= enough:
                break
            search = scaled + size / last * search
        return direction
