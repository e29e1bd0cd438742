"""Probabilities of groups that are read from prompts: how sure a zero-shot prediction of the sensitive value is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.embedding_rows import READ_ROWS
from fairerclip.data.row_pass import is_remote
from fairerclip.inputs.prompts import prototypes, zero_shot_scores
from fairerclip.inputs.sensitive import ResolvedSensitive
from fairerclip.inputs.sensitive_columns import SensitiveColumn

ROUNDS = 30
"""Steps of the mixture's estimation; it changes little after ten."""
PENALTY = 10.0
"""Inverse penalty of the calibration on labelled rows."""


def prompt_cosines(X: Any, prompts: Sequence[Floats], rows: Ints | None = None) -> F64:
    """Return the cosines (n, v) of rows X (n, p), or of some ``rows`` by number, with the prompts of each value.

    Rows are read in blocks.
    """
    T = prototypes(prompts)
    if rows is None or is_remote(X):
        return zero_shot_scores(X if rows is None else X.taken(rows), T, centred=False).astype(np.float64)
    blocks = [rows[start : start + READ_ROWS] for start in range(0, len(rows), READ_ROWS)]
    found = [zero_shot_scores(X[block], T, centred=False) for block in blocks]
    return np.concatenate(found).astype(np.float64)


def group_probabilities(X: Any, rows: Ints, sensitive: ResolvedSensitive) -> F64:
    """Return the probability (m, v) that some rows of X belong to each combination of sensitive values.

    Known values have probability one, and probabilities that were given stay. For values that were predicted from
    prompts the mixture of all rows tells how sure they are. One column of ones without categories.
    """
    out = np.ones((len(rows), 1))
    for column in sensitive.attributes:
        if column.codes is None or column.categories is None:
            continue
        P = _probabilities(X, rows, column, sensitive)
        out = (out[:, :, None] * P[:, None, :]).reshape(len(rows), -1)
    return out


def _probabilities(X: Any, rows: Ints, column: SensitiveColumn, sensitive: ResolvedSensitive) -> F64:
    if column.soft is not None:
        return np.asarray(column.soft[rows])
    codes, categories = column.codes, column.categories
    if codes is None or categories is None:
        raise AssertionError("a quantity has no groups")
    known = np.eye(len(categories))[codes[rows]]
    guess = sensitive.guesses.get(column.name)
    if guess is None or not guess.rows[rows].any():
        return known
    P = mixture_probabilities(prompt_cosines(X, sensitive.prompts[column.name].groups, rows))
    return np.where(guess.rows[rows][:, None], P, known)


@dataclass(frozen=True, eq=False)
class PromptMixture:
    """Mixture of normal distributions of equal width, one per value, of the centred cosines of rows with prompts.

    Attributes
    ----------
    centres : array of shape (v, v)
        Mean of the cosines of each value, one row per value.
    variance : float
        Variance of the cosines in each direction; 0 if all cosines are equal.
    """

    centres: F64
    variance: float

    @property
    def slopes(self) -> F64:
        """Coefficients (v, v) of the cosines in the logits of the values."""
        return (
            np.asarray(self.centres.T / self.variance)
            if self.variance > 0
            else 1e3 * np.eye(len(self.centres))
        )


def mixture_probabilities(cosines: Floats) -> F64:
    """Return probabilities (n, v) of the values from cosines (n, v) with their prompts, without labels.

    The rows are a mixture of v normal distributions of equal width, whose centres start at the means of the
    zero-shot predictions; docs/math.md#evidence. A row between two centres belongs to both in part.
    """
    return _estimated(cosines)[1]


def prompt_mixture(cosines: Floats) -> PromptMixture:
    """Return the mixture behind `mixture_probabilities`, for rows that come later."""
    return _estimated(cosines)[0]


def _estimated(cosines: Floats) -> tuple[PromptMixture, F64]:
    """Estimate the mixture of cosines (n, v), and the probabilities (n, v) of its rows."""
    X = np.asarray(cosines, dtype=np.float64)
    X = X - X.mean(axis=1, keepdims=True)
    v = X.shape[1]
    lengths = (X**2).sum(axis=1)[:, None]
    P = np.eye(v)[X.argmax(axis=1)]
    mixture = PromptMixture(np.zeros((v, v)), 0.0)
    for _ in range(ROUNDS):
        total = P.sum(axis=0)
        there = total > 0
        centres = np.divide(P.T @ X, total[:, None], out=np.zeros((v, v)), where=there[:, None])
        # (n, v) squared distances, without an array (n, v, v)
        squared = np.maximum(lengths - 2 * X @ centres.T + (centres**2).sum(axis=1), 0.0)
        variance = float((P * squared).sum()) / (len(X) * max(v - 1, 1))  # rows are centred: v − 1 dimensions
        if not variance > 0:
            break
        log_counts = np.where(there, np.log(np.maximum(total, 1e-300)), -np.inf)
        logits = log_counts - squared / (2 * variance)
        P = np.exp(logits - logits.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        mixture = PromptMixture(centres, variance)
    return mixture, np.asarray(P)


def calibrated_probabilities(cosines: Floats, known: Floats, values: Ints) -> F64:
    """Return probabilities (n, v) of the values from cosines (n, v), calibrated on rows whose value is known.

    Logistic regression of the known ``values`` (m,) on their cosines ``known`` (m, v). A value that no known row has
    gets probability zero.
    """
    from sklearn.linear_model import LogisticRegression  # slow to load

    present = np.unique(values)
    out = np.zeros(np.shape(cosines))
    if len(present) == 1:
        out[:, present[0]] = 1.0
        return out
    centre, spread = known.mean(axis=0), float(known.std()) or 1.0
    probe = LogisticRegression(C=PENALTY, max_iter=1000).fit((known - centre) / spread, values)
    out[:, probe.classes_] = probe.predict_proba((cosines - centre) / spread)
    return out
