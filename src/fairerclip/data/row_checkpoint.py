"""Sums of a pass that are saved from time to time, so that interrupted work goes on where it stopped."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.arrays import to_numpy
from fairerclip.data.io.tensors import open_tensors, write_tensors
from fairerclip.data.row_pass import Progress, RowSum, is_remote, row_blocks, row_threads, sum_rows
from fairerclip.errors import CheckpointError, ParameterError

SEGMENT_ROWS = 1 << 18
"""Rows between two moments at which sums can be saved; each segment is summed in threads, then added."""
SAVE_SECONDS = 30.0
"""Time between two saved files."""
IDENTITY_ROWS = 64
"""Rows by which saved sums are told from those of another collection."""
FORMAT, FORMAT_VERSION = "fairerclip-sums", "1"

Arrays = Mapping[str, NDArray[Any]]


class SavedArrays(Protocol):
    """Anything that can be saved as arrays."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all sums as arrays; those without rows have none."""

    def restore(self, arrays: Arrays) -> None:
        """Take over saved sums; raise ValueError or KeyError if they are not of this kind and shape."""


class SavedSum(RowSum, SavedArrays, Protocol):
    """Accumulator that can be saved as arrays."""


Saved = TypeVar("Saved", bound=SavedSum)


class RowCheckpoint:
    """A file with the sums of the first rows of a pass, or with the state of iterations (`solver.descent`).

    Parameters
    ----------
    path : path-like
        File ``.safetensors``; it is there while a pass is under way, and after an interrupt.
    identity : str
        Digest of all that the sums depend on; the file of another fit is refused.
    seconds : float
        Time between two saved files.
    """

    def __init__(self, path: Any, identity: str, *, seconds: float = SAVE_SECONDS) -> None:
        self.path, self._identity, self._seconds = Path(path), identity, seconds
        if self.path.suffix != ".safetensors":
            raise ParameterError(
                f"checkpoint must be a file name that ends with .safetensors; got {self.path}"
            )
        self._saved_at = time.monotonic()

    def restore(self, total: SavedArrays, purpose: str) -> int:
        """Take over saved sums, and return the number of rows that they are of; 0 if there are none for this pass."""
        try:
            if not self.path.exists():
                return 0
        except OSError as problem:
            raise CheckpointError(f"{self.path} cannot be read: {problem.strerror}") from problem
        tensors, metadata = open_tensors(self.path, CheckpointError)
        if (metadata.get("format"), metadata.get("format_version")) != (FORMAT, FORMAT_VERSION):
            raise CheckpointError(f"{self.path}: expected saved sums of this version, found another file")
        if metadata.get("identity") != self._identity:
            raise CheckpointError(
                f"{self.path} has the sums of another fit: other rows, labels, prompts or parameters. Give the same as "
                "then to go on with it, or remove the file to begin anew"
            )
        if metadata.get("pass") != purpose:
            return 0
        try:
            total.restore({name: np.array(tensor.array()) for name, tensor in tensors.items()})
            return int(metadata["rows"])
        except (KeyError, ValueError, TypeError) as problem:
            raise CheckpointError(
                f"{self.path}: damaged sums ({problem}); remove the file to begin anew"
            ) from problem

    def save(self, total: SavedArrays, purpose: str, rows: int) -> None:
        """Write the sums if the last file is old enough."""
        if time.monotonic() - self._saved_at < self._seconds:
            return
        metadata = {"format": FORMAT, "format_version": FORMAT_VERSION, "identity": self._identity}
        write_tensors(
            self.path, total.to_arrays(), {**metadata, "pass": purpose, "rows": str(rows)}, overwrite=True
        )
        self._saved_at = time.monotonic()

    def remove(self) -> None:
        """Remove the file: the fit is done."""
        self.path.unlink(missing_ok=True)


def digest(*parts: Any) -> str:
    """Return the SHA-256 of arrays and texts, in order."""
    total = hashlib.sha256()
    for part in parts:
        value = (
            np.ascontiguousarray(part)
            if isinstance(part, np.ndarray)
            else np.frombuffer(str(part).encode(), "u1")
        )
        total.update(f"{value.dtype.str}{value.shape}".encode())
        total.update(value.view("u1").data if value.size else b"")
    return total.hexdigest()


def digest_rows(X: Any) -> str:
    """Return the SHA-256 of the number of rows (n, p), and of some of them."""
    return digest(str(X.shape), to_numpy(X[np.linspace(0, X.shape[0] - 1, IDENTITY_ROWS).astype(np.int64)]))


def sum_rows_saved(
    X: Any,
    start: Callable[[], Saved],
    columns: Sequence[Any],
    checkpoint: RowCheckpoint,
    purpose: str,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Saved:
    """Do what `sum_rows` does, segment by segment, and save the sums in between; go on with what was saved before.

    With the same number of threads, the result is the same whether the pass was interrupted or not.
    """
    if is_remote(X):
        raise ParameterError(
            "checkpoint= is for rows in this process; a cluster repeats what a lost worker had"
        )
    n = int(X.shape[0])
    total = start()
    done = checkpoint.restore(total, purpose)
    blocks = list(getattr(X, "kept_blocks", None) or row_blocks(n, threads=threads or row_threads()))
    while blocks:
        segment: list[slice] = []
        while blocks and (not segment or blocks[0].stop - segment[0].start <= SEGMENT_ROWS):
            segment.append(blocks.pop(0))
        first, stop = segment[0].start, segment[-1].stop
        if first < done < stop:
            raise CheckpointError(
                f"{checkpoint.path}: {done} rows do not end a segment; remove the file to begin anew"
            )
        if stop <= done:
            continue
        rows = _Segment(X, segment)
        total.merge(sum_rows(rows, start, [column[first:stop] for column in columns], threads=threads))
        if progress is not None:
            progress(stop, n)
        if stop < n:
            checkpoint.save(total, purpose, stop)
    return total


class _Segment:
    """Consecutive blocks of rows as rows of their own."""

    def __init__(self, X: Any, blocks: Sequence[slice]) -> None:
        self._X, self._first = X, blocks[0].start
        self.shape = (blocks[-1].stop - self._first, int(X.shape[1]))
        self.kept_blocks = [slice(b.start - self._first, b.stop - self._first) for b in blocks]

    def __getitem__(self, block: slice) -> Any:
        return self._X[self._first + block.start : self._first + block.stop]
