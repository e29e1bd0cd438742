"""`FairerCLIP.tune`: check what came, search, and leave the model fitted at the best point."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from fairerclip._util.numbers import number, setting
from fairerclip.data.embedding_rows import check_rows
from fairerclip.errors import AccuracyFloorWarning, LabelError, ParameterError, ShapeError
from fairerclip.inputs.encode import Encoded, encode
from fairerclip.inputs.prompts import zero_shot
from fairerclip.inputs.sensitive import known_values
from fairerclip.inputs.sensitive_columns import encode_groups
from fairerclip.inputs.target import known_labels
from fairerclip.metrics import group_report
from fairerclip.tuning.choose import choose, choose_by_scorer
from fairerclip.tuning.judge import Judge
from fairerclip.tuning.objectives import DIFFERENCES, Objective, Scorer
from fairerclip.tuning.ranking import tune_ranking
from fairerclip.tuning.search import Candidate, Pool, gather, neighbours

if TYPE_CHECKING:
    from fairerclip.model.estimator import FairerCLIP

SHOWN = ("kernel", "class_weight", "gamma", "tau", "tau_z", "criterion", "zero_shot", "orthogonal")
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
    shape = X.shape if hasattr(X, "shape") else np.shape(X)
    _same_columns(X, shape, validation[0], rows)
    if given.get("classes") is not None:
        # Read by every fit: an iterator would be empty by the second.
        given["classes"] = list(given["classes"])

    def fit(candidate: FairerCLIP) -> FairerCLIP:
        return candidate.fit(X, y, **given)

    if objective == "max_skew":
        _refuse(objective, accuracy_floor=accuracy_floor, search=search)
        return tune_ranking(model, fit, X, rows, groups, given, progress)
    if callable(objective):
        _refuse("a function", accuracy_floor=accuracy_floor)
    goal = objective if callable(objective) else Objective(objective, accuracy_floor)
    missing = given.get("missing_label")
    missing = model.missing_label if missing is None else missing
    target, prompts = _target(labels, y, shape, given, missing)
    cells, source = _groups(rows, groups, shape, given, model.sensitive_kind, missing)
    sizes = [len(rows), len(target.codes), len(cells.codes)]
    if len(set(sizes)) > 1:
        raise ShapeError(f"validation X, y and s must have as many rows each; got {sizes}")
    known = ~target.missing & ~cells.missing
    if not known.any():
        raise LabelError("no validation row has both a target and a sensitive label: nothing to choose by")
    judge = Judge(target.codes[known], cells.codes[known], len(target.classes), len(cells.classes))
    if isinstance(goal, Objective) and not goal.is_defined(judge.counts):
        raise LabelError(
            f"{goal.name} is not defined on the validation rows: it compares groups of one class, and no class that "
            "counts has rows of two groups. Give groups that differ, or another objective"
        )
    named = (target.classes[target.codes[known]], cells.classes[cells.codes[known]])
    searched = clone(model)
    if model.random_state is None:
        # One draw of the features for all, or the model that is chosen could not be fitted again.
        searched.set_params(random_state=int(check_random_state(None).randint(np.iinfo(np.int32).max)))
    pool = gather(
        searched,
        fit,
        np.asarray(rows)[known],
        search=search,
        has_text=given.get("text") is not None,
        has_sensitive_text=given.get("sensitive_text") is not None,
        max_seconds=max_seconds,
        progress=progress,
    )
    if isinstance(goal, Objective):
        goal = _with_floor(goal, pool, judge, np.asarray(rows)[known], prompts)
        chosen = choose(pool, judge, goal)
    else:
        chosen = choose_by_scorer(
            pool, lambda scores: float(goal(named[0], pool.classes[scores.argmax(axis=1)], named[1]))
        )
    best = pool.candidates[chosen.choice.candidate]
    offsets = chosen.choice.offsets
    parameters = {**best.parameters, "offsets": offsets.tolist() if np.any(offsets) else None}
    # Fitted anew: the parameters are the model, and nothing of the search is left in it.
    tuned = fit(clone(searched).set_params(**parameters, sensitive_shifts=None))
    if model.random_state is None:
        tuned.set_params(random_state=None)
    name = objective if isinstance(objective, str) else getattr(objective, "__name__", "scorer")
    floor = goal.accuracy_floor if isinstance(goal, Objective) else None
    shown = _shown(best, offsets, named, pool.classes, tuned)
    tuned.diagnostics_["tuning"] = {
        "objective": name,
        "accuracy_floor": floor,
        "floor_met": _floor_met(floor, shown["average"], given=accuracy_floor is not None),
        "rows": len(named[0]),
        "groups": source,
        "strategy": chosen.strategy,
        "held_out": chosen.held_out,
        "fits": pool.fits,
        "fits_planned": pool.planned,
        "candidates": len(pool.candidates),
        "seconds": pool.seconds,
        "failures": pool.failures,
        "value": chosen.value,
        "chosen": shown,
        "neighbours": [_shown(c, offsets, named, pool.classes, tuned) for c in neighbours(pool, best)],
    }
    return tuned


def _with_floor(
    goal: Objective,
    pool: Pool,
    judge: Judge,
    rows: NDArray[Any],
    prompts: list[NDArray[np.floating]] | None,
) -> Objective:
    """A difference between groups is smallest where one class is predicted always: it never goes without a floor.

    Where none is given it is what zero-shot, or without prompts the model as given, reaches on the validation rows.
    """
    if goal.name not in DIFFERENCES or goal.accuracy_floor is not None:
        return goal
    if prompts is not None:
        guesses = zero_shot(rows, prompts)[0]
        return replace(goal, accuracy_floor=float(np.mean(guesses == judge.y)))
    if pool.given is None:
        return goal
    right = judge.hits(pool.candidates[pool.given].scores.astype(np.float64)).sum() / judge.counts.sum()
    return replace(goal, accuracy_floor=float(right))


def _floor_met(floor: float | None, average: float, *, given: bool) -> bool | None:
    """Whether the chosen model reaches the floor on the validation rows; None without a floor. Warns if it does not."""
    if floor is None:
        return None
    if average < floor:
        name = "the accuracy_floor" if given else "the floor that zero-shot sets"
        warnings.warn(
            f"no model of the search reaches {name} of {setting(floor)} on the validation rows: the most accurate one "
            f"was taken, with {number(average)}. Lower the floor, or search more widely",
            AccuracyFloorWarning,
            stacklevel=4,
        )
    return average >= floor


def _validation(validation: Any) -> tuple[Any, Any, Any]:
    several = isinstance(validation, (tuple, list))
    if not several or len(validation) not in (2, 3):
        raise ParameterError(
            "validation must be (X, y, s), or (X, y) where groups are to be read from the sensitive prompts; got "
            f"{f'{len(validation)} entries' if several else type(validation).__name__}"
        )
    rows, labels, groups = (*validation, None)[:3]
    try:
        rows = np.asarray(rows)
    except ValueError:
        raise ShapeError("validation X must have shape (m, p); got rows of different lengths") from None
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise ShapeError(
            f"validation X must be numbers of shape (m, p); got {rows.dtype} of shape {rows.shape}"
        )
    check_rows(rows, "validation X", zero_is_error=False)
    return rows, labels, groups


def _same_columns(X: Any, shape: tuple[int, ...], given: Any, rows: NDArray[Any]) -> None:
    """Refuse validation rows of another width than X, or of a data frame with other columns."""
    if len(shape) != 2:
        raise ShapeError(f"X must have shape (n, p); got {shape}")
    if shape[1] != rows.shape[1]:
        raise ShapeError(
            f"validation X must be as wide as X, which has {shape[1]} columns; got {rows.shape[1]}"
        )
    if hasattr(X, "columns") and hasattr(given, "columns") and list(X.columns) != list(given.columns):
        raise ShapeError("validation X must have the columns of X in the same order")


def _refuse(objective: str, **options: Any) -> None:
    """Refuse options that an objective would not heed."""
    unheeded = [name for name, value in options.items() if value is not None]
    if unheeded:
        raise ParameterError(f"{' and '.join(unheeded)} cannot be used with {objective} as the objective")


def _target(
    labels: Any, y: Any, shape: tuple[int, ...], given: Mapping[str, Any], missing: Any
) -> tuple[Encoded, list[NDArray[np.floating]] | None]:
    """Validation labels in the order of the classes that a fit will have, and the prompts of these."""
    if labels is None:
        raise LabelError(
            "validation y is needed to choose a model; without any labels the defaults are the best guess: call fit"
        )
    known, prompts = known_labels(
        y, given.get("text"), shape, classes=given.get("classes"), missing_label=missing
    )
    return encode(labels, missing_label=missing, classes=known.classes), prompts


def _groups(
    rows: NDArray[Any], groups: Any, shape: tuple[int, ...], given: Mapping[str, Any], kind: str, missing: Any
) -> tuple[Encoded, str]:
    """Group codes of the validation rows, given or read from the sensitive prompts, and which of both."""
    if groups is not None:
        return encode_groups(groups, missing), "given"
    features, text = given.get("sensitive_features"), given.get("sensitive_text")
    prompts = known_values(features, text, shape, kind=kind, missing_label=missing)[1]
    if not prompts:
        return Encoded(np.zeros(len(rows), dtype=np.int64), np.array(["all"])), "none"
    read = {name: zero_shot(rows, values.groups)[0] for name, values in prompts.items()}
    return encode_groups(read, None), "read from prompts"


def _shown(
    candidate: Candidate,
    offsets: NDArray[np.float64],
    labels: tuple[NDArray[Any], NDArray[Any]],
    classes: NDArray[Any],
    tuned: FairerCLIP,
) -> dict[str, Any]:
    """A candidate's parameters and figures on the validation rows, with intervals; ready for JSON."""
    predicted = classes[(candidate.scores + offsets).argmax(axis=1)]
    names = classes.tolist()
    report = group_report(
        *(labels[0], predicted, labels[1]),
        class_names={name: str(name) for name in names},  # all of them, although some may have no row
        positive=names[1] if len(names) == 2 else None,
    ).as_dict()
    own = tuned.get_params(deep=False)
    own["zero_shot"] = tuned.state.setting.zero_shot
    point = {name: candidate.parameters.get(name, own[name]) for name in SHOWN}
    return {
        "parameters": {name: v.item() if isinstance(v, np.generic) else v for name, v in point.items()}
        | {"offsets": offsets.tolist()},
        "average": report["average"],
        "worst_group": report["worst"]["accuracy"],
        "eod": report["eod"],
        "positive": report["positive"],
        # Without two groups to compare there is no EOD, and no interval of it.
        "intervals": {name: report["intervals"].get(name) for name in ("average", "worst_group", "eod")},
    }
