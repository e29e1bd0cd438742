"""`Computation`: a function of a fitted model as a list of steps, from which ONNX files and torch modules are made.

A step has the numbers of values that it reads; value 0 is the input, and step k makes value k + 1. Constants are kept
in float64, and whoever renders a computation rounds them. A step that is ``wide`` is computed in float64 everywhere,
because rounding to float32 would show in its results.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip import __version__
from fairerclip._util.types import F64
from fairerclip.errors import ExportError


def rounded(name: str, values: Any, *, wide: bool) -> NDArray[Any]:
    """Return a constant in float64 if ``wide``, else in float32; raise if this cannot hold it."""
    with np.errstate(over="ignore"):  # it is an error, below
        array = np.ascontiguousarray(np.asarray(values, dtype=np.float64 if wide else np.float32))
    if not np.isfinite(array).all():
        raise ExportError(f"{name} has numbers that float32 cannot hold: rescale the rows, and fit again")
    return array


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """One step: the values that it reads, and whether it is computed in float64."""

    reads: tuple[int, ...]
    wide: bool = False

    @property
    def constants(self) -> dict[str, F64]:
        """Arrays of the step, by name."""
        return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class ToUnit(Step):
    """Rows scaled to unit length; a zero row stays zero, and a row with NaN or infinity becomes NaN."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Affine(Step):
    """``(x − centre) @ weight + bias`` with centre (p,), weight (p, q) and bias (q,).

    The centre is subtracted first, so that nothing large is added and subtracted again in float32.
    """

    weight: F64
    bias: F64 | None = None
    centre: F64 | None = None

    @property
    def constants(self) -> dict[str, F64]:
        """The arrays that are there."""
        found = {"weight": self.weight, "bias": self.bias, "centre": self.centre}
        return {name: array for name, array in found.items() if array is not None}


@dataclass(frozen=True, eq=False, kw_only=True)
class Scaled(Step):
    """``factor · x``."""

    factor: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Cosine(Step):
    """``cos(x)`` of every entry."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Positive(Step):
    """``max(x, 0)`` of every entry."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Probabilities(Step):
    """Softmax of each row, of ``factor · x``."""

    factor: float = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernel(Step):
    """``exp(−‖y − landmarkⱼ‖²)`` (n, m) of ``y = x · factor − centre``, with landmarks (m, p) on the scale of y."""

    landmarks: F64
    centre: F64
    factor: float

    @property
    def constants(self) -> dict[str, F64]:
        """Landmarks and centre, and half of each squared length, which the distances need."""
        halves = (self.landmarks**2).sum(axis=1) / 2
        return {"landmarks": self.landmarks.T.copy(), "halves": halves, "centre": self.centre}


@dataclass(frozen=True, eq=False, kw_only=True)
class Total(Step):
    """Sum of values of one shape."""


@dataclass(eq=False)
class Computation:
    """A function of rows (n, width): its steps, and which values are its outputs.

    Parameters
    ----------
    width : int
        Width p of the rows.
    method, part : str
        Class of the model, and which of its functions this is.
    normalize : bool
        Whether rows are scaled to unit length first.
    classes : array of shape (c,) or None
        Labels of a classifier, in the order of the columns of its scores.
    same_space : bool
        Whether the output is of the space of the input, so that a half-precision input gets one back.
    wide : bool
        Whether all steps are wide.
    """

    width: int
    method: str
    part: str
    normalize: bool
    classes: NDArray[Any] | None = None
    same_space: bool = False
    wide: bool = False
    steps: list[Step] = field(default_factory=list)
    outputs: dict[str, int] = field(default_factory=dict)

    def add(self, kind: Callable[..., Step], *reads: int, wide: bool = False, **settings: Any) -> int:
        """Add a step, and return the number of its value."""
        self.steps.append(kind(reads=reads, wide=wide or self.wide, **settings))
        return len(self.steps)

    def unit(self, value: int) -> int:
        """Return the number of a value scaled to unit length, which may be the value itself."""
        return value if value and isinstance(self.steps[value - 1], ToUnit) else self.add(ToUnit, value)

    def total(self, *values: int) -> int:
        """Return the number of the sum of values; one value is its own sum."""
        return values[0] if len(values) == 1 else self.add(Total, *values)

    def rows(self) -> int:
        """Return the number of the rows as the model sees them."""
        return self.unit(0) if self.normalize else 0

    def labels(self) -> list[Any]:
        """Return the labels of a classifier; none for other parts."""
        return [] if self.classes is None else list(self.classes.tolist())

    def about(self) -> dict[str, str]:
        """Return what a file tells about itself; values are text, the labels as JSON."""
        found = {
            "fairerclip_version": __version__,
            "method": self.method,
            "part": self.part,
            "width": str(self.width),
            "unit_rows": json.dumps(self.normalize),
        }
        if self.classes is not None:
            found["classes"] = json.dumps(self.labels())
        return found

    @property
    def constant_bytes(self) -> int:
        """Size of all constants in a file with float32, and float64 for wide steps."""
        return sum((8 if s.wide else 4) * a.size for s in self.steps for a in s.constants.values())
