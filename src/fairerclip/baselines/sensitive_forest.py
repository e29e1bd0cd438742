"""A forest that predicts S from rows, for methods that fill in the mean of rows whose S it is uncertain about."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Ints

N_TREES = 100
"""Number of trees that SFID publishes."""
LEAST_ROWS, LEAST_SHARE = 20, 0.01
"""Number and share of the rows in a mean, at least: that of a few is noise, and would put rows of people into files."""


class Uncertain(NamedTuple):
    """Rows of uncertain S: their number, their weighted mean (p,), and a remark."""

    number: int
    mean: F64
    remark: str
    """Empty, or that the least confident rows are used because too few are uncertain."""


class Forest(NamedTuple):
    """Importance of each dimension (p,), and probability of the most probable value of each row (n,)."""

    importances: F64
    confidence: F64

    def uncertain(self, X: F64, weight: F64, below: float) -> Uncertain:
        """Return the rows X (n, p) of positive weight with a confidence under ``below``, or the least confident.

        There are at least `LEAST_ROWS` of them, and `LEAST_SHARE`; all rows, if there are fewer.
        """
        used = weight > 0
        least = min(int(used.sum()), max(LEAST_ROWS, round(LEAST_SHARE * used.sum())))
        chosen, remark = used & (self.confidence < below), ""
        if chosen.sum() < least:
            found = int(chosen.sum()) or "no"
            chosen = used & (self.confidence <= np.sort(self.confidence[used])[least - 1])
            remark = (
                f"; {found} row{' has' if found in (1, 'no') else 's have'} a confidence below {below}, so the "
                f"{chosen.sum()} least confident ones are used"
            )
        share = np.where(chosen, weight, 0.0)
        return Uncertain(int(chosen.sum()), share @ X / share.sum(), remark)


def predict_by_forest(X: F64, s: Ints, weight: F64, max_rows: int, seed: int) -> Forest:
    """Predict codes from rows by a forest that learns from at most ``max_rows`` rows of positive weight.

    Parameters
    ----------
    X, s, weight : array of shape (n, p), (n,) and (n,)
        Rows, codes and row weights.
    max_rows, seed : int
        Number of rows to learn from, and the seed of their draw and of the forest.

    Returns
    -------
    Forest
        Importances, and confidences by trees that have not learned from the row.
    """
    from sklearn.ensemble import RandomForestClassifier

    learned = _draw(s, weight, max_rows, np.random.default_rng(seed))
    forest = RandomForestClassifier(N_TREES, oob_score=True, n_jobs=1, random_state=seed % 2**32)
    forest.fit(X[learned], s[learned], sample_weight=weight[learned])
    confidence = np.empty(len(X))
    confidence[learned] = forest.oob_decision_function_.max(axis=1)
    if not learned.all():
        confidence[~learned] = forest.predict_proba(X[~learned]).max(axis=1)
    return Forest(np.asarray(forest.feature_importances_), confidence)


def _draw(s: Ints, weight: F64, most: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask (n,) of drawn rows: all of positive weight if they are few enough, and one row of every value."""
    rows = np.flatnonzero(weight > 0)
    drawn = np.zeros(len(s), dtype=bool)
    drawn[rng.permutation(rows)[:most]] = True
    for value in np.setdiff1d(s[rows], s[drawn]):
        drawn[rng.choice(rows[s[rows] == value])] = True
    return drawn
