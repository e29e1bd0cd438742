"""`apply_to_file`: answers of a classifier for a whole collection, written while it is read."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

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
    AnyModel,
    TopRow,
    check_k,
    named_rows,
    score_columns,
)
from fairerclip.applying.best_rows import BestRows
from fairerclip.applying.mitigated_rows import as_store, check_widths
from fairerclip.data.coded_labels import smallest_type
from fairerclip.data.io.csv_table import csv_bytes
from fairerclip.data.io.npy import DEFAULT_LIMITS
from fairerclip.data.io.parquet_table import ParquetBlocks
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import ParameterError

Array = NDArray[Any]


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

    Rows are read once, block by block, and written as they are answered; the file appears whole, or not at all.

    An ``.npz`` holds ``id`` where the rows have ids, ``prediction`` (n,), or ``rank`` (n, c) of a ranking, ``score``
    (n, c), ``names`` (c,) of the classes or prompts, and ``embedding`` (n, r) if the method changes embeddings. Rank 1
    is the best match, and the earlier of rows with the same score comes first.

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
        O(n·p·D) time. Memory: a block of rows, and the ids; of an ``.npz`` also the scores.
    """
    from fairerclip.model.archive import load

    path = Path(output)
    check_predictions_path(path, overwrite)
    fitted: AnyModel = load(model) if isinstance(model, str | Path) else model
    store = as_store(source, split)
    check_widths(fitted, store, str(model) if isinstance(model, str | Path) else "the model")
    if prompts is not None and top is None:
        raise ParameterError("prompts choose what to rank by; a model predicts classes unless top= is given")
    if top is not None:
        check_k(top, len(store))
    run = _AnswerFile(fitted, store, path, overwrite, *score_columns(fitted, prompts), progress, client)
    return run.write(top)


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
    client: Any

    def write(self, top: int | None) -> AppliedReport:
        """Write the file, with the best rows alone where a table of them is asked for."""
        best = None if top is None else BestRows(len(self.names), min(len(self.store), top))
        classes = self.model.classes_
        began, counts = time.perf_counter(), np.zeros(len(classes), dtype=np.int64)
        if self.path.suffix == ".npz":
            self.write_npz(best, counts)
        elif best is None:
            self.write_table(self.answers(None, counts))
        else:
            for _ in self.answers(best, counts):
                pass
        rows = [] if best is None else named_rows(best, self.names, self.store.ids)
        if best is not None and self.path.suffix != ".npz":
            write_top(rows, self.path, overwrite=self.overwrite)
        named = {str(c): int(k) for c, k in zip(classes.tolist(), counts, strict=True)}
        seconds = time.perf_counter() - began
        return AppliedReport(str(self.path), len(self.store), named if best is None else None, rows, seconds)

    def answers(self, best: BestRows | None, counts: Ints) -> Iterator[dict[str, Array]]:
        """Yield the answers of each block by name, and take note of the best rows or the predicted classes."""
        wanted = self.path.suffix == ".npz"
        how = {"embeddings": wanted, "progress": self.progress, "client": self.client}
        for block in answer_blocks(self.model, self.store, **how):
            scores = block.scores[:, self.kept]
            found: dict[str, Array] = {"score": scores}
            if best is not None:
                best.add(block.start, scores)
            else:
                found["code"] = block.codes.astype(smallest_type(len(counts)))
                counts += np.bincount(block.codes, minlength=len(counts))
            if wanted and block.embeddings is not None:
                found["embedding"] = block.embeddings
            yield found

    def write_table(self, blocks: Iterator[dict[str, Array]]) -> None:
        """Write a row per image as ``.csv`` or ``.parquet``, block by block."""
        classes = self.model.classes_
        ids = self.store.ids
        with atomic_file(self.path, overwrite=self.overwrite) as handle:
            file: ParquetBlocks | None = None
            if self.path.suffix == ".parquet":
                file = ParquetBlocks(handle, example_columns(self.names, classes, with_ids=ids is not None))
            start = 0
            for found in blocks:
                answers = {"score": found["score"], "prediction": classes[found["code"]]}
                if ids is not None:
                    answers["id"] = ids[start : start + len(found["score"])]
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

    def write_npz(self, best: BestRows | None, counts: Ints) -> None:
        """Write all arrays: embeddings, the widest, while rows are answered, and then those held in memory."""
        blocks: dict[str, list[Array]] = {}
        with (
            atomic_file(self.path, overwrite=self.overwrite) as handle,
            zipfile.ZipFile(handle, "w") as archive,
        ):
            with ExitStack() as opened:
                member: IO[bytes] | None = None
                for found in self.answers(best, counts):
                    if not blocks:
                        self._check_size(found)
                    Z = found.pop("embedding", None)
                    if Z is not None:
                        if member is None:
                            member = opened.enter_context(_member(archive, "embedding"))
                            _write_header(member, (len(self.store), Z.shape[1]), Z.dtype)
                        member.write(np.ascontiguousarray(Z).data)
                    for name, block in found.items():
                        blocks.setdefault(name, []).append(block)
            arrays = {name: np.concatenate(parts) for name, parts in blocks.items()}
            for name, array in self._named(arrays, counts).items():
                with _member(archive, name) as opened_member:
                    np.lib.format.write_array(opened_member, array, allow_pickle=False)

    def _check_size(self, first: dict[str, Array]) -> None:
        """Raise, from the first block of answers, if the file would be too large to be read again."""
        row = sum(block[0].nbytes for block in first.values())
        row += 0 if self.store.ids is None else self.store.ids.itemsize
        row += self.model.classes_.itemsize if "code" in first else first["score"][0].nbytes
        if row * len(self.store) >= DEFAULT_LIMITS.npz_bytes:
            raise ParameterError(
                f"{self.path}: the answers take {row * len(self.store):,} bytes, and an .npz of more than "
                f"{DEFAULT_LIMITS.npz_bytes:,} is not read again: write .csv or .parquet"
            )

    def _named(self, arrays: dict[str, Array], counts: Ints) -> dict[str, Array]:
        """Return the arrays of the file beside embeddings by name."""
        out = {} if self.store.ids is None else {"id": self.store.ids}
        if "code" not in arrays:
            out["rank"] = _ranks(arrays["score"])
        else:
            labels = self.model.classes_
            if labels.dtype.kind == "O":  # as text, as wide as the classes that occur
                labels = labels.astype(labels[counts > 0].astype(str).dtype)
            out["prediction"] = labels[arrays["code"]]
        return {**out, "score": arrays["score"], "names": np.array(self.names)}


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a new array of an ``.npz``; ZipInfo has a fixed date, so that equal answers make equal files."""
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)


def _write_header(member: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)


def _ranks(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the rank (n, c) of each row in each column; 1 is the best."""
    order = np.argsort(-scores, axis=0, kind="stable")
    places = np.empty(scores.shape, dtype=np.int64)
    np.put_along_axis(places, order, np.arange(1, len(scores) + 1)[:, None], axis=0)
    return places
