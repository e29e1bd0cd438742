"""What ``results.json`` holds of the model, as data."""

from __future__ import annotations

from fairerclip.auditing.structure import (
    COUNT,
    NUMBER,
    SCALAR,
    SHARE,
    TEXT,
    Fields,
    Keyed,
    Maybe,
    Value,
    is_text,
    one_of,
)

FAIRERCLIP, ZERO_SHOT, ORTHOGONAL, OFFSETS = (
    "FairerCLIP",
    "zero-shot",
    "orthogonal prompts",
    " with class offsets",
)
METHODS = (FAIRERCLIP, ZERO_SHOT, ZERO_SHOT + OFFSETS, ORTHOGONAL, ORTHOGONAL + OFFSETS)
"""What a fitted model is: learned encoders, or a zero-shot classifier that a search found no better than."""
KNOWN, PARTLY, GUESSED = "known", "partly guessed", "guessed"

NULLABLE = Maybe(NUMBER)
COMMAND = Value("a fairerclip command", "texts", lambda v: is_text(v) and v.startswith("fairerclip fit "))
TRAINING = Fields(
    {
        "rows": COUNT,
        "target": one_of(KNOWN, PARTLY, GUESSED),
        "target_guessed": COUNT,
        "sensitive_guessed": Keyed(COUNT),
    }
)
"""Rows that a model was fitted on, and how many of their labels were guessed; sensitive ones by attribute."""
TUNING = Fields(
    {
        "objective": TEXT,
        "rows": COUNT,
        "groups": Maybe(TEXT),
        "accuracy_floor": NULLABLE,
        "strategy": Maybe(TEXT),
        "held_out": Maybe(Keyed(NUMBER)),
        "average": Maybe(SHARE),
        "worst_group": Maybe(SHARE),
        "eod": NULLABLE,
        "max_skew": NULLABLE,
        "strength": NULLABLE,
    }
)
"""How a model was chosen, and its figures on the rows that chose it."""
MODEL = Fields(
    {
        "labels": Maybe(one_of("none", "target", "all")),
        "tau": NUMBER,
        "tau_z": NUMBER,
        "criterion": TEXT,
        "n_iter": Maybe(COUNT),
        "parameters": Keyed(SCALAR),
        "command": Maybe(COMMAND),
        "seconds": NULLABLE,
        "source": TEXT,
        "method": Maybe(one_of(*METHODS)),
        "untuned": Maybe(TEXT),
        "training": Maybe(TRAINING),
        "tuning": Maybe(TUNING),
    }
)
