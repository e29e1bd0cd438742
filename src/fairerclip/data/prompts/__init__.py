"""Prompts: versioned sets with their sources, users' own files of the same form, and their embeddings."""

from fairerclip.data.prompts.encode import (
    EncodedAttribute,
    EncodedCounterfactual,
    EncodedPrompts,
    encode_prompts,
)
from fairerclip.data.prompts.loader import available_prompts, load_prompts
from fairerclip.data.prompts.prompt_set import Counterfactual, PromptSet, Source

__all__ = [
    "Counterfactual",
    "EncodedAttribute",
    "EncodedCounterfactual",
    "EncodedPrompts",
    "PromptSet",
    "Source",
    "available_prompts",
    "encode_prompts",
    "load_prompts",
]
