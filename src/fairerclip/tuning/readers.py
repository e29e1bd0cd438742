"""Sensitive values with doubt: what labelled rows say of how far guesses can be trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.embedding_rows import unit_rows
from fairerclip.inputs.sensitive_columns import SoftValues

PENALTIES = (0.1, 1.0, 10.0)
FOLDS = 3


def read_sensitive(X: Any, X_labelled: NDArray[Any], values: NDArray[Any], seed: int) -> SoftValues:
    """Probability of each sensitive value for rows X, learned from a few rows whose value is known.

    As far as it is the probability given the row it gives each group's means without bias (docs/math.md#soft), where a
    hard guess mixes the groups. Logistic regression on unit rows, its penalty chosen by likelihood on held-out folds.
    """
    # Here, and not above: scikit-learn's model selection is slow to load, and few who import us read values.
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
    return SoftValues(probe.predict_proba(unit_rows(np.asarray(X, dtype=np.float64))), probe.classes_)


def _probe(C: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C, max_iter=1000)
