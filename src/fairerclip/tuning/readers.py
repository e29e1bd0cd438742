"""Probabilities of sensitive values, learned from a few labelled rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.row_pass import is_remote, map_rows
from fairerclip.inputs.sensitive_columns import SoftValues

PENALTIES = (0.1, 1.0, 10.0)
FOLDS = 3


def read_sensitive(X: Any, X_labelled: NDArray[Any], values: NDArray[Any], seed: int) -> SoftValues:
    """Predict the probability of each sensitive value for rows X from a few labelled rows.

    Calibrated probabilities give unbiased group means (docs/math.md#soft), whereas hard guesses mix the groups.
    Logistic regression on unit rows, with the penalty that has the best likelihood on held-out folds.
    """
    # Imported here because scikit-learn's model selection is slow to load.
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    known = unit_rows(np.asarray(X_labelled, dtype=np.float64))
    counts = np.unique(values, return_counts=True)[1]
    C = 1.0
    if counts.min() >= FOLDS:
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        tried = {
            penalty: cross_val_score(_probe(penalty), known, values, cv=folds, scoring="neg_log_loss").mean()
            for penalty in PENALTIES
        }
        C = max(tried, key=lambda penalty: tried[penalty])
    probe = _probe(C).fit(known, values)
    if is_remote(X):
        (found,) = map_rows(X, partial(_predicted, probe))
    else:
        (found,) = _predicted(probe, X)
    return SoftValues(found, probe.classes_)


def _predicted(probe: Any, rows: Any) -> tuple[F64]:
    """Return the probabilities (b, v) of a block of rows."""
    return (probe.predict_proba(unit_rows(np.asarray(rows, dtype=np.float64))),)


def _probe(C: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=1000)
