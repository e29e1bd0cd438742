"""Equations as MathML, made while the site is built: pages show them without a script from another host."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
SPELLINGS = (
    (r"\\(?:big|Big)(?![a-zA-Z])", ""),  # fences stretch by themselves
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\dots(?![a-zA-Z])", r"\\ldots"),
    (r"\\cr(?![a-zA-Z])", r"\\\\"),
    (r"\\texttt", r"\\mathtt"),
    (r"\\mathrel", ""),
    (r"\\([td]?frac)(\d)(\d)", r"\\\1{\2}{\3}"),
)
"""LaTeX that the converter of docutils does not know, and what it knows."""


def convert(tex: str, node: nodes.Node, *, block: bool) -> str:
    """Return the MathML of an equation; one that cannot be converted is a warning, and shown as it is."""
    for pattern, replacement in SPELLINGS:
        tex = re.sub(pattern, replacement, tex)
    try:
        return str(latex2mathml.tex2mathml(tex, as_block=block))
    except MathError as error:
        LOGGER.warning("equation %s: %s", tex, error, location=node)
        return f"<code>{escape(tex)}</code>"


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write an equation in a line."""
    self.body.append(convert(node.astext(), node, block=False))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Write an equation on a line of its own."""
    ids = " ".join(f'id="{name}"' for name in node["ids"][:1])
    self.body.append(f'<div class="math" {ids}>{convert(node.astext(), node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
