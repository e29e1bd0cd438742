"""What any fitted classifier answers: the names of its columns of scores, and the best rows of each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from fairerclip.applying.best_rows import BestRows
from fairerclip.baselines.baseline import Baseline
from fairerclip.errors import ParameterError
from fairerclip.model.estimator import FairerCLIP

BLOCK_ROWS = 8192
"""Rows of a store that are answered at once."""
AnyModel = FairerCLIP | Baseline
"""A classifier of the package."""


class TopRow(NamedTuple):
    """One row of a ranking."""

    prompt: str
    rank: int
    """1 is the best match."""
    row: int
    """Number of the row, from 0."""
    id: str | None
    score: float


def prompt_names(model: AnyModel) -> list[str]:
    """Return the name of each column of scores: the class, or prompt, as text; different classes stay different."""
    names = [str(name) for name in model.classes_.tolist()]
    return names if len(set(names)) == len(names) else [repr(name) for name in model.classes_.tolist()]


def named_rows(best: BestRows, names: Sequence[str], ids: NDArray[Any] | None) -> list[TopRow]:
    """Return the best rows of each prompt, with its name and their ids, prompt by prompt and best first."""
    return [
        TopRow(name, place, row, None if ids is None else str(ids[row]), score)
        for name, rows, values in zip(names, best.rows, best.scores, strict=True)
        for place, (row, score) in enumerate(zip(rows.tolist(), values.tolist(), strict=True), 1)
    ]


def check_k(k: int, rows: int) -> None:
    """Raise if k is not a number of rows that can be chosen."""
    if not 1 <= k <= rows:
        raise ParameterError(f"k must be between 1 and {rows}, the number of rows; got {k}")


def score_columns(model: AnyModel, prompts: Sequence[str] | None) -> tuple[list[int], list[str]]:
    """Return numbers and names of the columns of scores for some prompts, or for all."""
    names = prompt_names(model)
    unknown = [name for name in prompts or () if name not in names]
    if unknown:
        raise ParameterError(f"{unknown[0]!r} is not a prompt of this model; it has {', '.join(names)}")
    chosen = names if prompts is None else list(dict.fromkeys(prompts))
    return [names.index(name) for name in chosen], chosen
