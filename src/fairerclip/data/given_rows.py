"""Rows X as users give them, checked and brought to a form that passes over rows can read."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from fairerclip._util.arrays import is_on_device
from fairerclip.data.device_rows import tensor_rows
from fairerclip.data.distribution import on_cluster
from fairerclip.data.io.file_rows import FileRows
from fairerclip.data.row_pass import is_remote
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import ShapeError


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
        X is not a matrix of numbers, or has other columns than those of the fit.
    """
    X = on_cluster(X)
    try:
        X = tensor_rows(X)
        if isinstance(X, EmbeddingStore | FileRows) or is_on_device(X) or is_remote(X):
            return validate_data(estimator, X, reset=reset, skip_check_array=True)
        X = validate_data(estimator, X, reset=reset, dtype=dtype, ensure_all_finite=False)
    except ValueError as error:
        raise ShapeError(str(error)) from None
    in_file = FileRows.of(X) if isinstance(X, np.ndarray) else None
    return X if in_file is None else in_file
