"""Matrices with the values of a plain one and an odd type, memory layout or container, drawn by hypothesis."""

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

HAS_TORCH = importlib.util.find_spec("torch") is not None
REAL = ("f2", "f4", "f8", ">f2", ">f4", ">f8", "g", "i1", "i2", ">i4", "i8", "u1", "u8", "?")
SIZES = ("plain", "huge", "largest", "denormal", "smallest", "mixed", "signed zeros")


class Odd:
    """What is given, and the same values as a plain array."""

    def __init__(self, given: Any, plain: np.ndarray, *names: str) -> None:
        self.given, self.plain, self.names = given, plain, names

    def __repr__(self) -> str:
        return " ".join(self.names)


def real_matrix(rng, values, dtype, size):
    """Values in a real type: as they are, or moved to an end of what the type can hold. No row is zero."""
    kind, shape = np.dtype(dtype).kind, values.shape
    if kind == "b":
        found = values > 0
        found[:, 0] |= ~found.any(axis=1)
        return found
    if kind in "iu":
        limits = np.iinfo(dtype)
        factor = limits.max / 8 if size in ("huge", "largest") else 10
        return np.clip(np.rint(values * factor), limits.min, limits.max // 2 + 1).astype(dtype) | 1
    limits = np.finfo(dtype)
    values = values.astype(np.longdouble) / np.abs(values).max()  # in [-1, 1]
    low, high = np.longdouble(limits.smallest_subnormal), np.longdouble(limits.max)
    if np.dtype(dtype).itemsize > 8:  # beyond float64 is another matter
        low, high = np.longdouble(5e-324), np.longdouble(np.finfo("f8").max)
    if size == "huge":
        values = values * np.sqrt(high) * 4
    elif size == "largest":
        values = values * high
    elif size == "denormal":
        values = values * low * 1000
    elif size == "smallest":
        values = np.sign(values) * low
    elif size == "mixed":
        exponents = np.linspace(float(np.log2(low)) + 12, float(np.log2(high)) - 1, shape[0])
        values = values * np.exp2(rng.permutation(exponents).astype(np.longdouble))[:, None]
    elif size == "signed zeros":
        values[:, 1:] *= np.where(rng.random((shape[0], shape[1] - 1)) < 0.5, -0.0, 1)
    return np.clip(values, -high, high).astype(dtype)


def _second(array, axis):
    shape = [size * (2 if k == axis else 1) for k, size in enumerate(array.shape)]
    buffer = np.full(shape, 1, dtype=array.dtype)
    part = buffer[::2] if axis == 0 else buffer[:, ::2]
    part[...] = array
    return part


def _read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def _mapped(array, *, step=1):
    handle = tempfile.NamedTemporaryFile(suffix=".bin", delete=False)  # noqa: SIM115 - deleted below, while mapped
    with handle:
        np.repeat(array, step, axis=0).tofile(handle)
    mapped = np.memmap(handle.name, dtype=array.dtype, mode="r", shape=(len(array) * step, array.shape[1]))
    MAPPED.append(Path(handle.name))
    return mapped[::step]


MAPPED: list[Path] = []
"""Files to delete; a map that is read in blocks needs its file."""


def _tensor(array):
    import torch

    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return torch.from_numpy(native.copy())


LAYOUTS = {
    "C order": lambda a: a.copy(),
    "Fortran order": np.asfortranarray,
    "reversed rows": lambda a: a[::-1].copy()[::-1],
    "every second row": lambda a: _second(a, 0),
    "every second column": lambda a: _second(a, 1),
    "read-only": _read_only,
    "memory map": _mapped,
    "every third row of a map": lambda a: _mapped(a, step=3),
    "nested lists": lambda a: a.tolist(),
    "tuple of rows": tuple,
    "objects": lambda a: a.astype(object),
}
TENSORS = {
    "tensor": _tensor,
    "tensor with a gradient": lambda a: _tensor(a).requires_grad_(),
    "transposed tensor": lambda a: _tensor(a.T.copy()).T,
}
TORCH_TYPES = ("f2", "f4", "f8", "i1", "i2", "i8", "u1", "?")


def laid_out(name, array):
    """The array in a layout; of a broadcast row, the rows are those of the first."""
    if name == "broadcast row":
        given = np.broadcast_to(array[0], array.shape)
        return given, np.array(given)
    return {**LAYOUTS, **TENSORS}[name](array), array


def working(array):
    """The plain array that the answers are compared with: float32 for half and single precision, else float64."""
    return np.ascontiguousarray(
        array, dtype=np.float32 if array.dtype.itemsize < 8 and array.dtype.kind == "f" else np.float64
    )


@st.composite
def real_inputs(draw, width, rows=8, like=None):
    """Odd matrices of real, finite numbers without a zero row: (1 to ``rows``, ``width``), or values of ``like``."""
    dtype, size = draw(st.sampled_from(REAL)), draw(st.sampled_from(SIZES))
    layouts = [*LAYOUTS, "broadcast row"]
    if HAS_TORCH and dtype in TORCH_TYPES:
        layouts += [t for t in TENSORS if t != "tensor with a gradient" or np.dtype(dtype).kind == "f"]
    layout = draw(st.sampled_from(layouts))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    values = rng.normal(size=(draw(st.integers(1, rows)), width)) if like is None else like
    array = real_matrix(rng, values, dtype, size)
    given, array = laid_out(layout, array)
    if layout == "nested lists" and dtype == "g":  # its numbers are still of numpy
        layout += " of longdouble"
    plain = working(array)
    if layout in ("nested lists", "objects"):  # numbers of Python, which are float64
        plain = plain.astype(np.float64)
    return Odd(given, plain, dtype, size, layout, f"{array.shape}")


REFUSED = {
    "complex": lambda X: X.astype(complex),
    "text": lambda X: X.astype(str),
    "bytes": lambda X: X.astype("S"),
    "objects that are text": lambda X: np.full(X.shape, "a", dtype=object),
    "records": lambda X: np.zeros(len(X), dtype=[("a", "f8"), ("b", "f8")]),
    "void": lambda X: X.view("V8"),
    "dates": lambda X: np.zeros(X.shape, "M8[s]"),
    "masked values": lambda X: np.ma.masked_array(X, mask=X == X.max()),
    "whole numbers without end": lambda X: [[10**400] * X.shape[1]] * len(X),
    "rows of several lengths": lambda X: [[1.0] * (2 + k % 2) for k in range(max(len(X), 2))],
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "another width": lambda X: X[:, 1:],
    "one axis": lambda X: X[0],
    "three axes": lambda X: X[None],
    "a number": lambda X: 1.0,
    "nothing": lambda X: None,
    "a dictionary": lambda X: {"X": X},
    "NaN": lambda X: np.where(np.arange(X.shape[1]) == 1, np.nan, X),
    "infinity": lambda X: np.where(np.arange(X.shape[1]) == 1, -np.inf, X),
    "beyond float64": lambda X: X.astype(np.longdouble) * np.longdouble("1e4000"),
}
"""Inputs that no method may answer."""
