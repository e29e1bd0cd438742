"""What embeddings hold of the target and of the sensitive attribute: HSIC and KCC, before and after.

The table of Dehdashtian et al. 2024 (arXiv:2403.15593, appendix on comparing features), which measures one space
of embeddings X by HSIC and KCC of (X, Y) and of (X, S).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairerclip.data import Split
from fairerclip.experiment import UNKNOWN, Experiment
from fairerclip.metrics import dependence_test

ROWS = 1000
"""More rows than this are subsampled: the interval of a KCC takes O(n³) time, twenty times over."""
MEASURES = ("hsic", "kcc")
SPACES = {"before": "image embeddings", "after": "mitigated embeddings"}


def audit_representation(
    experiment: Experiment,
    split: Split,
    embeddings: Mapping[str, ArrayLike],
    *,
    permutations: int = 199,
    random_state: int = 0,
    confidence: float = 0.95,
    max_rows: int = ROWS,
) -> list[dict[str, Any]] | None:
    """HSIC and KCC of each stage's embeddings with the classes and with the sensitive values.

    O(n²·(p + B) + n³) time for B permutations over n ≤ ``max_rows`` rows, the same ones at every stage.

    Parameters
    ----------
    experiment : Experiment
        Names classes and attributes; several attributes are crossed.
    split : Split
        Rows with sensitive labels, and target labels where there are any; unknown ones are left out.
    embeddings : mapping from stage to array (n, p)
        ``{"before": split.X, "after": model.transform(split.X)}``, or one of them.
    permutations : int, default=199
        For p-values.
    random_state : int
        Draws the rows, bandwidths and permutations.
    confidence : float, default=0.95
        Of the intervals.
    max_rows : int, default=1000
        Rows used at most. Both measures are biased upward on few rows: compare figures of one number of rows.

    Returns
    -------
    list of dict, or None
        As in ``results.json``, one entry per stage; None where there are no sensitive labels.
    """
    labels = {"y": experiment.target(split), "s": experiment.groups(split)}
    if labels["s"] is None:
        return None
    rows = _rows([given for given in labels.values() if given is not None], max_rows, random_state)
    if len(rows) < 2:
        return None
    entries = []
    for stage, given in embeddings.items():
        X = np.asarray(given)[rows]
        entry: dict[str, Any] = {"stage": stage, "space": f"{SPACES[stage]} ({X.shape[1]} wide)"}
        for measure in MEASURES:
            for letter, values in labels.items():
                entry[f"{measure}_{letter}"] = (
                    None
                    if values is None
                    else _tested(X, values[rows], measure, permutations, random_state, confidence)
                )
        entries.append(entry)
    return entries


def _rows(labels: list[NDArray[np.str_]], limit: int, random_state: int) -> NDArray[np.int64]:
    """Rows of which all labels are known, at most ``limit`` of them drawn at random, in order."""
    known = np.flatnonzero(np.all([given != UNKNOWN for given in labels], axis=0))
    if len(known) <= limit:
        return known
    return np.sort(np.random.default_rng(random_state).choice(known, size=limit, replace=False))


def _tested(
    X: NDArray[Any],
    values: NDArray[np.str_],
    measure: str,
    permutations: int,
    random_state: int,
    confidence: float,
) -> dict[str, Any]:
    found = dependence_test(
        X,
        values,
        measure=measure,
        n_permutations=permutations,
        random_state=random_state,
        confidence=confidence,
    )
    figures = found.as_dict()
    return {name: figures[name] for name in ("value", "low", "high", "p_value")}
