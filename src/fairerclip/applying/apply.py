"""Apply any fitted model to new rows: predictions or ranks, scores and embeddings, or the best rows of each prompt."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Floats
from fairerclip.applying.best_rows import BestRows
from fairerclip.baselines.baseline import Baseline
from fairerclip.data.stores import EmbeddingStore
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


def is_ranking(model: AnyModel) -> bool:
    """Return whether a model ranks by prompt: its scores are shifted per prompt, so their argmax is not a class."""
    if isinstance(model, Baseline):
        return False
    tuning = model.diagnostics_.get("tuning")
    objective = tuning.get("objective") if isinstance(tuning, Mapping) else None
    return objective == "max_skew" or model.sensitive_shifts_ is not None


def prompt_names(model: AnyModel) -> list[str]:
    """Return the name of each column of scores: the class, or prompt, as text; different classes stay different."""
    names = [str(name) for name in model.classes_.tolist()]
    return names if len(set(names)) == len(names) else [repr(name) for name in model.classes_.tolist()]


def apply_model(
    model: AnyModel,
    X: Any,
    ids: NDArray[Any] | None = None,
    *,
    rank: bool | None = None,
    prompts: Sequence[str] | None = None,
) -> dict[str, NDArray[Any]]:
    """Compute predictions or ranks, scores and mitigated embeddings of new rows.

    A named warning is given for rows that differ from the training rows in length or mean direction, if the model knows
    these.

    Parameters
    ----------
    model : FairerCLIP or Baseline
        A fitted model.
    X : array of shape (n, p) or EmbeddingStore
        Image embeddings.
    ids : array of shape (n,), optional
        Names of the rows.
    rank : bool, optional
        Rank the rows by each prompt instead of predicting a class. Default: whether the model ranks by prompt.
    prompts : list of str, optional
        Names of the prompts to rank by. Default: all.

    Returns
    -------
    dict
        ``names`` (c,), ``score`` (n, c), ``embedding`` (n, r) if the method changes embeddings, ``id`` (n,) where
        given, and either ``prediction`` (n,) or ``rank`` (n, c): 1 is the best match, and the earlier row comes first
        where scores tie.
    """
    rank = is_ranking(model) if rank is None else rank
    if prompts is not None and not rank:
        raise ParameterError("prompts choose what to rank by; this model predicts classes unless rank=True")
    kept, names = score_columns(model, prompts)
    warn_of_drift(model, X)
    every_score, embeddings = _answers(model, X)
    scores = every_score[:, kept]
    decided = {"rank": _ranks(scores)} if rank else {"prediction": model.classes_[every_score.argmax(axis=1)]}
    found = {**decided, "score": scores, "names": np.array(names)}
    if embeddings is not None:
        found["embedding"] = embeddings
    return found if ids is None else {"id": ids, **found}


def top_rows(
    model: AnyModel,
    X: Any,
    k: int,
    ids: NDArray[Any] | None = None,
    *,
    prompts: Sequence[str] | None = None,
) -> list[TopRow]:
    """Find the k best rows of each prompt; of a store, only one block of rows and the best ones are in memory.

    Parameters
    ----------
    model, X, ids, prompts
        As in `apply_model`.
    k : int
        Number of rows of each prompt, at most n.

    Returns
    -------
    list of TopRow
        k for each prompt, prompt by prompt and best first; the earlier row comes first where scores tie.
    """
    check_k(k, len(X))
    kept, names = score_columns(model, prompts)
    warn_of_drift(model, X)
    best = BestRows(len(kept), k)
    for start, rows in _blocks(X):
        best.add(start, model.scores(rows)[:, kept])
    return named_rows(best, names, ids)


def named_rows(
    best: BestRows, names: Sequence[str], ids: NDArray[Any] | Mapping[int, str] | None
) -> list[TopRow]:
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


def _answers(model: AnyModel, X: Any) -> tuple[F64, Floats | None]:
    """Return the scores of rows (n, c), and their embeddings (n, r) if the method changes these."""
    if isinstance(model, FairerCLIP):
        Z = model.transform(X)  # once, because computing the features takes nearly all the time
        return model.fitted_.scores(Z), Z
    scores, embeddings = [], []
    for _, rows in _blocks(X):
        scores.append(model.scores(rows))
        if model.changes_embeddings:
            embeddings.append(model.transform(rows))
    return np.concatenate(scores), np.concatenate(embeddings) if embeddings else None


def _blocks(X: Any) -> Iterator[tuple[int, Any]]:
    """Yield the number of the first row and the rows, block by block for a store; anything else is one block."""
    if not isinstance(X, EmbeddingStore):
        yield 0, X
        return
    for start in range(0, len(X), BLOCK_ROWS):
        yield start, X[start : start + BLOCK_ROWS]


def _ranks(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the rank (n, c) of each row in each column; 1 is the best."""
    order = np.argsort(-scores, axis=0, kind="stable")
    places = np.empty(scores.shape, dtype=np.int64)
    np.put_along_axis(places, order, np.arange(1, len(scores) + 1)[:, None], axis=0)
    return places


def warn_of_drift(model: AnyModel, X: Any) -> None:
    """Warn of rows that differ from the training rows; baselines and models of older files do not know these."""
    if isinstance(model, FairerCLIP) and model.rows_ is not None:
        for kind, message in model.drift(X).warnings:
            warnings.warn(message, kind, stacklevel=3)
