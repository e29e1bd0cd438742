"""`FairerCLIP.tune`: check what came, search, and leave the model fitted at the best point."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.inputs import check_rows, sensitive_prompts
from fairerclip.labels import Encoded, encode, zero_shot
from fairerclip.metrics import group_report
from fairerclip.path import encode_groups
from fairerclip.tuning.choose import choose, choose_by_scorer
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import Objective, Scorer
from fairerclip.tuning.retrieval import tune_ranking
from fairerclip.tuning.search import Candidate, gather, neighbours

if TYPE_CHECKING:
    from fairerclip.model import FairerCLIP

SHOWN = ("kernel", "class_weight", "gamma", "tau", "tau_z", "criterion", "zero_shot")
"""Parameters of a point that a search varies."""


def tune(
    model: FairerCLIP,
    X: Any,
    y: Any,
    validation: Any,
    objective: str | Scorer,
    *,
    accuracy_floor: float | None,
    search: Mapping[str, Any] | None,
    max_seconds: float | None,
    progress: Callable[[int, int], None] | None,
    **given: Any,
) -> FairerCLIP:
    """Fit ``model`` with the parameters that validation rows like best; see `FairerCLIP.tune`."""
    if max_seconds is not None and (not isinstance(max_seconds, numbers.Real) or not max_seconds > 0):
        raise ParameterError(f"max_seconds must be a number above 0 or None; got {max_seconds!r}")
    rows, labels, groups = _validation(validation)

    def fit(candidate: FairerCLIP) -> FairerCLIP:
        return candidate.fit(X, y, **given)

    if objective == "max_skew":
        return tune_ranking(model, fit, X, rows, groups, given, progress)
    goal = objective if callable(objective) else Objective(objective, accuracy_floor)
    missing = given.get("missing_label")
    missing = model.missing_label if missing is None else missing
    target = _classes(labels, y, given, missing)
    cells = _groups(rows, groups, given, missing)
    known = ~target.missing & ~cells.missing
    sizes = [len(rows), len(target.codes), len(cells.codes)]
    if len(set(sizes)) > 1:
        raise ShapeError(f"validation X, y and s must have as many rows each; got {sizes}")
    if not known.any():
        raise LabelError("no validation row has both a target and a sensitive label: nothing to choose by")
    judge = Judge(target.codes[known], cells.codes[known], len(target.classes), len(cells.classes))
    named = (target.classes[target.codes[known]], cells.classes[cells.codes[known]])
    pool = gather(
        model,
        fit,
        np.asarray(rows)[known],
        search=search,
        has_text=given.get("text") is not None,
        max_seconds=max_seconds,
        progress=progress,
    )
    if isinstance(goal, Objective):
        chosen = choose(pool, judge, goal)
    else:
        chosen = choose_by_scorer(
            pool, lambda scores: float(goal(named[0], pool.classes[scores.argmax(axis=1)], named[1]))
        )
    best = pool.candidates[chosen.choice.candidate]
    offsets = chosen.choice.offsets
    parameters = {**best.parameters, "offsets": offsets.tolist() if np.any(offsets) else None}
    # Fitted anew: the parameters are the model, and nothing of the search is left in it.
    tuned = fit(clone(model).set_params(**parameters, sensitive_shifts=None))
    name = objective if isinstance(objective, str) else getattr(objective, "__name__", "scorer")
    tuned.diagnostics_["tuning"] = {
        "objective": name,
        "accuracy_floor": accuracy_floor,
        "rows": len(named[0]),
        "groups": "read from prompts" if groups is None else "given",
        "strategy": chosen.strategy,
        "held_out": chosen.held_out,
        "fits": pool.fits,
        "fits_planned": pool.planned,
        "candidates": len(pool.candidates),
        "seconds": pool.seconds,
        "failures": pool.failures,
        "value": chosen.value,
        "chosen": _shown(best, offsets, named, pool.classes, tuned),
        "neighbours": [_shown(c, offsets, named, pool.classes, tuned) for c in neighbours(pool, best)],
    }
    return tuned


def _validation(validation: Any) -> tuple[Any, Any, Any]:
    if not isinstance(validation, (tuple, list)) or len(validation) not in (2, 3):
        raise ParameterError(
            "validation must be (X, y, s), or (X, y) where groups are to be read from the sensitive prompts; got "
            f"{type(validation).__name__}"
        )
    rows, labels, groups = (*validation, None)[:3]
    rows = np.asarray(rows)
    if rows.ndim != 2:
        raise ShapeError(f"validation X must have shape (m, p); got {rows.shape}")
    check_rows(rows, "validation X", zero_is_error=False)
    return rows, labels, groups


def _classes(labels: Any, y: Any, given: Mapping[str, Any], missing: Any) -> Encoded:
    """Validation labels in the order of the classes that a fit will have."""
    if labels is None:
        raise LabelError(
            "validation y is needed to choose a model; without any labels the defaults are the best guess: call fit"
        )
    classes = given.get("classes")
    text = given.get("text")
    if classes is None and isinstance(text, Mapping):
        classes = list(text)
    if classes is None:
        seen = encode(labels, missing_label=missing)
        whole = seen.classes.dtype.kind in "iu" and text is not None
        known = seen if y is None else encode(y, missing_label=missing)
        indexes = whole and known.classes.dtype.kind in "iuf"
        classes = range(len(text)) if indexes and text is not None else known.classes
    return encode(labels, missing_label=missing, classes=classes)


def _groups(rows: NDArray[Any], groups: Any, given: Mapping[str, Any], missing: Any) -> Encoded:
    """Group codes of the validation rows: as given, or read from the sensitive prompts."""
    if groups is not None:
        return encode_groups(groups, missing)
    prompts = sensitive_prompts(given.get("sensitive_text"), rows.shape[1], None)
    if not prompts:
        return Encoded(np.zeros(len(rows), dtype=np.int64), np.array(["all"]))
    read = {name: zero_shot(rows, values.groups)[0] for name, values in prompts.items()}
    return encode_groups(read, None)


def _shown(
    candidate: Candidate,
    offsets: NDArray[np.float64],
    labels: tuple[NDArray[Any], NDArray[Any]],
    classes: NDArray[Any],
    tuned: FairerCLIP,
) -> dict[str, Any]:
    """A candidate's parameters and figures on the validation rows, with intervals; ready for JSON."""
    predicted = classes[(candidate.scores + offsets).argmax(axis=1)]
    report = group_report(labels[0], predicted, labels[1]).as_dict()
    own = tuned.get_params(deep=False)
    return {
        "parameters": {name: candidate.parameters.get(name, own[name]) for name in SHOWN}
        | {"offsets": offsets.tolist()},
        "average": report["average"],
        "worst_group": report["worst"]["accuracy"],
        "eod": report["eod"],
        "intervals": {name: report["intervals"][name] for name in ("average", "worst_group", "eod")},
    }
