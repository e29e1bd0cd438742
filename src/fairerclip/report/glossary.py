"""Plain definitions of the terms that pages use."""

from __future__ import annotations

from fairerclip.metrics.names import FIGURES

GLOSSARY: dict[str, str] = {
    FIGURES["worst_group"].short: (
        "Share of right answers in the group where the model is right least often. A group is a class together with a "
        "value of the sensitive attribute, such as blond men."
    ),
    FIGURES["average"].short: "Share of right answers over all rows.",
    FIGURES["gap"].short: "Average minus worst group, in percentage points. Lower is better.",
    FIGURES["eod"].short: (
        "Equal opportunity difference: how much the share of right answers on one class differs between groups, in "
        "percentage points. Lower is better."
    ),
    "95 % interval": "Range in brackets that holds the true figure in 95 of 100 such tests.",
    "Not told apart": (
        "The rows are too few to say which of two methods is better: the interval of their difference holds 0."
    ),
    "Zero-shot": "The model as it is: an image gets the class whose description is most similar. No training.",
    "Target labels": "The right class of each training row.",
    "Sensitive labels": (
        "The value of the sensitive attribute, S, of each training row. Ŝ is predicted from prompts instead."
    ),
}
"""Definitions by term."""
