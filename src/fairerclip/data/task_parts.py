"""Parts of a task: rows of a split, sensitive attributes, wordings and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.data.io.bounded_text import nearest
from fairerclip.errors import ParameterError

Array = NDArray[Any]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Sensitive:
    """A sensitive attribute: names, prompts and prompt embeddings of its values."""

    name: str
    names: tuple[str, ...]
    prompts: tuple[str, ...]
    text: Floats | None = None  # (|S|, p)


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of one split. In `y` and in each `s`, -1 is an unknown label.

    ``X`` is an array, or an `EmbeddingStore` of rows that stay on disk, as ``build_task(…, in_memory=False)`` makes it.
    """

    X: Any  # (n, p) float32
    y: Ints | None = None  # (n,)
    s: dict[str, Ints] = field(default_factory=dict)  # attribute -> (n,)
    ids: Array | None = None  # (n,) str or int

    def __len__(self) -> int:
        return len(self.X)

    def sensitive(self, name: str | None = None) -> Ints:
        """Return the values (n,) of one sensitive attribute; None means the only one.

        Raises
        ------
        ParameterError
            The split has no such attribute, or None was given and there are several.

        Examples
        --------
        >>> Split(np.eye(2, dtype=np.float32), s={"sex": np.array([0, 1])}).sensitive()
        array([0, 1])
        """
        return self.s[pick_attribute(name, self.s, "this split")]

    def take(self, rows: Any) -> Split:
        """Return some of the rows, given as an array of row numbers or a slice.

        Examples
        --------
        >>> Split(np.eye(3, dtype=np.float32), np.array([0, 1, 1])).take([0, 2]).y
        array([0, 1])
        """
        return Split(
            self.X[rows],
            None if self.y is None else self.y[rows],
            {name: codes[rows] for name, codes in self.s.items()},
            None if self.ids is None else self.ids[rows],
        )


@dataclass(frozen=True, eq=False)
class Variants:
    """Other wordings of the class prompts: embeddings (m, c, p) and the template, or name, of each wording."""

    text: Floats
    templates: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences besides the prompts: embeddings, text, and the class of each sentence if it names one."""

    text: Floats  # (m, p)
    prompts: tuple[str, ...]
    classes: Ints | None = None  # (m,)


@dataclass(frozen=True, eq=False)
class SentencePairs:
    """Pairs of sentences: embeddings and text."""

    text: Floats  # (m, 2, p)
    prompts: tuple[tuple[str, ...], ...]


def pick_attribute(name: str | None, attributes: Mapping[str, Any], where: str) -> str:
    """Return the name of a sensitive attribute, None meaning the only one; raise if there is no such attribute."""
    listed = ", ".join(map(repr, attributes)) or "none"
    if name is None and len(attributes) == 1:
        return next(iter(attributes))
    if name is None:
        raise ParameterError(
            f"expected the name of a sensitive attribute (for commands --sensitive NAME), {where} has: {listed}"
        )
    if name not in attributes:
        near = nearest(name, attributes)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ParameterError(f"no sensitive attribute {name!r}; {where} has: {listed}{hint}")
    return name
