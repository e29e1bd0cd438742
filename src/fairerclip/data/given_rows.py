"""Rows X as users give them, checked and brought to a form that passes over rows can read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from fairerclip._util.arrays import as_numbers, is_on_device, is_tensor
from fairerclip.data.device_rows import tensor_rows
from fairerclip.data.distribution import on_cluster
from fairerclip.data.io.file_rows import FileRows
from fairerclip.data.row_pass import is_remote
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import RowTypeError, ShapeError


def given_rows(estimator: Any, X: Any, *, reset: bool, dtype: Any = "numeric") -> Any:
    """Return X (n, p), checked for its shape and column names as scikit-learn does.

    Finiteness is checked by `fairerclip.data.embedding_rows.check_rows`, which names rows. A Dask array becomes rows
    on its cluster, and a map of a file rows that are read from it. Rows of a store and tensors stay where they are.

    Parameters
    ----------
    estimator : estimator
        Keeps the number and the names of the columns.
    X : array, DataFrame, tensor, memory map, store, Dask array or RemoteRows of shape (n, p)
        Rows.
    reset : bool
        Whether the columns are those of a fit; otherwise they must be the same as then.
    dtype : dtype or "numeric"
        Type of arrays; "numeric" keeps theirs.

    Raises
    ------
    ShapeError
        X is not a matrix, or has other columns than those of the fit.
    RowTypeError
        X does not hold real numbers.
    """
    X = tensor_rows(on_cluster(X))
    if isinstance(X, EmbeddingStore | FileRows) or is_on_device(X) or is_remote(X):
        return checked_columns(estimator, X, reset=reset)
    X = checked_matrix(estimator, X, reset=reset, dtype=dtype)
    in_file = FileRows.of(X)
    return X if in_file is None else in_file


def checked_columns(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Return X (n, p), which stays where it is, checked for the number of its columns alone."""
    try:
        return validate_data(estimator, X, reset=reset, skip_check_array=True)
    except ValueError as error:
        raise ShapeError(str(error)) from None


def checked_matrix(estimator: Any, X: Any, *, reset: bool, dtype: Any = "numeric") -> NDArray[Any]:
    """Return X (n, p) as an array of real numbers in the memory of the CPU, checked as in `given_rows`.

    Types stay as `fairerclip._util.arrays.as_numbers` leaves them.
    """
    if isinstance(X, (list, tuple, np.ndarray)) or is_tensor(X):
        X = as_numbers(tensor_rows(X), "X")
        if X.ndim < 2:
            raise ShapeError(
                f"Expected 2D array of shape (n, p), got {X.ndim}D array of shape {X.shape}. Reshape your data: one "
                "row is X.reshape(1, -1)"
            )
    try:
        X = validate_data(estimator, X, reset=reset, dtype=dtype, ensure_all_finite=False)
    except TypeError as error:
        raise RowTypeError(f"X must hold real numbers: {error}") from None
    except ValueError as error:
        raise ShapeError(" ".join(str(error).split())) from None
    return as_numbers(X, "X")  # of a data frame the types are known only now
