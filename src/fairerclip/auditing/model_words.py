"""How the model of an audit came about, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairerclip._util.numbers import number, setting, worded
from fairerclip.auditing.model_facts import UNKNOWN_TASK, strategy_name, why_kept
from fairerclip.auditing.model_format import GUESSED, KNOWN
from fairerclip.data.task_fields import UNNAMED
from fairerclip.metrics.names import FIGURES

Section = Mapping[str, Any]

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


def about_model(model: Section) -> list[str]:
    """What is known of a model from its section of the results, and what is not."""
    given = model["source"] == "given" or model["labels"] is None
    sentences = ["This is a given model." if given else ""]
    sentences += _given_labels(model) if given else [_labels(model)]
    kept = why_kept(model, whole=True)
    tuning = model["tuning"]
    if tuning is not None:
        sentences.append(_chosen(tuning))
    elif given:
        sentences.append(UNKNOWN_TUNING)
    sentences += [kept] if kept else []
    if model["untuned"] is not None:
        sentences.append(f"Its rankings were not tuned: {model['untuned']}.")
    return [sentence for sentence in [*sentences, UNKNOWN_TASK if given else ""] if sentence]


def _labels(model: Section) -> str:
    if (model["tuning"] or {}).get("objective") == "max_skew" and model["labels"] == "none":
        return RANKED
    return LABELS.get(model["labels"], "")


def _given_labels(model: Section) -> list[str]:
    training = model["training"]
    if training is None:
        return [UNKNOWN_LABELS]
    guessed = training["target_guessed"]
    target = {
        KNOWN: "the labels of the classes were known",
        GUESSED: "the classes were read from the prompts",
    }.get(
        training["target"], f"the classes of {guessed} rows were read from the prompts, the others were known"
    )
    guesses = training["sensitive_guessed"].items()
    read = [f"{rows} rows" if name == UNNAMED else f"{name} for {rows} rows" for name, rows in guesses]
    ranked = (model["tuning"] or {}).get("objective") == "max_skew"
    sensitive = "the sensitive values were known"
    if read:
        sensitive = f"sensitive values were read from the prompts ({', '.join(read)})"
    elif ranked:
        sensitive = "the sensitive values were known, or read by a probe of the labelled validation rows"
    return [f"It was fitted on {training['rows']} rows: {target}; {sensitive}."]


def _chosen(tuning: Section) -> str:
    on = f"on {tuning['rows']} validation rows by the objective {tuning['objective']}"
    if tuning["objective"] == "max_skew":
        figures = [] if tuning["max_skew"] is None else [f"MaxSkew {number(tuning['max_skew'])}"]
        how = "" if tuning["strength"] is None else f" (strength {setting(tuning['strength'])})"
    else:
        names = [name for name in ("average", "worst_group") if tuning[name] is not None]
        figures = [f"{FIGURES[name].short.lower()} {worded(tuning[name])}" for name in names]
        how = "" if tuning["strategy"] is None else f" (strategy: {strategy_name(tuning['strategy'])})"
    there = f"; figures there, which flatter: {', '.join(figures)}" if figures else ""
    return f"It was chosen {on}{how}{there}."
