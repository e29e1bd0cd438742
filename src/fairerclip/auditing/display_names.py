"""Names of tasks and attributes as pages show them."""

from __future__ import annotations

from fairerclip.data.task_fields import UNNAMED

NAMELESS = "sensitive attribute"
"""Shown for the only sensitive attribute of a task where it has no name."""


def attribute_name(name: str) -> str:
    """Return the name of a sensitive attribute as pages show it."""
    return NAMELESS if name == UNNAMED else name


def base_name(source: str) -> str:
    """Return the file name of a task without its folders, which would show paths of somebody's machine."""
    name = source.replace("\\", "/").rsplit("/", 1)[-1]
    return f"./{name}" if name.startswith("-") else name
