"""Templates into which class names are filled, to vary the wording of prompts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fairerclip._util.files import read_bounded
from fairerclip.data.prompts.parse import HOLE, check_templates
from fairerclip.data.prompts.prompt_set import Prompts
from fairerclip.data.task_fields import MAX_VARIANTS
from fairerclip.errors import PromptFileError

MAX_BYTES = 1024**2
DEFAULT_TEMPLATES = (
    *("{}", "{}.", "a photo of {}.", "a photo of a {}.", "a picture of a {}."),
    *("This is a picture of a {}.", "an image that shows a {}.", "a close-up photo of a {}."),
)
"""Plain sentences that suit most names; none is tuned to a data set."""


def read_templates(path: str | os.PathLike[str]) -> Prompts:
    """Read templates from a text file, one per line with ``{}`` in the place of the name; skip empty lines.

    Raises
    ------
    PromptFileError
        The file cannot be read, is too large, or a line is not a template.
    """
    file = Path(path)
    try:
        text = read_bounded(file, MAX_BYTES, PromptFileError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptFileError(
            f"{file}: expected text in UTF-8 with one template on each line: {error}"
        ) from None
    return as_templates([line.strip() for line in text.splitlines() if line.strip()], str(file))


def as_templates(templates: Sequence[str], where: str = "templates") -> Prompts:
    """Return templates as a tuple; raise unless they are 1 to 1000 different lines with one ``{}`` each.

    Examples
    --------
    >>> as_templates(["a {}.", "the {}."])
    ('a {}.', 'the {}.')
    """
    if not 1 <= len(templates) <= MAX_VARIANTS:
        raise PromptFileError(f"{where}: expected 1 to {MAX_VARIANTS} templates, got {len(templates)}")
    return check_templates(list(templates), where)


def filled(template: str, name: str) -> str:
    """Fill a name into a template; not with ``str.format``, so that a template cannot read attributes of objects.

    Examples
    --------
    >>> filled("a photo of a {}.", "cat")
    'a photo of a cat.'
    """
    return template.replace(HOLE, name)
