"""`apply_to_file`: answers of a classifier for a whole collection, written while it is read."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import atomic_file
from fairerclip._util.types import Ints
from fairerclip.applying.answer_blocks import Progress, answer_blocks
from fairerclip.applying.answer_files import (
    answer_columns,
    check_predictions_path,
    example_columns,
    write_top,
)
from fairerclip.applying.apply import (
    BLOCK_ROWS,
    AnyModel,
    TopRow,
    check_k,
    is_ranking,
    named_rows,
    score_columns,
)
from fairerclip.applying.best_rows import BestRows
from fairerclip.applying.mitigated_rows import as_store, check_widths
from fairerclip.data.io.csv_table import csv_bytes
from fairerclip.data.io.npy import DEFAULT_LIMITS
from fairerclip.data.io.parquet_table import ParquetBlocks
from fairerclip.data.io.spool import Spool, row_blocks, write_npy
from fairerclip.data.store_rows import id_blocks, ids_at
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import ParameterError

Array = NDArray[Any]

SHOWN = 10
"""Best rows of each prompt that a report holds if no number is given."""


@dataclass(frozen=True)
class AppliedReport:
    """Result of `apply_to_file`.

    Attributes
    ----------
    output : str
        The file.
    rows : int
        Number of rows.
    predicted : dict or None
        Class → number of rows for which it was predicted; None of a ranking.
    best : list of TopRow
        The best rows of each prompt, prompt by prompt and best first; empty where classes were predicted.
    seconds : float
        Time of the work.
    """

    output: str
    rows: int
    predicted: dict[str, int] | None
    best: list[TopRow] = field(repr=False)
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


def apply_to_file(
    model: Any,
    source: Any,
    output: str | Path,
    *,
    top: int | None = None,
    prompts: Sequence[str] | None = None,
    split: str = "test",
    overwrite: bool = False,
    progress: Progress | None = None,
    client: Any = None,
) -> AppliedReport:
    """Write the answers of a classifier for new rows: predictions or ranks, scores and mitigated embeddings.

    Rows are read once, block by block, and written as they are answered; the file appears whole, or not at all. The
    content is that of `apply_model` or `top_rows` and `fairerclip.applying.answer_files`.

    Parameters
    ----------
    model : FairerCLIP, Baseline, str or Path
        A fitted classifier, or its folder.
    source, split, overwrite, progress
        As in `mitigate_store`.
    output : str or Path
        ``.npz`` (all arrays), ``.csv`` or ``.parquet`` (a row per image; with ``top``, a row per prompt and rank).
    top, prompts : int and list of str, optional
        Rank the rows by each prompt, or some, and write the best of each as a table.
    client : distributed.Client, optional
        Client of a Dask cluster whose workers read and answer the rows, if they see the store under the same path; rows
        of an array are sent to them. The file is written here, while answers come.

    Returns
    -------
    AppliedReport
        O(n·p·D) time. Memory of a block; ranks of all rows take 24 bytes per row. An ``.npz`` and a table of ranks
        need their own size once more on disk, in the folder of the output, while they are made.
    """
    from fairerclip.model.archive import load

    path = Path(output)
    check_predictions_path(path, overwrite)
    fitted: AnyModel = load(model) if isinstance(model, str | Path) else model
    store = as_store(source, split)
    check_widths(fitted, store, str(model) if isinstance(model, str | Path) else "the model")
    rank = top is not None or is_ranking(fitted)
    if prompts is not None and not rank:
        raise ParameterError(
            "prompts choose what to rank by; this model predicts classes unless top= is given"
        )
    if top is not None:
        check_k(top, len(store))
    run = _AnswerFile(fitted, store, path, overwrite, *score_columns(fitted, prompts), progress, rank, client)
    return run.write(top)


def _ids_of(store: EmbeddingStore, best: BestRows) -> dict[int, str] | None:
    """Return the ids of the best rows by row number; None without ids."""
    if not store.has_ids:
        return None
    rows = np.unique(np.concatenate(best.rows))
    return dict(zip(rows.tolist(), ids_at(store, rows), strict=True))


@dataclass(frozen=True, eq=False)
class _AnswerFile:
    """One call: what is applied to which rows, and where the answers go."""

    model: AnyModel
    store: EmbeddingStore
    path: Path
    overwrite: bool
    kept: list[int]
    names: list[str]
    progress: Progress | None
    ranked: bool
    client: Any

    def write(self, top: int | None) -> AppliedReport:
        """Write the file, with the best rows alone where a table of them is asked for."""
        best = BestRows(len(self.names), min(len(self.store), top or SHOWN)) if self.ranked else None
        classes = self.model.classes_
        began, counts = time.perf_counter(), np.zeros(len(classes), dtype=np.int64)
        only_best = top is not None and self.path.suffix != ".npz"
        if only_best:
            for _ in self.answers(best, None):
                pass
        elif self.path.suffix == ".npz" or self.ranked:
            self.write_spooled(best, counts)
        else:
            self.write_table(self.answers(None, counts))
        rows = [] if best is None else named_rows(best, self.names, _ids_of(self.store, best))
        if only_best:
            write_top(rows, self.path, overwrite=self.overwrite)
        named = {str(c): int(k) for c, k in zip(classes.tolist(), counts, strict=True)}
        seconds = time.perf_counter() - began
        return AppliedReport(str(self.path), len(self.store), None if self.ranked else named, rows, seconds)

    def answers(self, best: BestRows | None, counts: Ints | None) -> Iterator[dict[str, Array]]:
        """Yield the answers of each block by name, and take note of the best rows or the predicted classes."""
        wanted = self.path.suffix == ".npz"
        how = {"embeddings": wanted, "progress": self.progress, "client": self.client}
        for block in answer_blocks(self.model, self.store, **how):
            scores = block.scores[:, self.kept]
            found: dict[str, Array] = {"score": scores}
            if best is not None:
                best.add(block.start, scores)
            elif counts is not None:
                found["code"] = block.codes
                counts += np.bincount(block.codes, minlength=len(counts))
            if wanted and block.embeddings is not None:
                found["embedding"] = block.embeddings
            yield found

    def write_table(self, blocks: Iterator[dict[str, Array]]) -> None:
        """Write a row per image as ``.csv`` or ``.parquet``, block by block."""
        classes = self.model.classes_
        ids = id_blocks(self.store, BLOCK_ROWS) if self.store.has_ids else None
        with atomic_file(self.path, overwrite=self.overwrite) as handle:
            file: ParquetBlocks | None = None
            if self.path.suffix == ".parquet":
                shown = None if self.ranked else classes
                file = ParquetBlocks(handle, example_columns(self.names, shown, with_ids=ids is not None))
            start = 0
            for found in blocks:
                answers = {name: array for name, array in found.items() if name in ("score", "rank")}
                if "code" in found:
                    answers["prediction"] = classes[found["code"]]
                if ids is not None:
                    answers["id"] = next(ids)
                columns = answer_columns(answers, self.names, start)
                if file is not None:
                    file.add(columns)
                else:
                    rows = [
                        dict(zip(columns, cells, strict=True))
                        for cells in zip(*columns.values(), strict=True)
                    ]
                    handle.write(csv_bytes(rows, header=not start))
                start += len(found["score"])
            if file is not None:
                file.close()

    def write_spooled(self, best: BestRows | None, counts: Ints) -> None:
        """Collect the answers on disk, and then write an ``.npz``, or a table of ranks."""
        with ExitStack() as open_files:
            spools: dict[str, Spool] = {}
            for found in self.answers(best, counts):
                for name, block in found.items():
                    if name not in spools:
                        spools[name] = open_files.enter_context(Spool(self.path.parent))
                    spools[name].add(block)
            arrays = {name: spool.array() for name, spool in spools.items()}
            if self.ranked:
                spool = open_files.enter_context(Spool(self.path.parent))
                arrays["rank"] = spool.fill(arrays["score"].shape, np.int64)
                _fill_ranks(arrays["score"], arrays["rank"])
            if self.path.suffix == ".npz":
                self._write_npz(arrays, counts)
            else:
                self.write_table(_slices(arrays))

    def _write_npz(self, arrays: dict[str, Array], counts: Ints) -> None:
        """Write the collected arrays, under the names and in the order of `apply_model`."""
        members = self._members(arrays, counts)
        size = sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for _, shape, dtype, _ in members.values())
        if size >= DEFAULT_LIMITS.npz_bytes:
            raise ParameterError(
                f"{self.path}: the answers take {size:,} bytes, and an .npz of more than "
                f"{DEFAULT_LIMITS.npz_bytes:,} is not read again: write .csv or .parquet"
            )
        with (
            atomic_file(self.path, overwrite=self.overwrite) as handle,
            zipfile.ZipFile(handle, "w") as archive,
        ):
            for name, (blocks, shape, dtype, fortran) in members.items():
                # ZipInfo has a fixed date, so that equal answers make equal files.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    write_npy(member, blocks, shape, dtype, fortran=fortran)

    def _members(
        self, arrays: dict[str, Array], counts: Ints
    ) -> dict[str, tuple[Iterable[Array], tuple[int, ...], Any, bool]]:
        """Return blocks, shape, type and whether the order is that of Fortran, of each array of the file."""
        out: dict[str, tuple[Iterable[Array], tuple[int, ...], Any, bool]] = {}
        n, score, names = len(self.store), arrays["score"], np.array(self.names)
        if self.store.has_ids:
            width = max(block.dtype.itemsize for block in id_blocks(self.store)) // 4
            out["id"] = (id_blocks(self.store), (n,), f"<U{width}", False)
        if self.ranked:
            out["rank"] = (row_blocks(arrays["rank"]), arrays["rank"].shape, np.int64, False)
        else:
            labels = self.model.classes_
            if labels.dtype.kind == "O":  # as text, as wide as the classes that occur
                labels = labels.astype(labels[counts > 0].astype(str).dtype)
            out["prediction"] = ((labels[b] for b in row_blocks(arrays["code"])), (n,), labels.dtype, False)
        # By columns, as numpy writes the result of choosing columns.
        fortran = min(score.shape) > 1
        by_column = (block for column in score.T for block in row_blocks(column))
        out["score"] = (by_column if fortran else row_blocks(score), score.shape, score.dtype, fortran)
        out["names"] = ([names], names.shape, names.dtype, False)
        if "embedding" in arrays:
            Z = arrays["embedding"]
            out["embedding"] = (row_blocks(Z), Z.shape, Z.dtype, False)
        return out


def _fill_ranks(scores: Array, ranks: Array) -> None:
    """Write the rank (n, c) of each row in each column; 1 is the best, and the earlier of equal rows comes first."""
    for column in range(scores.shape[1]):
        order = np.argsort(-scores[:, column], kind="stable")
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(1, len(order) + 1)
        ranks[:, column] = places


def _slices(arrays: dict[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield the same rows of all arrays, block by block."""
    for start in range(0, len(arrays["score"]), BLOCK_ROWS):
        yield {name: array[start : start + BLOCK_ROWS] for name, array in arrays.items()}
