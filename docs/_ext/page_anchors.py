"""Anchors of Markdown pages as targets: ``[…](math.md#low-rank)`` finds ``<a id="low-rank"></a>`` as on a code host.

Each heading and each ``<a id="…"></a>`` of ``docs/PAGE.md`` is a label ``PAGE.md#anchor`` for ``:ref:``, so that
docstrings can link to it (`docstring_links`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

TOP_PAGES = {"CHANGELOG", "CONTRIBUTING", "SECURITY"}
"""Pages of the root of the project; docs/development includes them."""
ANCHOR = re.compile(r'<a id="([^"]+)">')


class PageAnchors(SphinxTransform):
    """Register the anchors of a page before links inside it are resolved."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        """Add explicit anchors to the slugs that the Markdown parser found, and all of them to the labels."""
        slugs = getattr(self.document, "myst_slugs", None)
        if slugs is None:  # not a Markdown page
            return
        for raw in self.document.findall(nodes.raw):
            for name in ANCHOR.findall(raw.astext()):
                slugs[name] = (raw.line, name, "")
        for node in self.document.findall(pending_xref):
            name = Path(str(node["reftarget"])).name.removesuffix(".md")
            if name in TOP_PAGES:
                node.update_all_atts(
                    {"reftarget": f"development/{name.lower()}", "refdomain": "doc"}, replace=True
                )
                node.setdefault("reftargetid", None)
        self.env.metadata[self.env.docname]["myst_slugs"] = slugs
        labels = self.env.domains.standard_domain
        for name, (_, target, title) in slugs.items():
            label = f"{self.env.docname}.md#{name}".lower()
            labels.labels[label] = self.env.docname, target, title or name
            labels.anonlabels[label] = self.env.docname, target


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform."""
    app.add_transform(PageAnchors)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
