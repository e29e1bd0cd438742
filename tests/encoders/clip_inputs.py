"""Prompts that tokenizers can disagree on."""

PROMPTS = [
    "a photo of a landbird",
    "A photo of a Waterbird, in the 1990's!",
    "das ist  ein Übermaß — naïve café",
    "it's 42 birds… don't",
    "鳥 🐦",
]
