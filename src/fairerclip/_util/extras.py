"""Import of optional libraries, with an error that says what to install."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from fairerclip.errors import MissingExtraError


def require(module: str, extra: str, purpose: str) -> Any:
    """Import and return an optional module; raise `MissingExtraError` with the extra to install if it is absent."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{purpose} needs {module.partition('.')[0]}, which is not installed: {install_command(extra)} ({error})"
        ) from None


def install_command(extra: str) -> str:
    """Return the command that adds an extra: from the folder or file that the package was installed from, if any."""
    try:
        origin = json.loads(distribution("fairerclip").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    url = origin.get("url", "")
    if "dir_info" in origin:
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        return f'pip install {editable}"{url2pathname(urlsplit(url).path)}[{extra}]"'
    if url:
        scheme = "git+" if origin.get("vcs_info", {}).get("vcs") == "git" else ""
        return f'pip install "fairerclip[{extra}] @ {scheme}{url}"'
    return f'pip install "fairerclip[{extra}]"'
