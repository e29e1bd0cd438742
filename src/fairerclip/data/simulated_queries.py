"""Free queries of the simulated gallery: occupations whose texts leak sex and race, and a text that asks for a sex."""

from __future__ import annotations

import numpy as np

from fairerclip.data.geometry import Space
from fairerclip.data.task_parts import Sentences

OCCUPATIONS = (
    ("A photo of a nurse.", (0, 1), (4, 1), -0.5, 3),
    ("A photo of an engineer.", (1, 1), (0, -1), 0.4, 2),
    ("A photo of a teacher.", (0, 1), (1, 1), -0.2, 0),
    ("A photo of a builder.", (4, 1), (3, -1), 0.5, 6),
    ("A photo of a doctor.", (1, 1), (3, 1), 0.1, 4),
    ("A photo of a singer.", (2, 1), (4, 1), -0.1, 1),
)
"""Text, two traits with their signs, leak toward male, and the race toward which it leaks."""
RACE_LEAK = 0.4
WOMAN = "A photo of a woman."
"""Query that asks for S."""
ASKED = 1.5
"""Strength of the sex in the query that asks for it; that of a sensitive prompt is 1."""


def free_queries(space: Space, rng: np.random.Generator) -> Sentences:
    """Draw the free queries of a gallery with its own generator, so that no image or prompt depends on them."""
    sex_codes, race_codes = space.sensitive_codes
    directions = []
    for _, (i, first), (j, second), to_male, race in OCCUPATIONS:
        trait = (first * space.class_codes[i] + second * space.class_codes[j]) / np.float32(np.sqrt(2))
        directions.append(space.direction(trait, [to_male * sex_codes[1], RACE_LEAK * race_codes[race]]))
    directions.append(space.direction(None, [ASKED * sex_codes[0], None]))
    text = space.texts(np.stack(directions), rng=rng)
    return Sentences(text, (*(name for name, *_ in OCCUPATIONS), WOMAN))
