"""Docstrings as they are written here, linked.

``docs/PAGE.md#anchor`` in a docstring becomes a link to the page. A name in single backticks becomes a link if the
reference documents it, and code otherwise. Members that other packages define are left out.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

CITATION = re.compile(r"(?<![\w/`])(?:``)?docs/((?:[\w-]+/)*[\w-]+)\.md(?:#([\w-]+))?(?:``)?")

NUMBER_OF_VALUES = re.compile(r"\|S\|(?!`)")
"""The number of sensitive values, which reStructuredText would take for a substitution."""


def link_pages(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace citations of pages in a docstring by references, and escape what is not markup."""

    def link(match: re.Match[str]) -> str:
        page, anchor = match[1], match[2]
        if anchor:
            return f":ref:`{page}.md#{anchor} <{page}.md#{anchor}>`"
        return f":doc:`{page}.md </{page}>`"

    lines[:] = [NUMBER_OF_VALUES.sub(r"\\|S\\|", CITATION.sub(link, line)) for line in lines]


def skip_foreign(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Skip members that are inherited from other packages."""
    target = inspect.unwrap(getattr(obj, "fget", None) or getattr(obj, "func", None) or obj)
    home = getattr(target, "__module__", None)
    if name.startswith("model_") or (isinstance(home, str) and not home.startswith("fairerclip")):
        return True
    return None


def name_as_code(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Show a name in backticks that the reference does not document as code."""
    if node.get("refdomain") == "py" and node.get("reftype") == "obj":
        return nodes.literal("", content.astext())
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hooks."""
    app.connect("autodoc-process-docstring", link_pages, priority=400)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("missing-reference", name_as_code)
    app.config.default_role = "py:obj"
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
