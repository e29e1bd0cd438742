"""Inverted-file indexes of large collections with faiss: trained on a sample, filled block by block.

faiss parses these files itself, and its reader is not made for hostile ones. Size, first bytes and digest are checked
before, and the shape after; but whoever forges an index can forge its digest, too. Read only indexes that you trust.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.extras import require
from fairerclip._util.files import reading
from fairerclip._util.types import F64, Floats, Ints
from fairerclip.data.io.npy import regular
from fairerclip.errors import IndexFileError, ParameterError, TaskFileError

CELLS_PER_ROOT = 2
"""Number of cells, in units of the root of the number of rows."""
TRAIN_PER_CELL, LEAST_PER_CELL = 50, 39
"""Rows of the training sample per cell, and the fewest with which faiss trains without a warning."""
PROBED_SHARE = 0.25
"""Share of the cells that are searched by default. A text is far from all images, so that its results are spread over
many cells: docs/how-to/search.md has the share of the true results that is found."""
CODE_BITS, NUMBERS_PER_CODE = 8, 4
"""Bits of a code of kind pq, and numbers of a row that share one code: 16 bytes become 1."""
MAGIC = {"ivf": b"IwFl", "pq": b"IwPQ"}


def library(kind: str) -> Any:
    """Return the module faiss; raise `MissingExtraError` where it is not installed."""
    return require("faiss", "faiss", f"an index of kind {kind}")


def cell_count(rows: int) -> int:
    """Return the number of cells of an index.

    Examples
    --------
    >>> cell_count(1_000_000), cell_count(100)
    (2000, 2)
    """
    return max(1, min(round(CELLS_PER_ROOT * math.sqrt(rows)), rows // LEAST_PER_CELL))


def sample_size(rows: int, kind: str) -> int:
    """Return the number of rows that an index is trained on; raise if there are too few rows to train."""
    fewest = LEAST_PER_CELL * (2**CODE_BITS if kind == "pq" else 1)
    if rows < fewest:
        raise ParameterError(
            f"an index of kind {kind} needs at least {fewest:,} rows; got {rows:,}: use flat"
        )
    return min(rows, max(TRAIN_PER_CELL * cell_count(rows), fewest))


def write_trained(
    file: Path, kind: str, rows: int, sample: Floats, blocks: Iterable[Floats], *, seed: int
) -> None:
    """Train an index on sample rows (m, p), add all rows block by block, and write it. faiss holds the rows."""
    faiss = library(kind)
    width, cells = sample.shape[1], cell_count(rows)
    centres = faiss.IndexFlatIP(width)
    if kind == "ivf":
        index = faiss.IndexIVFFlat(centres, width, cells, faiss.METRIC_INNER_PRODUCT)
    else:
        index = faiss.IndexIVFPQ(
            centres, width, cells, code_count(width), CODE_BITS, faiss.METRIC_INNER_PRODUCT
        )
        index.pq.cp.seed = seed
    index.cp.seed = seed
    index.nprobe = probed_cells(cells, PROBED_SHARE)
    index.train(np.ascontiguousarray(sample, dtype=np.float32))
    for block in blocks:
        index.add(np.ascontiguousarray(block, dtype=np.float32))
    faiss.write_index(index, str(file))


def probed_cells(cells: int, share: float) -> int:
    """Return the number of cells that are searched.

    Examples
    --------
    >>> probed_cells(2000, 0.25), probed_cells(2, 0.25)
    (500, 1)
    """
    return max(1, min(cells, math.ceil(share * cells)))


def code_count(width: int) -> int:
    """Return the number of codes of a row: the largest divisor of the width up to a quarter of it.

    Examples
    --------
    >>> code_count(512), code_count(30)
    (128, 6)
    """
    most = max(1, width // NUMBERS_PER_CODE)
    return next(count for count in range(most, 0, -1) if width % count == 0)


class TrainedIndex:
    """An index of kind ivf or pq, read by faiss after its size, first bytes and digest were checked.

    Parameters
    ----------
    file : Path
        File of the index.
    kind : {"ivf", "pq"}
        Its kind.
    shape : tuple of int
        Rows and width that it must have.
    size, digest : int and str
        Bytes and SHA-256 that its description gives.
    probe : float, optional
        Share of the cells that are searched.
    """

    def __init__(
        self,
        file: Path,
        kind: str,
        shape: tuple[int, int],
        size: int,
        digest: str,
        probe: float | None = None,
    ) -> None:
        _check_bytes(file, kind, size, digest)
        faiss = library(kind)
        try:
            # faiss also makes a table of all cells and codes when it reads kind pq.
            table = 4 * cell_count(shape[0]) * code_count(shape[1]) * 2**CODE_BITS
            with _bounded(faiss, size + table):
                index = faiss.read_index(str(file))
        except RuntimeError as error:
            message = " ".join(str(error).split())
            raise IndexFileError(f"{file}: faiss cannot read it: {message:.200}") from None
        expected = faiss.IndexIVFFlat if kind == "ivf" else faiss.IndexIVFPQ
        if type(index) is not expected or (index.ntotal, index.d) != shape or index.metric_type != 0:
            raise IndexFileError(
                f"{file}: expected an index of kind {kind} with {shape[0]:,} rows of width {shape[1]} and inner "
                f"products, got {type(index).__name__} with {index.ntotal:,} rows of width {index.d}"
            )
        index.nprobe = probed_cells(index.nlist, PROBED_SHARE if probe is None else probe)
        self._index = index

    def search(self, Q: F64, k: int) -> tuple[list[Ints], list[F64]]:
        """Return row numbers and scores of about the k best rows of each unit query (m, p), or of fewer."""
        scores, rows = self._index.search(np.ascontiguousarray(Q, dtype=np.float32), k)
        found = rows >= 0
        return (
            [row[kept].astype(np.int64) for row, kept in zip(rows, found, strict=True)],
            [score[kept].astype(np.float64) for score, kept in zip(scores, found, strict=True)],
        )


def _check_bytes(file: Path, kind: str, size: int, digest: str) -> None:
    try:
        found = os.path.getsize(regular(file))
    except TaskFileError as error:
        raise IndexFileError(str(error)) from None
    with reading(IndexFileError), file.open("rb") as handle:
        begins = handle.read(4)
        handle.seek(0)
        same = (
            found == size
            and begins == MAGIC[kind]
            and hashlib.file_digest(handle, "sha256").hexdigest() == digest
        )
    if not same:
        raise IndexFileError(
            f"{file}: expected {size:,} bytes of kind {kind} with the digest of index.json, got {found:,} that begin "
            f"with {begins!r}; build the index again"
        )


@contextmanager
def _bounded(faiss: Any, size: int) -> Iterator[None]:
    """Let faiss allocate no vector of more bytes than this, where it knows such a limit, as recent versions do."""
    if not hasattr(faiss, "set_deserialization_vector_byte_limit"):
        yield
        return
    before = faiss.get_deserialization_vector_byte_limit()
    faiss.set_deserialization_vector_byte_limit(size)
    try:
        yield
    finally:
        faiss.set_deserialization_vector_byte_limit(before)
