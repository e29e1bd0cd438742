"""Answers of a classifier for the rows of a store, block by block, with one pass over the rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import F64, Floats, Ints
from fairerclip.applying.apply import BLOCK_ROWS, AnyModel
from fairerclip.data.coded_labels import CodedLabels, smallest_type
from fairerclip.data.embedding_rows import (
    TAILS,
    RowSummary,
    check_rows,
    row_lengths,
    unit_rows,
)
from fairerclip.data.row_drift import compare_rows
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import ZeroRowWarning
from fairerclip.model.estimator import FairerCLIP

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class AnswerBlock:
    """Answers for consecutive rows.

    Attributes
    ----------
    start : int
        Number of the first row.
    scores : array of shape (b, c)
        Class scores.
    embeddings : array of shape (b, r) or None
        Mitigated embeddings, if the method changes embeddings.
    """

    start: int
    scores: F64
    embeddings: Floats | None

    @property
    def codes(self) -> Ints:
        """Codes (b,) of the predicted classes."""
        return np.asarray(self.scores.argmax(axis=1))


def answer_blocks(
    model: AnyModel, store: EmbeddingStore, *, embeddings: bool = True, progress: Progress | None = None
) -> Iterator[AnswerBlock]:
    """Yield the answers of a model for all rows of a store; only one block of rows is in memory.

    Rows that are not finite are an error, zero rows and rows that differ from those of the fit named warnings, as in
    `apply_model`. They are given after the last block.

    Parameters
    ----------
    model : FairerCLIP or Baseline
        A fitted model.
    store : EmbeddingStore
        Rows of the width of the fit.
    embeddings : bool
        Compute mitigated embeddings, too, where that takes more time than the scores alone.
    progress : callable, optional
        Called after each block with the numbers of rows done, and of all rows.
    """
    seen, n = _Seen(model), len(store)
    for start in range(0, n, BLOCK_ROWS):
        rows = store[start : start + BLOCK_ROWS]
        if seen.add(rows):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ZeroRowWarning)  # `check_rows` warns once, of all rows
                yield _answers(model, start, rows, embeddings)
        if progress is not None:
            progress(min(start + BLOCK_ROWS, n), n)
    seen.finish(store)


def predicted_labels(model: AnyModel, X: Any) -> NDArray[Any]:
    """Return the predicted classes (n,) of rows; of a store, classes that are text as `CodedLabels`."""
    if not isinstance(X, EmbeddingStore) or model.classes_.dtype.kind != "U":
        return np.asarray(model.predict(X))
    kind = smallest_type(len(model.classes_))
    codes = [block.codes.astype(kind) for block in answer_blocks(model, X, embeddings=False)]
    return cast(NDArray[Any], CodedLabels(np.concatenate(codes), tuple(model.classes_.tolist())))


def _answers(model: AnyModel, start: int, rows: Floats, embeddings: bool) -> AnswerBlock:
    if isinstance(model, FairerCLIP):
        Z = model.fitted_.transform(rows)  # once, because computing the features takes nearly all the time
        return AnswerBlock(start, model.fitted_.scores(Z), Z)
    changed = model.transform(rows) if embeddings and model.changes_embeddings else None
    return AnswerBlock(start, model.scores(rows), changed)


class _Seen:
    """What has been seen of the rows: whether some are zero or not finite, their lengths and their mean direction."""

    def __init__(self, model: AnyModel) -> None:
        self._model = model
        # Baselines, and models of older files, do not know what the rows of their fit looked like.
        self._fitted = model.rows_ if isinstance(model, FairerCLIP) else None
        self._finite, self._zero = True, False
        self._lengths: list[F64] = []
        self._total: Any = 0.0

    def add(self, rows: Floats) -> bool:
        """Add a block of rows; return whether all rows so far are finite, so that answers have a meaning."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", rows, rows)
        suspect = ~((squares > 0) & np.isfinite(squares))
        if suspect.any():  # sums of squares over- or underflow for very long and very short rows
            self._finite = self._finite and bool(np.isfinite(rows[suspect]).all())
            self._zero = self._zero or not rows[suspect].any(axis=1).all()
        if self._finite and self._fitted is not None:
            self._lengths.append(row_lengths(rows))
            self._total = self._total + unit_rows(rows).sum(axis=0, dtype=np.float64)
        return self._finite

    def finish(self, store: EmbeddingStore) -> None:
        """Raise or warn, after the last block."""
        if not self._finite or self._zero:
            check_rows(store, "X", zero_is_error=False, depth=5)  # which names the rows
        if self._fitted is None:
            return
        lengths = np.concatenate(self._lengths)
        summary = RowSummary(len(lengths), np.quantile(lengths, TAILS), self._total / len(lengths))
        for kind, message in compare_rows(self._fitted, summary, normalize=self._model.normalize).warnings:
            warnings.warn(message, kind, stacklevel=4)
