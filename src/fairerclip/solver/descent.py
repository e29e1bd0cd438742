"""State of conjugate gradients, saved from time to time, so that an interrupted fit goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from fairerclip._util.types import F64
from fairerclip.data.row_checkpoint import RowCheckpoint
from fairerclip.errors import CheckpointError

PURPOSE = "solves"
"""Name of these sums in a file."""
MOST_SOLVES = 100
"""Solutions that are kept for a fit that is taken up again; of earlier ones it makes the solve again."""
COLUMNS, OTHERS = ("X", "R", "previous", "direction"), ("start", "turn", "rho", "counts")


@dataclass
class Descent:
    """Conjugate gradients on the independent columns of a residual, after some number of steps.

    All arrays are in the order of C, which decides the last digits of products, and which a file keeps.
    """

    start: F64
    """(D, K) solutions that the residual is of."""
    turn: F64
    """(j, K) with residual = R @ turn."""
    X: F64
    """(D, j) change of the solutions, in the coordinates of the independent columns."""
    R: F64
    """(D, j) residual."""
    previous: F64
    """(D, j) residual one step before."""
    direction: F64
    """(D, j)"""
    rho: F64
    """(j,) products of the residuals with their preconditioned ones."""
    counts: F64
    """(3,) steps of the solve so far; 1 if true residuals are computed in float64; the true residual of ``start``."""

    @classmethod
    def of(cls, start: F64, R: F64, cut: float, counts: tuple[float, float, float]) -> Descent:
        """Begin with solutions (D, K) and their residual (D, K), of which parts below ``cut`` are left."""
        # Columns of labels are collinear: one-hot classes have a constant sum. Only independent ones need products.
        U, S, Vt = linalg.svd(R, full_matrices=False, check_finite=False)
        keep = S > cut
        R = np.ascontiguousarray(U[:, keep] * S[keep])
        zero = np.zeros_like(R)
        turn = np.ascontiguousarray(Vt[keep])
        return cls(
            *(np.ascontiguousarray(start), turn, zero, R, R, zero, np.ones(R.shape[1])),
            counts=np.array(counts),
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Descent:
        """Return a saved state; raise ValueError or KeyError if it is damaged."""
        D, K = arrays["start"].shape  # ValueError if it is no matrix
        j = arrays["rho"].size if "rho" in arrays else 0
        shapes = {"start": (D, K), "turn": (j, K), "rho": (j,), "counts": (3,)}
        shapes |= dict.fromkeys(COLUMNS, (D, j))
        # Empty arrays are not saved.
        found = {name: arrays[name] if 0 not in shape else np.zeros(shape) for name, shape in shapes.items()}
        for name, array in found.items():
            finite = np.isfinite(array[:2] if name == "counts" else array).all()
            if array.shape != shapes[name] or array.dtype != np.float64 or not finite:
                raise ValueError(
                    f"{name} must be finite float64 of shape {shapes[name]}, got {array.dtype} {array.shape}"
                )
        return cls(**found)

    def to_arrays(self) -> dict[str, F64]:
        """Return the arrays that are not empty."""
        arrays = {name: getattr(self, name) for name in (*COLUMNS, *OTHERS)}
        return {name: array for name, array in arrays.items() if array.size}

    @property
    def steps(self) -> int:
        """Number of steps of the solve so far."""
        return int(self.counts[0])

    @property
    def precise(self) -> bool:
        """Whether true residuals are computed in float64."""
        return bool(self.counts[1])

    @property
    def columns(self) -> F64:
        """(D, K) solutions now."""
        return np.asarray(self.start + self.X @ self.turn)

    @property
    def residual(self) -> float:
        """Largest length of a column of the residual, as it was updated."""
        return float(np.linalg.norm(self.R @ self.turn, axis=0).max(initial=0.0))

    def step(self, apply: Callable[[F64], F64], precondition: Callable[[F64], F64]) -> None:
        """Take one step, with functions for products with C and with an approximate inverse of it."""
        Y = precondition(self.R)
        # The form of Polak and Ribière, which allows for rounding errors of the preconditioner.
        turn = np.einsum("ij,ij->j", self.R - self.previous, Y)
        factor = np.divide(turn, self.rho, out=np.zeros_like(turn), where=self.rho > 0)
        self.direction = np.ascontiguousarray(Y + factor * self.direction)
        self.rho = np.einsum("ij,ij->j", self.R, Y)
        CD = apply(self.direction)
        curvature = np.einsum("ij,ij->j", self.direction, CD)
        alpha = np.divide(self.rho, curvature, out=np.zeros_like(curvature), where=curvature > 0)
        self.X = self.X + alpha * self.direction
        self.previous, self.R = self.R, np.ascontiguousarray(self.R - alpha * CD)
        self.counts[0] += 1


class SavedSolves:
    """Solves of a fit, by what they solve: solutions of those that are done, and the state of the one under way.

    Parameters
    ----------
    checkpoint : RowCheckpoint
        The file.
    """

    def __init__(self, checkpoint: RowCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._states: dict[str, Descent] = {}
        self._key: str | None = None

    def begin(self, key: str, shape: tuple[int, ...]) -> Descent | None:
        """Begin a solve for columns (D, K), and return its saved state; None if there is none.

        ``key`` is a digest of the columns and of all that the solution depends on.
        """
        if self._key is None:
            self._checkpoint.restore(self, PURPOSE)
        self._key = key
        found = self._states.get(key)
        if found is not None and found.start.shape != shape:
            raise CheckpointError(
                f"{self._checkpoint.path}: expected solutions of shape {shape}, found {found.start.shape}; remove the "
                "file to begin anew"
            )
        return found

    def keep(self, state: Descent) -> None:
        """Take over the state of the solve under way, and write all if the last file is old enough."""
        if self._key is None:
            raise AssertionError("a solve begins before its state is kept")
        self._states.pop(self._key, None)  # the latest is the last
        self._states[self._key] = state
        while len(self._states) > MOST_SOLVES:
            del self._states[next(iter(self._states))]
        self._checkpoint.save(self, PURPOSE, state.steps)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all states as arrays."""
        return {
            f"{key}.{name}": array
            for key, state in self._states.items()
            for name, array in state.to_arrays().items()
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over saved states; raise ValueError or KeyError if they are damaged."""
        by_key: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in arrays.items():
            key, _, field = name.partition(".")
            by_key.setdefault(key, {})[field] = array
        self._states = {key: Descent.from_arrays(found) for key, found in by_key.items()}
