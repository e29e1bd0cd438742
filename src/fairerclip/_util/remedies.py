"""Remedies that messages of several rooms name."""

from __future__ import annotations

from collections.abc import Sequence


def use_labels(*choices: str) -> str:
    """Return the option of commands, and the argument in Python, that chooses the labels of a fit.

    Examples
    --------
    >>> use_labels("target", "none")
    "--labels target or --labels none (in Python labels='target' or labels='none')"
    """
    flags = " or ".join(f"--labels {choice}" for choice in choices)
    return f"{flags} (in Python {' or '.join(f'labels={choice!r}' for choice in choices)})"


def without_prompts(attributes: Sequence[str], split: str, *, labelled: bool) -> str:
    """Return that attributes have no prompts, and what to do; ``labelled``: every row of the split has all labels.

    Examples
    --------
    >>> without_prompts(["sex"], "train", labelled=False)
    'no prompts for sex (text_sensitive), so its unknown values cannot be predicted; give prompts for sex'
    """
    names = ", ".join(attributes)
    cause = f"no prompts for {names} (text_sensitive), so its unknown values cannot be predicted"
    if not labelled:
        return f"{cause}; give prompts for {names}"
    known = use_labels("all").removesuffix(")") + ", or sensitive_features= of FairerCLIP.fit)"
    return f"{cause}; its {split} rows have labels, which a fit uses with {known}"
