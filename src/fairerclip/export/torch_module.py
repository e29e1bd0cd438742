"""`FittedModule`: a computation as a torch module whose constants are buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch

from fairerclip.errors import ExportError, ShapeError
from fairerclip.export.computation import (
    Affine,
    Computation,
    Cosine,
    Kernel,
    Positive,
    Probabilities,
    Scaled,
    Step,
    Total,
    ToUnit,
    rounded,
)

Tensor = Any


class FittedModule(torch.nn.Module):
    """A function of a fitted model: rows (n, p) → a tensor, or a dictionary of tensors for a classifier.

    A classifier returns ``scores`` (n, c), ``probabilities`` (n, c) if the model has them, and ``code`` (n,), which
    counts in ``classes``; −1 is the code of a row with NaN or infinity. Constants are buffers, which are saved and
    moved, and not trained. They stay in float32 at least, and in float64 where the package computes in float64, also
    after ``half()`` or ``float()``.

    Parameters
    ----------
    computation : Computation
        What to compute.
    dtype : torch.dtype
        float32 or float64.

    Attributes
    ----------
    classes : list or None
        Labels of a classifier, in the order of its scores.
    width : int
        Width p of the rows.
    """

    def __init__(self, computation: Computation, dtype: torch.dtype) -> None:
        super().__init__()
        self.width = computation.width
        self.classes = None if computation.classes is None else computation.classes.tolist()
        self._steps = tuple(computation.steps)
        self._outputs = dict(computation.outputs)
        self._same_space = computation.same_space
        self.register_buffer("_precision", torch.empty(0, dtype=dtype), persistent=False)
        self._least: dict[str, torch.dtype] = {}
        for number, step in enumerate(self._steps, start=1):
            wide = step.wide or dtype == torch.float64
            rounded(f"step{number}_factor", getattr(step, "factor", 1.0), wide=wide)
            for key, array in step.constants.items():
                name = f"step{number}_{key}"
                values = rounded(name, array, wide=wide)
                self.register_buffer(name, torch.tensor(values))
                self._least[name] = torch.float64 if step.wide else torch.float32

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, value in self._buffers.items():
            least = self._least.get(name, torch.float32)
            if value.dtype.itemsize < least.itemsize:
                self._buffers[name] = value = before[name].to(device=value.device, dtype=least)
            if value.dtype != before[name].dtype and not value.is_meta and not torch.isfinite(value).all():
                self._buffers.update(before)
                raise ExportError(f"{name} has numbers that {value.dtype} cannot hold: stay in float64")
        return self

    def forward(self, rows: Tensor) -> Tensor | dict[str, Tensor]:
        """Compute the outputs of rows (n, p) in the precision of the module."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise ShapeError(f"expected rows of shape (n, {self.width}); got {tuple(rows.shape)}")
        if torch.is_autocast_enabled(rows.device.type):  # it would compute in half precision
            with torch.autocast(rows.device.type, enabled=False):
                return self.forward(rows)
        working = self._precision.dtype
        values = [rows.to(working)]
        for number, step in enumerate(self._steps, start=1):
            kind = torch.float64 if step.wide else working
            constants = {key: getattr(self, f"step{number}_{key}") for key in step.constants}
            values.append(_render(step, [values[k].to(kind) for k in step.reads], constants))
        found = {name: values[k].to(working) for name, k in self._outputs.items()}
        if self.classes is None:
            (out,) = found.values()
            return out.to(rows.dtype) if self._same_space and rows.dtype.itemsize < 4 else out
        scores = found["scores"]
        lost = ~torch.isfinite(scores).all(dim=1)
        return {**found, "code": torch.where(lost, -1, scores.argmax(dim=1))}

    def extra_repr(self) -> str:
        """Return what is printed of the module."""
        labels = "" if self.classes is None else f", classes={self.classes[:10]}"
        return f"width={self.width}, outputs={[*self._outputs]}{labels}"


def _render(step: Step, x: list[Tensor], constants: dict[str, Tensor]) -> Tensor:
    """Return the value of a step."""
    match step:
        case ToUnit():
            return _unit(x[0])
        case Affine():
            rows = x[0] - constants["centre"] if "centre" in constants else x[0]
            product = rows @ constants["weight"]
            return product + constants["bias"] if "bias" in constants else product
        case Scaled():
            return x[0] * step.factor
        case Cosine():
            return torch.cos(x[0])
        case Positive():
            return torch.relu(x[0])
        case Probabilities():
            return torch.softmax(x[0] * step.factor, dim=1)
        case Kernel():
            rows = x[0] * step.factor - constants["centre"]
            squares = rows.square().sum(dim=1, keepdim=True) / 2
            near = rows @ constants["landmarks"] - constants["halves"] - squares
            return torch.exp(2 * near.clamp(max=0))
        case Total():
            return sum(x[1:], start=x[0])
    raise ExportError(f"there is no torch form of {type(step).__name__}")


def _unit(rows: Tensor) -> Tensor:
    """Scale rows to unit length: first by the largest entry, so that squares stay within range, then by the length."""
    largest = rows.detach().abs().amax(dim=1, keepdim=True)
    rows = rows / torch.where(largest == 0, 1.0, largest)
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(length == 0, 1.0, length)
