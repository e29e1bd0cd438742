"""Rows for benchmarks, as many as asked for: the package's simulated faces, drawn by blocks.

They resemble CLIP embeddings where it matters for speed: unit rows with a common mean and a power-law spectrum, and
evidence of a class and of a sensitive value that the prompts find (`fairerclip.data.geometry`). A block depends on its
number only, so that a file of any size can be written block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap

from fairerclip.data.geometry import Space
from fairerclip.data.simulate import CELEBA, CELEBA_ROWS
from fairerclip.model.automatic import LABELLED

BLOCK = 8192
"""Rows of a block."""
FIXED = dict(LABELLED)
"""Parameters with which nothing of a fit is left to the data: no cross-validation, no offsets."""
SHARES = np.array(CELEBA_ROWS["train"]) / sum(CELEBA_ROWS["train"])
"""Shares of class × sensitive value: blond men are rare."""


class Labelled(NamedTuple):
    """Rows (n, p) with class and sensitive value (n,)."""

    X: np.ndarray
    y: np.ndarray
    s: np.ndarray


class SimulatedRows:
    """A source of rows of one width, with prompts; equal seeds give equal rows."""

    def __init__(self, width: int, seed: int = 0) -> None:
        self.width, self.seed = width, seed
        self.space = Space(CELEBA, 2, [2], width, np.random.default_rng(seed))
        self.text, self.sensitive_text = self.space.class_texts(), self.space.sensitive_texts()

    @property
    def prompts(self) -> dict[str, Any]:
        """The prompts as arguments of a fit."""
        return {"text": self.text, "sensitive_text": self.sensitive_text}

    def block(self, number: int, n: int = BLOCK) -> Labelled:
        """Draw one block of n rows; the cells of class × value have their shares, up to chance."""
        rng = np.random.default_rng([self.seed, 1, number])
        cells = rng.choice(4, size=n, p=SHARES)
        y, s = cells // 2, cells % 2
        return Labelled(self.space.images(y, [s], rng), y, s)

    def blocks(self, n: int, first: int = 0) -> Iterator[tuple[slice, Labelled]]:
        """Draw n rows block by block, from block ``first`` on."""
        for number, start in enumerate(range(0, n, BLOCK)):
            stop = min(start + BLOCK, n)
            yield slice(start, stop), self.block(first + number, stop - start)

    def draw(self, n: int, first: int = 0) -> Labelled:
        """Draw n rows at once."""
        out = Labelled(np.empty((n, self.width), np.float32), np.empty(n, np.int64), np.empty(n, np.int64))
        for at, rows in self.blocks(n, first):
            for whole, part in zip(out, rows, strict=True):
                whole[at] = part
        return out

    def write(self, file: Path, n: int, distinct: int) -> np.ndarray:
        """Write n rows of float16 to a .npy file and return their classes (n,).

        ``distinct`` blocks are drawn and then repeated, because drawing takes longer than writing: the bytes to read
        and the arithmetic are the same.
        """
        out = open_memmap(file, mode="w+", dtype=np.float16, shape=(n, self.width))
        y = np.empty(n, np.int64)
        drawn = [self.block(k) for k in range(min(distinct, -(-n // BLOCK)))]
        halves = [rows.X.astype(np.float16) for rows in drawn]
        for number, start in enumerate(range(0, n, BLOCK)):
            stop, which = min(start + BLOCK, n), number % len(drawn)
            out[start:stop] = halves[which][: stop - start]
            y[start:stop] = drawn[which].y[: stop - start]
            if number % 256 == 255:
                out.flush()
        out.flush()
        return y
