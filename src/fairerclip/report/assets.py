"""Templates, styles and scripts of pages, and their hashes for content security policies."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from jinja2 import DictLoader, Environment, StrictUndefined


def asset(name: str) -> str:
    """Return the text of a file among the templates."""
    # Browsers hash the text with line feeds, so that a checkout with CRLF needs this.
    return (files(__package__) / "templates" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def asset_hash(text: str) -> str:
    """Return the hash by which a content security policy allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def template_environment(name: str) -> Environment:
    """Return an environment with one template that escapes all text and raises on unknown names."""
    return Environment(
        loader=DictLoader({name: asset(name)}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
