"""Embeddings and prompts as users give them, checked before anything is computed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.errors import NonFiniteError, PromptError, ShapeError, ZeroRowError, ZeroRowWarning

BLOCK_ROWS = 16384
SMALLEST, LARGEST = 1e-30, 1e30
"""Magnitudes of X between which sums and products stay within float32."""
Floats = NDArray[np.floating]


def _listed(rows: Sequence[int]) -> str:
    shown = ", ".join(str(r) for r in rows[:5])
    return f"{len(rows)} rows (first: {shown})" if len(rows) > 1 else f"row {shown}"


def check_rows(X: Any, name: str, *, zero_is_error: bool) -> None:
    """Refuse rows that are not finite and refuse, or warn of, rows that are zero. O(n·p), by blocks."""
    bad: list[int] = []
    zero: list[int] = []
    for start in range(0, int(X.shape[0]), BLOCK_ROWS):
        block = np.asarray(X[start : start + BLOCK_ROWS])
        finite = np.isfinite(block).all(axis=1)
        bad += (start + np.flatnonzero(~finite)).tolist()
        zero += (start + np.flatnonzero(~block.any(axis=1))).tolist()
    if bad:
        raise NonFiniteError(
            f"Input {name} contains NaN or infinity in {_listed(bad)} of {X.shape[0]}; "
            "remove these rows or embed their images again"
        )
    if zero:
        message = f"{name} is zero in {_listed(zero)} of {X.shape[0]}"
        if zero_is_error:
            raise ZeroRowError(
                f"{message}: their cosine with a prompt is undefined; remove these rows or embed their "
                "images again"
            )
        warnings.warn(message, ZeroRowWarning, stacklevel=3)


def check_scale(X: Any, dtype: str) -> None:
    """Refuse magnitudes that the working precision cannot hold, which would turn into NaN. O(n·p), by blocks."""
    if dtype != "float32" or X.dtype != np.float64:
        return
    blocks = range(0, int(X.shape[0]), BLOCK_ROWS)
    largest = max(float(np.abs(X[start : start + BLOCK_ROWS]).max()) for start in blocks)
    if largest > 0 and not SMALLEST <= largest <= LARGEST:
        raise NonFiniteError(
            f"the largest magnitude in X is {largest:.3g}, beyond what dtype='float32' can work with; "
            "rescale X or use dtype='float64'"
        )


def prompt_groups(text: Any, width: int, name: str) -> list[Floats]:
    """Bring prompts into one form: a list of (m, p) arrays, one per class or value.

    ``text`` is (c, p), one prompt each, or a sequence of c arrays with one or several prompts each.
    """
    if not isinstance(text, Iterable) or isinstance(text, (str, bytes, Mapping)):
        raise PromptError(
            f"{name} must hold one embedding, or one array of several, per class; got {type(text).__name__}"
        )
    groups: list[Floats] = []
    for k, group in enumerate(text):
        array = np.asarray(group)
        if array.dtype.kind not in "fiu":
            raise PromptError(
                f"{name} must hold embeddings (numbers), entry {k} is {type(group).__name__} of dtype "
                f"{array.dtype}; encode the prompts first"
            )
        array = np.atleast_2d(array)
        if array.ndim != 2 or array.shape[1] != width or array.shape[0] == 0:
            raise ShapeError(
                f"{name}: entry {k} has shape {np.shape(group)}, expected ({width},) or (m, {width}) as wide as X; "
                "image and text embeddings must come from the same model"
            )
        array = array.astype(np.float32 if array.dtype == np.float16 else array.dtype, copy=False)
        check_rows(array, f"{name}[{k}]", zero_is_error=True)
        groups.append(np.asarray(array, dtype=np.float64))
    if len(groups) < 2:
        raise PromptError(f"{name} must have prompts for at least 2 classes; got {len(groups)}")
    _refuse_repeated(groups, name)
    return groups


def _refuse_repeated(groups: list[Floats], name: str) -> None:
    owner: dict[bytes, int] = {}
    for k, group in enumerate(groups):
        for row in group:
            first = owner.setdefault(row.tobytes(), k)
            if first != k:
                raise PromptError(
                    f"{name}: entries {first} and {k} share the same prompt embedding, so the two could not be "
                    "told apart; give prompts that differ"
                )


def sensitive_prompts(sensitive_text: Any, width: int) -> dict[str | None, list[Floats]]:
    """Prompts of each sensitive attribute by name; None is the name of a single unnamed one."""
    if sensitive_text is None:
        return {}
    if isinstance(sensitive_text, Mapping):
        return {
            str(name): prompt_groups(text, width, f"sensitive_text[{name!r}]")
            for name, text in sensitive_text.items()
        }
    return {None: prompt_groups(sensitive_text, width, "sensitive_text")}
