"""Arrays of numpy and tensors of torch under one set of functions, so that the maths are written once.

Code that computes on blocks of rows takes ``xp = namespace(block)`` and calls functions of the array API standard that
numpy and torch both have under one name: ``sqrt``, ``cos``, ``exp``, ``where``, ``isfinite``, ``matmul`` …. What the
two do differently is here: types, places, and sums in float64. torch is imported by its user, never by this module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64
from fairerclip.errors import ParameterError, RowTypeError

WITHOUT_FLOAT64 = ("mps",)
"""Types of devices that have no float64: block sums are taken in float32 there, and added in float64 on the CPU."""
SINGLE = ("float16", "bfloat16", "float32")
"""Names of the types whose values are processed in float32."""
SQUARED_VALUES = 1 << 17
"""Values that are squared at a time: in float64 they fit in the cache of a core."""


def is_tensor(x: Any) -> bool:
    """Return whether x is a tensor of torch; False where torch was never imported."""
    # Another thread may be importing torch: nothing is a tensor until it has the class.
    return isinstance(x, getattr(sys.modules.get("torch"), "Tensor", ()))


def is_on_device(X: Any) -> bool:
    """Return whether slices of rows X are tensors: X is a tensor, or a view with the attribute ``device`` of one."""
    return (
        type(getattr(X, "device", None)).__module__ == "torch"
    )  # an array of numpy has the device "cpu", a str


def namespace(x: Any) -> Any:
    """Return the module whose functions take x: torch for a tensor, else numpy."""
    return sys.modules["torch"] if is_tensor(x) else np


def has_float64(x: Any) -> bool:
    """Return whether the device of a tensor has float64."""
    return x.device.type not in WITHOUT_FLOAT64


def type_name(dtype: Any) -> str:
    """Return the name of a type of numpy or torch.

    Examples
    --------
    >>> type_name(np.dtype(np.float32)), type_name("float64")
    ('float32', 'float64')
    """
    return str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else np.dtype(dtype).name


def free_on_device(X: Any) -> int | None:
    """Return the free bytes of the device of rows X; None where X is in the memory of the CPU."""
    if not is_on_device(X) or X.device.type != "cuda":
        return None
    return int(sys.modules["torch"].cuda.mem_get_info(X.device)[0])


def to_numpy(x: Any) -> NDArray[Any]:
    """Return x as an array of numpy in the memory of the CPU; bfloat16, which numpy lacks, becomes float32."""
    if not is_tensor(x):
        return np.asarray(x)
    x = x.detach()
    array: NDArray[Any] = (x.float() if type_name(x.dtype) == "bfloat16" else x).cpu().numpy()
    return array


def as_numbers(x: Any, name: str) -> NDArray[Any]:
    """Return x as an array of real numbers in the memory of the CPU; raise `RowTypeError` if it holds anything else.

    Types of numpy stay as they are up to float64. Objects that are numbers, and numbers of more precision, become
    float64, and infinite beyond its range.

    Examples
    --------
    >>> as_numbers([[1, 2]], "X").dtype, as_numbers(np.ones(2, dtype=object), "X").dtype
    (dtype('int64'), dtype('float64'))
    """
    if np.ma.is_masked(x):
        masked = int(np.ma.getmaskarray(x).sum())
        raise RowTypeError(
            f"{name} has {masked:,} masked values, and every value is used: remove their rows, or fill them"
        )
    try:
        array = to_numpy(x)
        if array.dtype.kind == "O" or array.dtype == np.longdouble:
            with np.errstate(over="ignore"):
                array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        ragged = "inhomogeneous" in str(error)
        what = "rows of different lengths" if ragged else " ".join(str(error).split())
        raise RowTypeError(f"{name} must hold real numbers: {what}") from None
    if array.dtype.kind not in "fiub":
        what = "Complex data not supported: " if array.dtype.kind == "c" else ""
        raise RowTypeError(
            f"{what}{name} must hold real numbers; got an array of {array.dtype} of shape {array.shape}"
        )
    return array


def cast(x: Any, dtype: Any) -> Any:
    """Return x, a tensor or an array-like, in a type, without a copy where it has it."""
    if not is_tensor(x):
        return np.asarray(x, dtype=dtype)
    name = type_name(dtype)
    if name == "float64" and not has_float64(x):
        raise ParameterError(
            f"float64 is not available on device {x.device}: use dtype='float32', or move the rows to the CPU"
        )
    return x.to(getattr(namespace(x), name))


def wide(x: Any) -> Any:
    """Return x in float64; in float32 on a device without float64."""
    if is_tensor(x) and not has_float64(x):
        return cast(x, "float32")
    return cast(x, "float64")


def _wide_type(x: Any) -> Any:
    """Return the type of torch in which sums of a tensor are taken."""
    torch = namespace(x)
    return torch.float64 if has_float64(x) else torch.float32


def beside(x: Any, array: Any, dtype: Any = None) -> Any:
    """Return an array of numpy as what x is: as it is, or as a tensor on the device of x.

    ``dtype`` is the type to return; None keeps that of the array. float64 becomes float32 on a device without it.
    """
    if not is_tensor(x):
        return array if dtype is None else array.astype(dtype, copy=False)
    name = type_name(array.dtype if dtype is None else dtype)
    if name == "float64" and not has_float64(x):
        name = "float32"
    torch = namespace(x)
    if name == "bfloat16":
        return torch.tensor(array, device=x.device).to(torch.bfloat16)
    return torch.tensor(np.ascontiguousarray(array, dtype=name), device=x.device)


def empty(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array or tensor without values, where x is."""
    if not is_tensor(x):
        return np.empty(shape, dtype=dtype)
    torch = namespace(x)
    return torch.empty(shape, dtype=getattr(torch, type_name(dtype)), device=x.device)


def copied(x: Any) -> Any:
    """Return a copy."""
    return x.clone() if is_tensor(x) else x.copy()


def joined(parts: Sequence[Any], axis: int = 0) -> Any:
    """Return arrays or tensors one after another along an axis."""
    return namespace(parts[0]).concatenate(list(parts), axis=axis)


def in_memory(X: Any) -> Any:
    """Return all rows of X at once: a tensor where its slices are tensors, else an array."""
    return X[:] if is_on_device(X) else np.asarray(X)


def accumulate(total: Any, product: Any) -> Any:
    """Return total + product in float64, on the device of the product if it has float64, else on the CPU.

    ``total`` is None at first, and is changed in place afterwards.
    """
    if total is None:
        if is_tensor(product) and has_float64(product):
            return copied(product) if type_name(product.dtype) == "float64" else cast(product, "float64")
        return to_numpy(product).astype(np.float64)
    total = sums_place(total, product)
    total += product if is_tensor(total) else to_numpy(product)
    return total


def sums_place(total: Any, x: Any) -> Any:
    """Return a sum in float64 where products of x are added to it: on the device of x, or on the CPU.

    Rows of one fit may be arrays first and tensors later, or on several devices.
    """
    if not (is_tensor(x) and has_float64(x)):
        return to_numpy(total)
    return total.to(x.device) if is_tensor(total) else beside(x, total)


def row_squares(rows: Any) -> Any:
    """Return the squared lengths (n,) of rows, summed in `wide` precision; infinite where they overflow."""
    if is_tensor(rows):
        rows = cast(rows, "float32") if type_name(rows.dtype) in SINGLE else wide(rows)
        return (rows * rows).sum(axis=1, dtype=_wide_type(rows))
    out = np.empty(len(rows))
    step = max(1, SQUARED_VALUES // max(1, rows.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(rows), step):
            part = np.asarray(rows[start : start + step], dtype=np.float64)
            # One product for each row: twice as fast as an einsum that converts its inputs.
            out[start : start + step] = np.matmul(part[:, None, :], part[:, :, None])[:, 0, 0]
    return out


def column_sums(x: Any) -> F64:
    """Return the sums (k,) of the columns, taken in `wide` precision."""
    if is_tensor(x):
        return to_numpy(x.sum(axis=0, dtype=_wide_type(x))).astype(np.float64)
    return np.asarray(x.sum(axis=0, dtype=np.float64))


class Placed:
    """Constants of a fitted map, converted and moved once for each type and device that they are used with.

    Examples
    --------
    >>> constants = Placed(np.ones(2))
    >>> constants.beside(np.zeros(1, dtype=np.float32))[0].dtype
    dtype('float32')
    """

    def __init__(self, *arrays: NDArray[Any]) -> None:
        self._arrays = arrays
        self._copies: dict[tuple[str, str], tuple[Any, ...]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_arrays": self._arrays, "_copies": {}}  # a pickled model needs neither torch nor the device

    def beside(self, x: Any) -> tuple[Any, ...]:
        """Return the constants in the type of x, where x is."""
        place = str(x.device) if is_tensor(x) else "numpy"
        key = (place, type_name(x.dtype))
        if key not in self._copies:
            self._copies[key] = tuple(beside(x, array, x.dtype) for array in self._arrays)
        return self._copies[key]
