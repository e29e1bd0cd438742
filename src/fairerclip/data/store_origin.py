"""Where the rows of a store come from, so that another process can open them."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairerclip._util.types import Ints


class StoreOrigin(NamedTuple):
    """Path and options with which `open_store` opens the same rows in another process, and which of them are chosen."""

    path: str
    options: dict[str, Any]
    rows: Ints | None = None
