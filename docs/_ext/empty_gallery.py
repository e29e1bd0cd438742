"""The page of the gallery where examples/gallery has no script."""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx


def write_page(app: Sphinx) -> None:
    """Write the page in the form that sphinx-gallery writes, which replaces it."""
    page = Path(app.srcdir) / "gallery" / "index.rst"
    page.parent.mkdir(exist_ok=True)
    page.write_text("Gallery\n=======\n\nNo examples.\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the page before Sphinx looks for it."""
    app.connect("builder-inited", write_page)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
