"""Zero-shot classes and scores: cosines of rows with the prompts of each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import PromptError
from fairerclip.inputs.image_rows import BLOCK_ROWS, unit_rows, working_dtype

F64 = NDArray[np.float64]
Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


def _unit(T: NDArray[np.floating]) -> F64:
    return unit_rows(np.asarray(T, dtype=np.float64))


def prototypes(prompts: Sequence[NDArray[np.floating]]) -> F64:
    """One unit vector per class (c, p): prompts normalised, averaged and normalised, as CLIP does."""
    means = []
    for k, group in enumerate(prompts):
        if np.any(group, axis=1).all() and np.any(mean := _unit(group).mean(axis=0)):
            means.append(mean)
            continue
        raise PromptError(
            f"the prompts (or, without prompts, the mean embedding) of entry {k} are zero or cancel out, so that no "
            "cosine with them is defined; give prompts that point somewhere"
        )
    return _unit(np.stack(means))


def cosine_blocks(
    X: Any, T: F64, origin: NDArray[np.floating] | float = 0.0
) -> Iterator[tuple[slice, Floats]]:
    """Cosines (b, c) of rows with unit prototypes T (c, p), block by block; 0 for a row that is zero."""
    columns = T.T.astype(np.float32)
    for start in range(0, int(X.shape[0]), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        rows = np.asarray(X[block])
        rows = rows.astype(working_dtype(rows.dtype), copy=False)
        # Of unit length before the product: squares and products of rows as they come may leave float32.
        unit = unit_rows(rows if np.ndim(origin) == 0 and origin == 0 else rows - origin)
        yield block, unit.astype(np.float32, copy=False) @ columns


def zero_shot(
    X: Any, prompts: Sequence[NDArray[np.floating]], origin: NDArray[np.floating] | float = 0.0
) -> tuple[Ints, F64]:
    """Zero-shot classes by cosine and their margins, best minus second best. O(n·p·c) time.

    Parameters
    ----------
    X : (n, p) embeddings; read by blocks.
    prompts : c arrays (m, p) of prompt embeddings.
    origin : (p,) point from which angles are measured; subtracted from rows and prompts.

    Returns
    -------
    codes (n,), margins (n,) in cosine units.
    """
    n = int(X.shape[0])
    codes, margins = np.empty(n, dtype=np.int64), np.empty(n)
    for block, cosines in cosine_blocks(X, prototypes([p - origin for p in prompts]), origin):
        codes[block] = cosines.argmax(axis=1)
        top = np.partition(cosines, -2, axis=1)[:, -2:]
        margins[block] = top[:, 1] - top[:, 0]
    return codes, margins


def without_span(T: F64, other: F64) -> F64:
    """Rows of T (c, p) without what the rows of ``other`` (m, p) span: what class prompts say besides S."""
    _, sizes, basis = np.linalg.svd(other, full_matrices=False)
    basis = basis[sizes > 1e-6 * sizes[0]]
    return np.asarray(T - (T @ basis.T) @ basis)


def zero_shot_scores(X: Any, T: F64, *, centred: bool) -> Floats:
    """Cosines of rows with unit prototypes T (n, c), ``centred`` over the classes of each row or as they are.

    What a row has in common with all prompts says nothing of its class, but it does rank rows by one prompt.
    """
    out = np.empty((int(X.shape[0]), len(T)), dtype=np.float32)
    for block, cosines in cosine_blocks(X, T):
        out[block] = cosines - cosines.mean(axis=1, keepdims=True) if centred else cosines
    return out
