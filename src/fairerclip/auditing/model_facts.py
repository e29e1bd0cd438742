"""Facts about a fitted model, how it was fitted and how it was chosen, and sentences made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, get_args

from pydantic import ValidationError

from fairerclip._util.numbers import bare, number, setting, worded
from fairerclip.auditing.mitigator_facts import mitigator_sentences
from fairerclip.auditing.model_results import Method, ModelSection, TrainingSection, TuningSection
from fairerclip.baselines.baseline import Baseline
from fairerclip.data.task_fields import UNNAMED
from fairerclip.metrics.names import FIGURES
from fairerclip.model.estimator import FairerCLIP
from fairerclip.tuning.candidates import AS_ZERO_SHOT

FAIRERCLIP: Final = "FairerCLIP"
ZERO_SHOT: Final = "zero-shot"
MITIGATOR: Final = "EmbeddingMitigator"
OFFSETS = " with class offsets"
UNLEARNED: dict[tuple[bool, bool], Method] = {
    (False, False): ZERO_SHOT,
    (False, True): "zero-shot with class offsets",
    (True, False): "orthogonal prompts",
    (True, True): "orthogonal prompts with class offsets",
}
"""Classifiers without learned encoders, by whether their prompts are orthogonal and whether they have offsets."""
STRATEGIES = {"given": "the parameters as given", "search": "the search"}
"""Display names of the strategies of a search; the other strategies are named after methods."""
_ORTHOGONAL_KEPT = (
    "No encoder was better on the rows used for choosing than zero-shot with orthogonal prompts (class prompts "
    "projected onto the orthogonal complement of the sensitive prompts), so these were kept"
)
KEPT: dict[str, str] = {
    ZERO_SHOT: "Nothing was better than zero-shot on the rows used for choosing, so zero-shot was kept",
    "zero-shot with class offsets": "No encoder was better than zero-shot on the rows used for choosing, so "
    "zero-shot was kept, and only class offsets were learned",
    "orthogonal prompts": _ORTHOGONAL_KEPT,
    "orthogonal prompts with class offsets": f"{_ORTHOGONAL_KEPT}, and only class offsets were learned",
}
UNKNOWN_TASK = (
    "The model's file does not say which task it was fitted on: if it was fitted on rows that are evaluated here, its "
    "figures are too optimistic."
)
LABELS = {
    "none": "It was fitted without labels: classes and sensitive values were predicted from the prompts.",
    "target": "It was fitted with class labels; sensitive values were predicted from the prompts.",
    "all": "It was fitted with class labels and sensitive labels.",
}
LEARNS_FROM = {
    "none": "It learns from no labels.",
    "target": "It learns from class labels.",
    "all": "It learns from class labels and sensitive labels.",
}
UNKNOWN_LABELS = "It is not known which labels it was fitted with."
UNKNOWN_TUNING = "It is not known whether a search chose it."


class ModelFacts(NamedTuple):
    """Method of a model, and how it was trained and tuned if its diagnostics record that."""

    method: str
    training: TrainingSection | None
    tuning: TuningSection | None


def model_facts(model: FairerCLIP | Baseline) -> ModelFacts:
    """Return the facts about a fitted model; diagnostics come from a file if it was loaded, and are not trusted."""
    diagnostics = getattr(model, "diagnostics_", None) or {}
    if isinstance(model, Baseline):
        method = model.title + (OFFSETS if model.offsets_.any() else "")
        return ModelFacts(method, None, _tuning(diagnostics.get("tuning")))
    return ModelFacts(_method_of(model), _training(diagnostics), _tuning(diagnostics.get("tuning")))


def _method_of(model: FairerCLIP) -> Method:
    same = all(getattr(model, name) == value for name, value in AS_ZERO_SHOT.items())
    if not same or model.tau_ != 0:
        return FAIRERCLIP
    return UNLEARNED[bool(model.orthogonal), bool(model.offsets_.any())]


def _training(diagnostics: Mapping[str, Any]) -> TrainingSection | None:
    if not {"rows", "pseudo_labels", "pseudo_sensitive"} <= set(diagnostics):
        return None
    rows, target, sensitive = (diagnostics[name] for name in ("rows", "pseudo_labels", "pseudo_sensitive"))
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
    values = {**(chosen if isinstance(chosen, Mapping) else {}), **tuning}
    try:
        return TuningSection.model_validate({name: values.get(name) for name in TuningSection.model_fields})
    except ValidationError:
        return None


def strategy_name(name: str) -> str:
    """Return the display name of a strategy: "given, offsets" → "the parameters as given with class offsets"."""
    plain, _, offsets = name.partition(", ")
    return STRATEGIES.get(plain, plain) + (OFFSETS if offsets == "offsets" else "")


def _method(model: ModelSection | ModelFacts | None) -> str:
    """Return the method of a model."""
    return FAIRERCLIP if model is None or model.method is None else model.method


def after_name(model: ModelSection | ModelFacts | None) -> str:
    """Return the heading of the model's figures."""
    method = _method(model)
    return {ZERO_SHOT: "zero-shot, kept", MITIGATOR: "mitigated"}.get(method, method)


def is_baseline(model: ModelSection | ModelFacts | None) -> bool:
    """Return whether a model is of another method than FairerCLIP."""
    return _method(model) not in get_args(Method)


def subject(model: ModelSection | ModelFacts | None) -> str:
    """Return the name of the model as the subject of a sentence."""
    method = _method(model)
    if method == ZERO_SHOT:
        return "the kept zero-shot classifier"
    return f"{ZERO_SHOT} with {method}" if method.startswith("orthogonal prompts") else method


def why_kept(model: ModelSection | ModelFacts | None) -> str | None:
    """Return a sentence on why a zero-shot classifier was kept; None if encoders were learned."""
    method = _method(model)
    if model is None or method not in KEPT:
        return None
    tuning = model.tuning
    if tuning is None:
        return f"By its parameters the model is {subject(model)}: it has no learned encoder."
    return f"{KEPT[method]}."


def fitted_on(model: ModelSection | None) -> tuple[str, ...]:
    """Return the splits that a model fitted by an audit learned from; a mitigator may read S by validation rows."""
    sources = () if model is None or model.mitigator is None else model.mitigator.attributes.values()
    reads_validation = any(not source.given and source.labelled_rows for source in sources)
    return ("train", "val") if reads_validation else ("train",)


def about_model(model: ModelSection) -> list[str]:
    """Return sentences on what the results tell about a model, and on what is not known."""
    given = model.source == "given" or model.labels is None
    sentences = ["The model was given, not fitted here."] if given else []
    if model.mitigator is not None:
        sentences += mitigator_sentences(model.mitigator)
    else:
        sentences.append(_given_labels(model) if given else LABELS.get(model.labels or "", ""))
    if model.tuning is not None:
        sentences.append(_chosen(model.tuning))
    elif given and model.mitigator is None:
        sentences.append(UNKNOWN_TUNING)
    sentences.append(why_kept(model) or "")
    return [sentence for sentence in [*sentences, UNKNOWN_TASK if given else ""] if sentence]


def _given_labels(model: ModelSection) -> str:
    training = model.training
    if training is None:
        return LEARNS_FROM.get(model.labels or "", UNKNOWN_LABELS)
    target = {
        "known": "the class labels were known",
        "guessed": "the classes were predicted from the prompts",
        "partly guessed": f"the classes of {training.target_guessed} rows were predicted from the prompts, the others "
        "were known",
    }[training.target]
    guesses = training.sensitive_guessed.items()
    predicted = [f"{rows} rows" if name == UNNAMED else f"{name} for {rows} rows" for name, rows in guesses]
    sensitive = "the sensitive values were known"
    if predicted:
        sensitive = f"sensitive values were predicted from the prompts ({', '.join(predicted)})"
    return f"It was fitted on {training.rows} rows: {target}; {sensitive}."


def judged_rows(rows: int, validation_rows: int | None, folds: int | None) -> str:
    """Return the rows that a search was judged on, in words."""
    if folds is None:
        return f"{rows} validation rows"
    held = validation_rows or 0
    trained = f"{rows - held} training rows in {folds} folds"
    return f"{held} validation rows and {trained}" if held else trained


def automatic_sentences(record: Mapping[str, Any] | None) -> list[str]:
    """Return how parameters were chosen that were left to the data, from ``diagnostics_["automatic"]``."""
    if not record:
        return []
    if "kept" in record:
        return ["Automatic parameters keep their start values:", f"{record['kept']}."]
    change = "No candidate was better than the start values."
    if record["gain"]:
        gain = f"{bare(record['gain'])} ± {bare(record['doubt'])}"
        change = f"Expected gain over the start values: {gain} points of the objective."
    return [
        f"Automatic parameters: {record['candidates']} candidates, {record['rows']} training rows in "
        f"{record['folds']} folds.",
        change,
    ]


def _chosen(tuning: TuningSection) -> str:
    on = f"on {judged_rows(tuning.rows, tuning.validation_rows, tuning.folds)} by the objective {tuning.objective}"
    if tuning.objective == "max_skew":
        figures = [] if tuning.max_skew is None else [f"MaxSkew {number(tuning.max_skew)}"]
        how = "" if tuning.strength is None else f" (strength {setting(tuning.strength)})"
    else:
        known = {"average": tuning.average, "worst_group": tuning.worst_group}
        figures = [f"{FIGURES[name].short.lower()} {worded(v)}" for name, v in known.items() if v is not None]
        how = "" if tuning.strategy is None else f" (strategy: {strategy_name(tuning.strategy)})"
    optimistic = f"; figures on these rows, which are too optimistic: {', '.join(figures)}" if figures else ""
    return f"It was chosen {on}{how}{optimistic}."
