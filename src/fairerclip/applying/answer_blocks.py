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
from fairerclip.data.cluster_rows import run_in_order
from fairerclip.data.cluster_tasks import reopened
from fairerclip.data.coded_labels import CodedLabels, smallest_type
from fairerclip.data.embedding_rows import (
    TAILS,
    RowSummary,
    check_rows,
    row_lengths,
    unit_rows,
)
from fairerclip.data.row_drift import compare_rows
from fairerclip.data.row_pass import row_blocks
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
    model: AnyModel,
    store: EmbeddingStore,
    *,
    embeddings: bool = True,
    progress: Progress | None = None,
    client: Any = None,
) -> Iterator[AnswerBlock]:
    """Yield the answers of a model for all rows of a store; only one block of rows is in memory.

    Rows that are not finite are an error, zero rows and rows that differ from those of the fit named warnings. They are
    given after the last block.

    Parameters
    ----------
    model : FairerCLIP or Baseline
        A fitted model.
    store : EmbeddingStore
        Rows of the width of the fit.
    embeddings : bool
        Return mitigated embeddings, too.
    progress : callable, optional
        Called after each block with the numbers of rows done, and of all rows.
    client : distributed.Client, optional
        Client of a Dask cluster whose workers answer the blocks, a few for each thread at a time. They read a store
        that was opened by its path; rows of an array are sent to them.
    """
    seen, n = _Seen(compared=_fitted_rows(model) is not None), len(store)
    blocks = row_blocks(n, BLOCK_ROWS, threads=1)
    found: Iterator[tuple[_Seen, AnswerBlock | None]]
    if client is None:
        found = (_answered(model, embeddings, store, block) for block in blocks)
    elif (rows := reopened(store)) is not None:
        found = run_in_order(client, _answered, (model, embeddings, rows), blocks)
    else:
        sent = (_SentRows(block.start, store[block]) for block in blocks)
        found = run_in_order(client, _answered_sent, (model, embeddings), sent)
    for block_seen, answers in found:
        seen.merge(block_seen)
        if answers is None:
            break
        yield answers
        if progress is not None:
            progress(answers.start + len(answers.scores), n)
    seen.finish(store, model)


def predicted_labels(model: AnyModel, X: Any) -> NDArray[Any]:
    """Return the predicted classes (n,) of rows; of a store, classes that are text as `CodedLabels`."""
    if not isinstance(X, EmbeddingStore) or model.classes_.dtype.kind != "U":
        return np.asarray(model.predict(X))
    kind = smallest_type(len(model.classes_))
    codes = [block.codes.astype(kind) for block in answer_blocks(model, X, embeddings=False)]
    return cast(NDArray[Any], CodedLabels(np.concatenate(codes), tuple(model.classes_.tolist())))


@dataclass(frozen=True, eq=False)
class _SentRows:
    """A block of rows (b, p) that is sent to a worker, and the number of its first row."""

    start: int
    rows: Floats


def _answered(model: AnyModel, embeddings: bool, X: Any, block: slice) -> tuple[_Seen, AnswerBlock | None]:
    """Return what is seen of a block of rows, and its answers; None if rows are not finite."""
    return _answered_sent(model, embeddings, _SentRows(block.start, X[block]))


def _answered_sent(model: AnyModel, embeddings: bool, block: _SentRows) -> tuple[_Seen, AnswerBlock | None]:
    seen = _Seen(compared=_fitted_rows(model) is not None)
    if not seen.add(block.rows):
        return seen, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroRowWarning)  # `check_rows` warns once, of all rows
        return seen, _answers(model, block.start, block.rows, embeddings)


def _answers(model: AnyModel, start: int, rows: Floats, embeddings: bool) -> AnswerBlock:
    if isinstance(model, FairerCLIP):
        Z = model.fitted_.transform(rows)  # once, because computing the features takes nearly all the time
        return AnswerBlock(start, model.fitted_.scores(Z), Z if embeddings else None)
    changed = model.transform(rows) if embeddings and model.changes_embeddings else None
    return AnswerBlock(start, model.scores(rows), changed)


def _fitted_rows(model: AnyModel) -> RowSummary | None:
    """Return the summary of the rows of the fit, which baselines do not have."""
    return model.rows_ if isinstance(model, FairerCLIP) else None


class _Seen:
    """What has been seen of the rows: whether some are zero or not finite, their lengths and their mean direction."""

    def __init__(self, *, compared: bool) -> None:
        self._compared = compared
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
        if self._finite and self._compared:
            self._lengths.append(row_lengths(rows))
            self._total = self._total + unit_rows(rows).sum(axis=0, dtype=np.float64)
        return self._finite

    def merge(self, other: _Seen) -> None:
        """Add the rows after these."""
        self._finite, self._zero = self._finite and other._finite, self._zero or other._zero
        self._lengths += other._lengths
        self._total = self._total + other._total

    def finish(self, store: EmbeddingStore, model: AnyModel) -> None:
        """Raise or warn, after the last block."""
        if not self._finite or self._zero:
            check_rows(store, "X", zero_is_error=False, depth=5)  # which names the rows
        fitted = _fitted_rows(model)
        if fitted is None:
            return
        lengths = np.concatenate(self._lengths)
        summary = RowSummary(len(lengths), np.quantile(lengths, TAILS), self._total / len(lengths))
        for kind, message in compare_rows(fitted, summary, normalize=model.normalize).warnings:
            warnings.warn(message, kind, stacklevel=4)
