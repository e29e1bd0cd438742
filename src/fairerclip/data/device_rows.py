"""Rows on an accelerator: checks of a tensor that is given as X, and stores whose blocks are moved to a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairerclip._util.arrays import SINGLE, beside, cast, has_float64, is_tensor, type_name
from fairerclip._util.extras import require
from fairerclip.errors import ParameterError, RowTypeError, ShapeError

NUMBERS = (*SINGLE, "float64", "bool", "uint8", "int8", "int16", "int32", "int64")
"""Types of tensors that are accepted as embeddings."""


def tensor_rows(X: Any) -> Any:
    """Return a tensor X (n, p), checked, without its gradient and in a type of its device; anything else as it is.

    Whole numbers become float32 on a device without float64.
    """
    if not is_tensor(X):
        return X
    if X.ndim != 2 or 0 in X.shape:
        raise ShapeError(
            f"expected X as a tensor of shape (n, p) with one row and one column at least, got shape {tuple(X.shape)}"
        )
    if str(X.layout) != "torch.strided":
        raise ShapeError(f"expected X as a dense tensor, got one of layout {X.layout}: call X.to_dense()")
    if X.device.type == "meta" or type_name(X.dtype) not in NUMBERS:
        raise RowTypeError(
            f"expected X as a tensor of real numbers, got {type_name(X.dtype)} on device {X.device}"
        )
    X = X.detach()
    whole = type_name(X.dtype) not in (*SINGLE, "float64")
    return cast(X, "float32") if whole and not has_float64(X) else X


def on_device(rows: Any, device: Any) -> DeviceRows:
    """Return embeddings that stay where they are, and whose blocks are moved to a device when they are used.

    So a fit, or `transform`, of rows that do not fit in the memory of a device is computed on it.

    Parameters
    ----------
    rows : EmbeddingStore, memory map or array of shape (n, p)
        Embeddings.
    device : str or torch.device
        Such as ``"cuda"`` or ``"mps"``.

    Returns
    -------
    DeviceRows
        To be given as ``X`` to `FairerCLIP` and `EmbeddingMitigator`.

    Examples
    --------
    >>> rows = on_device(np.eye(3, dtype=np.float32), "cpu")
    >>> rows.shape, rows[1:].device.type
    ((3, 3), 'cpu')
    """
    return DeviceRows(rows, device)


class DeviceRows:
    """View of embeddings whose slices are tensors on a device; made by `on_device`."""

    ndim = 2

    def __init__(self, rows: Any, device: Any) -> None:
        torch = require("torch", "torch", "on_device")
        try:
            self._place = torch.empty(0, device=device)
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ParameterError(
                f"expected a device of torch that is there, such as 'cuda' or 'cpu', got {device!r}: "
                f"{str(error).splitlines()[0]}"
            ) from None
        self._rows = rows
        self.device = self._place.device
        self.shape = (int(rows.shape[0]), int(rows.shape[1]))
        self.dtype = np.dtype(rows.dtype) if has_float64(self._place) else np.dtype(np.float32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Return rows (m, p) as a tensor, for a slice or an array of row numbers."""
        return beside(self._place, np.asarray(self._rows[rows]), self.dtype)
