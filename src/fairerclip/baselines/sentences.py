"""Embeddings of sentences that name a class together with a sensitive value: all pairs of them, given or composed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fairerclip._util.types import F64
from fairerclip.data.embedding_rows import unit_rows


def compose(text: F64, values: F64) -> F64:
    """Return ``n(t + u)`` (c, v, p), in place of a sentence that names a class and a value, for all classes and values.

    Parameters
    ----------
    text : array of shape (c, p)
        Unit vectors of the classes.
    values : array of shape (v, p)
        Unit vectors of the values.

    Examples
    --------
    >>> compose(np.eye(3)[:2], np.eye(3)[2:]).round(3).tolist()
    [[[0.707, 0.0, 0.707]], [[0.0, 0.707, 0.707]]]
    """
    sums = text[:, None] + values[None]
    return unit_rows(sums.reshape(-1, text.shape[1])).reshape(sums.shape)


def compose_pairs(text: F64, values: list[F64]) -> F64:
    """Return pairs (m, 2, p) of ``n(t + u)`` for every class and every two values of an attribute.

    Parameters
    ----------
    text : array of shape (c, p)
        Unit vectors of the classes.
    values : list of arrays of shape (v, p)
        Unit vectors of the values of each attribute.
    """
    return np.concatenate([pairs_inside(list(compose(text, attribute))) for attribute in values])


def pairs_inside(groups: Sequence[F64]) -> F64:
    """Return all pairs (m, 2, p) of rows of the same group; 5 sentences for each of 2 classes give 20.

    Examples
    --------
    >>> pairs_inside([np.eye(3), np.eye(3)[:2]]).shape
    (4, 2, 3)
    """
    pairs = [pair for rows in groups for pair in combinations(rows, 2)]
    return np.asarray(pairs)
