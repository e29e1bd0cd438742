"""Kinds of saved models, with the module that turns a model of a kind into `Contents` and back."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from fairerclip.errors import ModelFileError
from fairerclip.model.contents import Contents

HOMES = {
    "FairerCLIP": "fairerclip.model.model_file",
    "EmbeddingMitigator": "fairerclip.embedding.mitigator_file",
}
BASELINES = "fairerclip.baselines.file"


def home_of(kind: str) -> Any:
    """Return the module with ``contents``, ``build`` and ``class_of`` of a kind of model."""
    known = import_module("fairerclip.baselines").BASELINES
    if kind not in HOMES and kind not in known:
        raise ModelFileError(
            f"{kind!r:.60} is no kind of model; expected one of {', '.join([*HOMES, *known])}"
        ).because("kind")
    return import_module(HOMES.get(kind, BASELINES))


def contents_of(model: Any) -> Contents:
    """Return the contents of a fitted model."""
    for cls in type(model).__mro__:
        if cls.__name__ in HOMES:
            return import_module(HOMES[cls.__name__]).contents(model)  # type: ignore[no-any-return]
    return import_module(BASELINES).contents(model)  # type: ignore[no-any-return]
