"""What a fitted model is and how it came about, as far as the model itself knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairerclip._util.numbers import number, worded
from fairerclip.auditing.model_format import (
    FAIRERCLIP,
    GUESSED,
    KNOWN,
    OFFSETS,
    ORTHOGONAL,
    PARTLY,
    TRAINING,
    TUNING,
    ZERO_SHOT,
)
from fairerclip.auditing.structure import Spec, checked
from fairerclip.errors import ResultsFileError
from fairerclip.model.estimator import FairerCLIP
from fairerclip.tuning.search import AS_ZERO_SHOT

STRATEGIES = {"given": "the parameters as given", "search": "the search"}
"""What people read for the names of a search's strategies; the others are methods."""
KEPT = {
    ZERO_SHOT: "Nothing was better than zero-shot on the validation rows, so zero-shot was kept",
    ZERO_SHOT
    + OFFSETS: "No encoder was better than zero-shot on the validation rows, so zero-shot was kept, and only "
    "offsets of the classes were learned",
    ORTHOGONAL: "No encoder was better on the validation rows than zero-shot with orthogonal prompts (class prompts "
    "without what the sensitive prompts span), so these were kept",
    ORTHOGONAL
    + OFFSETS: "No encoder was better on the validation rows than zero-shot with orthogonal prompts (class "
    "prompts without what the sensitive prompts span), so these were kept, and only offsets of the classes learned",
}
RANKING_KEPT = (
    "On the validation rows every strength of mitigation changed the order inside groups too much, so the zero-shot "
    "ranking was kept"
)
UNKNOWN_TASK = (
    "The model's file does not say on which task it was fitted: if rows reported on here were among those, the figures "
    "are too good."
)


def method_of(model: FairerCLIP) -> str:
    """Which of ``METHODS`` a fitted model is, by its parameters."""
    tuning = model.diagnostics_.get("tuning")
    ranking = isinstance(tuning, Mapping) and tuning.get("objective") == "max_skew"
    if ranking and model.sensitive_shifts is not None and not np.any(model.sensitive_shifts):
        return ZERO_SHOT
    same = all(getattr(model, name) == value for name, value in AS_ZERO_SHOT.items())
    if not same or model.tau != 0 or model.sensitive_shifts is not None:
        return FAIRERCLIP
    prompts = ORTHOGONAL if model.orthogonal else ZERO_SHOT
    return prompts if model.offsets is None else prompts + OFFSETS


def model_facts(model: FairerCLIP) -> dict[str, Any]:
    """The fields of ``MODEL`` that a model's own diagnostics fill; None for what they do not tell.

    Diagnostics of a loaded model come from a file and may be anything.
    """
    known = model.diagnostics_
    return {
        "method": method_of(model),
        "training": _as(_training(known), TRAINING),
        "tuning": model_tuning(known),
    }


def model_tuning(diagnostics: Mapping[str, Any]) -> dict[str, Any] | None:
    """How a model was chosen, as its diagnostics tell; None where they do not."""
    return _as(_tuning(diagnostics.get("tuning")), TUNING)


def _as(found: dict[str, Any] | None, spec: Spec) -> dict[str, Any] | None:
    try:
        return None if found is None else dict(checked(found, spec, ResultsFileError))
    except ResultsFileError:
        return None


def _training(known: Mapping[str, Any]) -> dict[str, Any] | None:
    if not {"rows", "pseudo_labels", "pseudo_sensitive"} <= set(known):
        return None
    rows, target, sensitive = (known[name] for name in ("rows", "pseudo_labels", "pseudo_sensitive"))
    guessed = 0 if target is None else _rows(target)
    if not isinstance(rows, int) or guessed is None or not isinstance(sensitive, Mapping):
        return None
    return {
        "rows": rows,
        "target": KNOWN if not guessed else PARTLY if guessed < rows else GUESSED,
        "target_guessed": guessed,
        "sensitive_guessed": {name: _rows(guess) for name, guess in sensitive.items()},
    }


def _rows(guess: Any) -> int | None:
    rows = guess.get("rows") if isinstance(guess, Mapping) else None
    return rows if isinstance(rows, int) else None


def _tuning(tuning: Any) -> dict[str, Any] | None:
    if not isinstance(tuning, Mapping):
        return None
    chosen = tuning.get("chosen")
    found = {**(chosen if isinstance(chosen, Mapping) else {}), **tuning}
    return {name: found.get(name) for name in TUNING.fields}


def strategy_name(name: str) -> str:
    """A strategy of a search as people read it: "given, offsets" → "the parameters as given with class offsets"."""
    plain, _, offsets = name.partition(", ")
    return STRATEGIES.get(plain, plain) + (OFFSETS if offsets == "offsets" else "")


def after_name(model: Mapping[str, Any] | None) -> str:
    """Heading of what is shown as after, from the model's section of the results."""
    method = (model or {}).get("method") or FAIRERCLIP
    return "zero-shot, kept" if method == ZERO_SHOT else str(method)


def subject(model: Mapping[str, Any] | None) -> str:
    """The same inside a sentence."""
    method = (model or {}).get("method") or FAIRERCLIP
    if method == ZERO_SHOT:
        return "the kept zero-shot classifier"
    return method if method == FAIRERCLIP or method.startswith(ZERO_SHOT) else f"{ZERO_SHOT} with {method}"


def why_kept(model: Mapping[str, Any] | None, *, whole: bool = False) -> str | None:
    """Why a zero-shot classifier is shown as after, in a sentence or two; None where encoders were learned.

    Strategies of the search are listed by what they were worth: the best two and the search, or the ``whole`` list.
    """
    method = (model or {}).get("method") or FAIRERCLIP
    if model is None or method == FAIRERCLIP:
        return None
    tuning = model["tuning"]
    if tuning is None:
        return f"The model is {subject(model)} by its parameters: it learned no encoder."
    if tuning["objective"] == "max_skew":
        return f"{RANKING_KEPT}."
    held_out = sorted((tuning["held_out"] or {}).items(), key=lambda item: -item[1])
    if len(held_out) < 2:
        return f"{KEPT[method]}."
    shown = held_out if whole else held_out[:2]
    if not any(name.startswith("search") for name, _ in shown):
        shown += [item for item in held_out if item[0].startswith("search")][:1]
    listed = ", ".join(f"{strategy_name(name)} {number(value)}" for name, value in shown)
    floor = tuning["accuracy_floor"]
    held = "" if floor is None else f" among what keeps an average accuracy of {worded(floor)}"
    return (
        f"{KEPT[method]}. What held up on halves of the {tuning['rows']} rows that it was not chosen on, by the "
        f"objective {tuning['objective']} (more is better{held}): {listed}."
    )
