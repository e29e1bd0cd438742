"""Random folds of rows in which every class is spread evenly, for methods in two stages."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from fairerclip._util.types import Ints
from fairerclip.errors import ParameterError


def class_folds(y: Ints, folds: int, random_state: Any) -> Ints:
    """Draw a fold for each row (n,); the rows of a class are spread evenly over the folds.

    Examples
    --------
    >>> np.bincount(class_folds(np.array([0, 1, 0, 1, 1, 1]), 2, 0)).tolist()
    [3, 3]
    """
    try:
        rng = check_random_state(random_state)
    except ValueError as error:
        raise ParameterError(f"random_state: {error}") from None
    order = rng.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]  # class after class, at random inside each
    fold = np.empty(len(y), dtype=np.int64)
    fold[order] = np.arange(len(y)) % folds
    return fold
