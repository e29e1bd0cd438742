"""One vector that is added to the prompts of all values of an attribute, so that rows are read as they should be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from fairerclip._util.types import F64, Ints
from fairerclip.data.embedding_rows import unit_rows

TEMPERATURE = 100.0
"""Factor of the cosines in the cross-entropy: the largest that CLIP learns."""
PENALTY = 0.1
"""Factor of the squared length of the vector, in units of the cross-entropy."""
STEPS = 200
"""Most steps of L-BFGS."""


class Prefix(NamedTuple):
    """A learned vector, and how well prompts read the values of the rows without and with it."""

    offset: F64
    """The vector (p,); zero if none reads the rows at least as well as none."""
    before: float
    """Weighted share of the rows whose value is that of the nearest prompt."""
    after: float


def learned_prefix(X: F64, s: Ints, prompts: F64, weight: F64) -> Prefix:
    """Return the vector u for which the nearest of the prompts ``n(pᵥ + u)`` is that of each row's value.

    It minimises `reading_loss` by L-BFGS from u = 0, so that the loss is never larger than without it. The vector is
    dropped if fewer rows are read as their value, because the loss fell while the share of right rows did. The
    minimum may be a local one. O(n·p·v) time a step.

    Parameters
    ----------
    X : array of shape (n, p)
        Unit rows.
    s : int array of shape (n,)
        Places of the rows' values among the prompts.
    prompts : array of shape (v, p)
        One unit vector per value.
    weight : array of shape (n,)
        Row weights.
    """
    used = weight > 0
    X, s, weight = X[used], s[used], weight[used]
    found = minimize(
        reading_loss,
        np.zeros(X.shape[1]),
        args=(X, s, prompts, weight),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": STEPS},
    )
    offsets = (np.zeros(X.shape[1]), np.asarray(found.x, dtype=np.float64))
    before, after = (_agreement(X, s, unit_rows(prompts + offset), weight) for offset in offsets)
    return Prefix(offsets[1], before, after) if after >= before else Prefix(offsets[0], before, before)


def reading_loss(offset: F64, X: F64, s: Ints, prompts: F64, weight: F64) -> tuple[float, F64]:
    """Return ``mean CE(softmax(τ·x·n(pᵥ + u)), s) + ρ‖u‖²`` for an offset u (p,), and its gradient (p,).

    A vector that is added to all prompts adds the same number to all cosines of a row before the prompts are
    normalised; it acts through their lengths alone.
    """
    moved = prompts + offset
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    unit = moved / lengths
    logits = TEMPERATURE * X @ unit.T
    logits -= logits.max(axis=1, keepdims=True)
    shares = weight / weight.sum()
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    loss = -float(shares @ log_p[np.arange(len(s)), s])
    error = np.exp(log_p)
    error[np.arange(len(s)), s] -= 1
    slope = TEMPERATURE * (error * shares[:, None]).T @ X  # (v, p), in the unit prompts
    tangent = (slope - np.sum(slope * unit, axis=1, keepdims=True) * unit) / lengths
    return loss + PENALTY * float(offset @ offset), tangent.sum(axis=0) + 2 * PENALTY * offset


def _agreement(X: F64, s: Ints, prompts: F64, weight: F64) -> float:
    """Return the weighted share of rows whose nearest prompt is that of their value."""
    return float(weight @ ((X @ prompts.T).argmax(axis=1) == s) / weight.sum())
