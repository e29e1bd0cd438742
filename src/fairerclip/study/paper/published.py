"""Published figures with their sources."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from fairerclip._util.numbers import significant


@dataclass(frozen=True)
class Published:
    """One row of a published table for one dataset and one backbone."""

    table: str
    dataset: str
    backbone: str | None
    method: str | None
    """Key of the method in this package; None if it has none."""
    title: str
    labels: str | None
    figures: Mapping[str, float]
    source: str
    where: str
    average_kind: str
    """Plain, train-weighted or not stated; "none" if no average is given."""
    plus_minus: Mapping[str, float] = field(default_factory=dict)
    protocol: str = ""

    def text(self, names: Mapping[str, str]) -> str:
        """Return the figures in one line, with their display names from ``names``."""
        parts = []
        for key, name in names.items():
            if key in self.figures:
                spread = self.plus_minus.get(key)
                margin = "" if not spread else f" ± {significant(spread, 6)}"
                parts.append(f"{name} {significant(self.figures[key], 6)}{margin}")
        return ", ".join(parts)


@cache
def all_published() -> tuple[Published, ...]:
    """Read all figures of ``published.json``."""
    raw: dict[str, Any] = json.loads((files(__package__) / "published.json").read_text(encoding="utf-8"))
    return tuple(Published(**entry) for entry in raw["figures"])


def published(table: str, dataset: str | None = None, method: str | None = None) -> list[Published]:
    """Return the rows of one table, optionally of one dataset and one method.

    Examples
    --------
    >>> [row.figures["eod"] for row in published("intrinsic", "cheekbones", "fairerclip")]
    [0.02, 0.005]
    """
    return [
        row
        for row in all_published()
        if row.table == table
        and (dataset is None or row.dataset == dataset)
        and (method is None or row.method == method)
    ]
