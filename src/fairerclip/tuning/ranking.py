"""Rankings by prompt in whose top rows the groups have the shares that they have in the collection.

The target is the zero-shot score. The part that the sensitive attribute explains is subtracted, with weights that are
adjusted until the shares of the groups in the top match: equal means do not give equal tails. docs/math.md#ranking.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.base import clone

from fairerclip._util.types import F64, Ints
from fairerclip.errors import LabelError, PromptError, RankWarning, ShapeError, UntunedRankingWarning
from fairerclip.inputs.sensitive_columns import sensitive_columns
from fairerclip.metrics import max_skew
from fairerclip.metrics.retrieval.inside_groups import FEW_ROWS
from fairerclip.tuning.readers import read_sensitive

if TYPE_CHECKING:
    from fairerclip.model.estimator import FairerCLIP
    from fairerclip.model.prepare import Prepared


RANKING: Mapping[str, Any] = {
    "zero_shot": 1.0,
    "kernel": "linear",
    "gamma": 1e-4,
    "class_weight": None,
    "subsample": None,
    "tau": 0.0,
    "criterion": "marginal",
    "guess_weight": 1.0,
    "class_offsets": None,
    "decision": "target",
}
"""Parameters of a ranking: scores that are linear in the rows; S is reduced by shifts, not by τ."""
TOP_SHARE = 0.2
"""Share of a collection that counts as its top."""
STRENGTHS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0)
RANK_CORRELATION = 0.6
"""Smallest rank correlation of new and old scores inside each group."""
ONE_LESS = r"\d+ components were asked for, the text side"
ROUNDS, SOFTNESS, STEP, CLOSE = 80, 0.25, 0.35, 1e-3


class FoundRanking(NamedTuple):
    """The chosen model, the figures of every strength of the shifts, and the place of the chosen one."""

    model: FairerCLIP
    table: list[dict[str, float]]
    best: int


def tune_ranking(
    model: FairerCLIP,
    fit: Callable[..., FairerCLIP],
    X: Any,
    rows: NDArray[Any],
    groups: Any,
    given: Mapping[str, Any],
    progress: Callable[[int, int], None] | None,
) -> FoundRanking:
    """Return a model whose rankings show groups as the collection has them.

    Shifts are as strong as a rank correlation of at least 0.6 with the scores inside each group permits. The figures
    are optimistic, because the validation rows also determine the shifts.
    """
    if given.get("text") is None:
        raise PromptError("a ranking follows prompts: give text")
    missing = given.get("missing_label")
    missing = model.missing_label if missing is None else missing
    codes, values = _known_groups(groups, len(rows), missing)
    known = codes >= 0
    held = rows[known]
    changes: dict[str, Any] = {}
    if given.get("sensitive_features") is None:
        seed = model.random_state if isinstance(model.random_state, int) else 0
        soft = read_sensitive(X, held, values[codes[known]], seed)
        changes = {"sensitive_features": soft, "sensitive_text": None}
    c = len(given["text"])
    ranking = clone(model).set_params(**RANKING, n_components=c)
    with warnings.catch_warnings():
        # c components are set here, and c prompts span c − 1 dimensions: nothing that a user could change.
        warnings.filterwarnings("ignore", ONE_LESS, RankWarning)
        fitted = fit(ranking, **changes)
    shifts, old, explained = _learn_shifts(fitted, held, codes[known], values)
    if progress is not None:
        progress(1, 1)
    table = [_judge(strength, old, explained @ shifts.T, codes[known]) for strength in STRENGTHS]
    # The strongest shifts that keep the order inside groups: the skew of a few hundred rows is too noisy to choose by.
    place = next((i for i, row in enumerate(table) if row["rank_correlation"] >= RANK_CORRELATION), -1)
    best = table[place]
    fitted = fitted.at(sensitive_shifts=best["strength"] * shifts)
    fitted.diagnostics_["tuning"] = {
        "objective": "max_skew",
        "rows": int(known.sum()),
        "chosen": best,
        "neighbours": [row for row in table if 0 < abs(row["strength"] - best["strength"]) < 0.15],
        "before": table[-1],
    }
    return FoundRanking(fitted, table, place)


def _learn_shifts(
    fitted: FairerCLIP, held: NDArray[Any], codes: Ints, values: NDArray[Any]
) -> tuple[F64, F64, F64]:
    """Learn shifts (c, q); also return scores (m, c) and predicted sensitive values (m, q) of the held rows."""
    old, train_scores = fitted.scores(held), fitted.state.scores()
    train_explained, explained = fitted.state.explained(fitted.embeddings(held))
    posteriors, order = _posteriors(fitted.state.prepared, values)
    scores = np.concatenate([train_scores, old])
    everything = np.concatenate([train_explained, explained])
    groups = np.concatenate([posteriors, np.eye(len(values))[codes][:, order]])
    shifts = np.stack([_equal_top(column, everything, groups) for column in np.ascontiguousarray(scores.T)])
    return shifts, old, explained


def _known_groups(groups: Any, n: int, missing: Any) -> tuple[Ints, NDArray[Any]]:
    if groups is None:
        raise LabelError("MaxSkew is measured on groups: give validation=(X, None, s) with sensitive values")
    columns = sensitive_columns(groups, kind="categorical", missing_label=missing)
    if len(columns) != 1 or columns[0].codes is None or columns[0].categories is None:
        raise LabelError(f"a ranking is tuned for one sensitive attribute; got {len(columns)}")
    if len(columns[0].codes) != n:
        raise ShapeError(f"validation X has {n} rows but s has {len(columns[0].codes)}")
    if len(columns[0].categories) < 2 or not (columns[0].codes >= 0).any():
        raise LabelError("validation s has fewer than two groups: there is no skew to mitigate")
    if np.bincount(columns[0].codes[columns[0].codes >= 0]).max() <= FEW_ROWS:
        raise LabelError(
            f"no group of validation s has more than {FEW_ROWS} rows: whether a ranking still follows its prompt "
            "cannot be told from so few; give more"
        )
    return columns[0].codes, columns[0].categories


def _posteriors(prepared: Prepared, values: NDArray[Any]) -> tuple[F64, list[int]]:
    """Return group probabilities (n, |S|) of training rows with weight, and each group's index in ``values``."""
    columns, attributes = prepared.sensitive.columns, prepared.problem.attributes
    if len(columns) != 1 or columns[0].categories is None or columns[0].codes is None:
        quantities = sum(column.continuous for column in columns)
        raise LabelError(
            "a ranking is tuned for one sensitive attribute of several values; the training rows have "
            f"{len(columns)} that vary, {quantities} of them quantities"
        )
    present = slice(None) if columns[0].soft is not None else np.unique(columns[0].codes)
    found = columns[0].categories[present].tolist()
    place = {value: k for k, value in enumerate(values.tolist())}
    if set(found) != set(place):
        raise LabelError(
            f"the training rows have sensitive values {found[:10]}, the validation rows {values.tolist()[:10]}; they "
            "must be the same, under the same names"
        )
    return np.asarray(attributes[0].psi), [place[value] for value in found]


def _equal_top(scores: F64, explained: F64, groups: F64) -> F64:
    """Return shifts (q,) for which the groups' shares in the soft top of scores (n,) equal their shares of all rows.

    ``explained`` (n, q) are predicted sensitive values, ``groups`` (n, |S|) group probabilities. Damped fixed-point
    steps on the logarithm of each share.
    """
    reference = groups.mean(axis=0)
    unit = explained.std(axis=0)
    scaled = np.divide(explained, unit, out=np.zeros_like(explained), where=unit > 0)
    spread = float(scores.std())
    shift = np.zeros(scaled.shape[1])
    for _ in range(ROUNDS):
        moved = scores - scaled @ shift
        softness = SOFTNESS * moved.std() / 2
        top = 1 / (1 + np.exp(-np.clip((moved - np.quantile(moved, 1 - TOP_SHARE)) / softness, -50, 50)))
        excess = np.log(np.maximum(groups.T @ top / top.sum(), 1e-12) / np.maximum(reference, 1e-12))
        if np.abs(excess).max() < CLOSE:
            break
        shift += STEP * spread * excess
    return np.asarray(np.divide(shift, unit, out=np.zeros_like(shift), where=unit > 0))


def _judge(strength: float, old: F64, taken: F64, codes: Ints) -> dict[str, float]:
    """Return the mean MaxSkew over prompts, and the smallest rank correlation with the old scores inside any group."""
    new = old - strength * taken
    k = max(1, round(TOP_SHARE * len(new)))
    agreement = [
        float(spearmanr(old[codes == g, j], new[codes == g, j]).statistic)
        for g in np.unique(codes)
        if (codes == g).sum() > FEW_ROWS
        for j in range(new.shape[1])
    ]
    return {
        "strength": strength,
        "max_skew": float(np.mean(max_skew(new, codes, k))),
        "rank_correlation": min(agreement) if strength else 1.0,
    }


def warn_untuned_ranking(why: str) -> None:
    """Warn that a gallery was fitted as if its prompts were classes."""
    warnings.warn(
        f"no row has a target label, so the prompts can only rank, but the rankings were not tuned: {why}. The fit "
        "treats the prompts as classes, and its rankings may be more skewed than zero-shot's",
        UntunedRankingWarning,
        stacklevel=3,
    )
