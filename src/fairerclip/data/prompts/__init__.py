"""Prompts: versioned sets with their sources, user files in the same format, and their embeddings."""

from fairerclip.data.prompts.encoded_prompts import (
    EncodedAttribute,
    EncodedCounterfactual,
    EncodedPrompts,
    encode_prompts,
)
from fairerclip.data.prompts.loader import available_prompts, load_prompts
from fairerclip.data.prompts.prompt_set import Counterfactual, PromptSet, PromptSource
from fairerclip.data.prompts.templates import DEFAULT_TEMPLATES, as_templates, read_templates

__all__ = [
    "DEFAULT_TEMPLATES",
    "Counterfactual",
    "EncodedAttribute",
    "EncodedCounterfactual",
    "EncodedPrompts",
    "PromptSet",
    "PromptSource",
    "as_templates",
    "available_prompts",
    "encode_prompts",
    "load_prompts",
    "read_templates",
]
