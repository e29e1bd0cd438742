"""What a fitted model is and how it came about: as facts for the results, and in sentences made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic import ValidationError

from fairerclip._util.numbers import number, setting, worded
from fairerclip.auditing.results import Method, ModelSection, TrainingSection, TuningSection
from fairerclip.data.task_fields import UNNAMED
from fairerclip.metrics.names import FIGURES
from fairerclip.model.estimator import FairerCLIP
from fairerclip.tuning.candidates import AS_ZERO_SHOT

FAIRERCLIP: Final = "FairerCLIP"
ZERO_SHOT: Final = "zero-shot"
OFFSETS = " with class offsets"
UNLEARNED: dict[tuple[bool, bool], Method] = {
    (False, False): ZERO_SHOT,
    (False, True): "zero-shot with class offsets",
    (True, False): "orthogonal prompts",
    (True, True): "orthogonal prompts with class offsets",
}
"""Classifiers without learned encoders, by whether their prompts are orthogonal and whether they have offsets."""
STRATEGIES = {"given": "the parameters as given", "search": "the search"}
"""What people read for the names of a search's strategies; the others are methods."""
_ORTHOGONAL_KEPT = (
    "No encoder was better on the validation rows than zero-shot with orthogonal prompts (class prompts without what "
    "the sensitive prompts span), so these were kept"
)
KEPT: dict[Method, str] = {
    ZERO_SHOT: "Nothing was better than zero-shot on the validation rows, so zero-shot was kept",
    "zero-shot with class offsets": "No encoder was better than zero-shot on the validation rows, so zero-shot was "
    "kept, and only offsets of the classes were learned",
    "orthogonal prompts": _ORTHOGONAL_KEPT,
    "orthogonal prompts with class offsets": f"{_ORTHOGONAL_KEPT}, and only offsets of the classes learned",
}
RANKING_KEPT = (
    "On the validation rows every strength of mitigation changed the order inside groups too much, so the zero-shot "
    "ranking was kept"
)
UNKNOWN_TASK = (
    "The model's file does not say on which task it was fitted: if rows reported on here were among those, the figures "
    "are too good."
)
LABELS = {
    "none": "It saw no labels: classes and sensitive values were read from the prompts.",
    "target": "It saw the labels of the classes; sensitive values were read from the prompts.",
    "all": "It saw the labels of the classes and the sensitive values.",
}
RANKED = (
    "It ranks by prompt: classes were not learned, and the sensitive values of the training rows were read by a probe "
    "of the labelled validation rows."
)
UNKNOWN_LABELS = "Which labels it was fitted with is not known."
UNKNOWN_TUNING = "No search that chose it is known."


class ModelFacts(NamedTuple):
    """What a model's parameters and diagnostics tell: its method, and training and tuning where they are known."""

    method: Method
    training: TrainingSection | None
    tuning: TuningSection | None


def model_facts(model: FairerCLIP) -> ModelFacts:
    """Return what a fitted model tells; the diagnostics of a loaded one come from a file and may be anything."""
    known = model.diagnostics_
    return ModelFacts(_method_of(model), _training(known), _tuning(known.get("tuning")))


def _method_of(model: FairerCLIP) -> Method:
    tuning = model.diagnostics_.get("tuning")
    ranking = isinstance(tuning, Mapping) and tuning.get("objective") == "max_skew"
    if ranking and model.sensitive_shifts_ is not None and not np.any(model.sensitive_shifts_):
        return ZERO_SHOT
    same = all(getattr(model, name) == value for name, value in AS_ZERO_SHOT.items())
    if not same or model.tau != 0 or model.sensitive_shifts_ is not None:
        return FAIRERCLIP
    return UNLEARNED[bool(model.orthogonal), bool(model.offsets_.any())]


def _training(known: Mapping[str, Any]) -> TrainingSection | None:
    if not {"rows", "pseudo_labels", "pseudo_sensitive"} <= set(known):
        return None
    rows, target, sensitive = (known[name] for name in ("rows", "pseudo_labels", "pseudo_sensitive"))
    guessed = 0 if target is None else _rows(target)
    if not isinstance(rows, int) or guessed is None or not isinstance(sensitive, Mapping):
        return None
    try:
        return TrainingSection.model_validate(
            {
                "rows": rows,
                "target": "known" if not guessed else "partly guessed" if guessed < rows else "guessed",
                "target_guessed": guessed,
                "sensitive_guessed": {name: _rows(guess) for name, guess in sensitive.items()},
            }
        )
    except ValidationError:
        return None


def _rows(guess: Any) -> int | None:
    rows = guess.get("rows") if isinstance(guess, Mapping) else None
    return rows if isinstance(rows, int) else None


def _tuning(tuning: Any) -> TuningSection | None:
    if not isinstance(tuning, Mapping):
        return None
    chosen = tuning.get("chosen")
    found = {**(chosen if isinstance(chosen, Mapping) else {}), **tuning}
    try:
        return TuningSection.model_validate({name: found.get(name) for name in TuningSection.model_fields})
    except ValidationError:
        return None


def _strategy_name(name: str) -> str:
    """A strategy of a search as people read it: "given, offsets" → "the parameters as given with class offsets"."""
    plain, _, offsets = name.partition(", ")
    return STRATEGIES.get(plain, plain) + (OFFSETS if offsets == "offsets" else "")


def _method(model: ModelSection | ModelFacts | None) -> Method:
    """Earlier results do not tell the method: learned encoders were the only one."""
    return FAIRERCLIP if model is None or model.method is None else model.method


def after_name(model: ModelSection | ModelFacts | None) -> str:
    """Return the heading of what is shown as after."""
    method = _method(model)
    return "zero-shot, kept" if method == ZERO_SHOT else method


def subject(model: ModelSection | ModelFacts | None) -> str:
    """Return what is shown as after as the subject of a sentence."""
    method = _method(model)
    if method == ZERO_SHOT:
        return "the kept zero-shot classifier"
    return method if method == FAIRERCLIP or method.startswith(ZERO_SHOT) else f"{ZERO_SHOT} with {method}"


def why_kept(model: ModelSection | ModelFacts | None, *, whole: bool = False) -> str | None:
    """Return why a zero-shot classifier is shown as after, in a sentence or two; None where encoders were learned.

    Strategies of the search are listed by what they were worth: the best two and the search, or the ``whole`` list.
    """
    method = _method(model)
    if model is None or method == FAIRERCLIP:
        return None
    tuning = model.tuning
    if tuning is None:
        return f"The model is {subject(model)} by its parameters: it learned no encoder."
    if tuning.objective == "max_skew":
        return f"{RANKING_KEPT}."
    held_out = sorted((tuning.held_out or {}).items(), key=lambda item: -item[1])
    if len(held_out) < 2:
        return f"{KEPT[method]}."
    shown = held_out if whole else held_out[:2]
    if not any(name.startswith("search") for name, _ in shown):
        shown += [item for item in held_out if item[0].startswith("search")][:1]
    listed = ", ".join(f"{_strategy_name(name)} {number(value)}" for name, value in shown)
    floor = tuning.accuracy_floor
    held = "" if floor is None else f" among what keeps an average accuracy of {worded(floor)}"
    return (
        f"{KEPT[method]}. What held up on halves of the {tuning.rows} rows that it was not chosen on, by the "
        f"objective {tuning.objective} (more is better{held}): {listed}."
    )


def about_model(model: ModelSection) -> list[str]:
    """Return sentences on what is known of a model from its section of the results, and what is not."""
    given = model.source == "given" or model.labels is None
    sentences = ["This is a given model.", _given_labels(model)] if given else [_labels(model)]
    if model.tuning is not None:
        sentences.append(_chosen(model.tuning))
    elif given:
        sentences.append(UNKNOWN_TUNING)
    sentences.append(why_kept(model, whole=True) or "")
    if model.untuned is not None:
        sentences.append(f"Its rankings were not tuned: {model.untuned}.")
    return [sentence for sentence in [*sentences, UNKNOWN_TASK if given else ""] if sentence]


def _ranks(model: ModelSection) -> bool:
    return model.tuning is not None and model.tuning.objective == "max_skew"


def _labels(model: ModelSection) -> str:
    return RANKED if _ranks(model) and model.labels == "none" else LABELS.get(model.labels or "", "")


def _given_labels(model: ModelSection) -> str:
    training = model.training
    if training is None:
        return UNKNOWN_LABELS
    target = {
        "known": "the labels of the classes were known",
        "guessed": "the classes were read from the prompts",
        "partly guessed": f"the classes of {training.target_guessed} rows were read from the prompts, the others were "
        "known",
    }[training.target]
    guesses = training.sensitive_guessed.items()
    read = [f"{rows} rows" if name == UNNAMED else f"{name} for {rows} rows" for name, rows in guesses]
    sensitive = "the sensitive values were known"
    if read:
        sensitive = f"sensitive values were read from the prompts ({', '.join(read)})"
    elif _ranks(model):
        sensitive = "the sensitive values were known, or read by a probe of the labelled validation rows"
    return f"It was fitted on {training.rows} rows: {target}; {sensitive}."


def _chosen(tuning: TuningSection) -> str:
    on = f"on {tuning.rows} validation rows by the objective {tuning.objective}"
    if tuning.objective == "max_skew":
        figures = [] if tuning.max_skew is None else [f"MaxSkew {number(tuning.max_skew)}"]
        how = "" if tuning.strength is None else f" (strength {setting(tuning.strength)})"
    else:
        known = {"average": tuning.average, "worst_group": tuning.worst_group}
        figures = [f"{FIGURES[name].short.lower()} {worded(v)}" for name, v in known.items() if v is not None]
        how = "" if tuning.strategy is None else f" (strategy: {_strategy_name(tuning.strategy)})"
    there = f"; figures there, which flatter: {', '.join(figures)}" if figures else ""
    return f"It was chosen {on}{how}{there}."
