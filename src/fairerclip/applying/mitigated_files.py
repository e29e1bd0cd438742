"""`mitigate_store`: the mitigated copy of a collection on disk, written block by block."""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import atomic_file, check_folder, check_free, local_output, reading
from fairerclip._util.types import Floats
from fairerclip.applying.mitigated_rows import (
    as_mitigator,
    as_store,
    check_widths,
    checked_rows,
    mitigator_digest,
    warn_of_collection,
    warn_of_zero_rows,
)
from fairerclip.data import layouts
from fairerclip.data.cluster_rows import run_in_order
from fairerclip.data.io.npy import DEFAULT_LIMITS
from fairerclip.data.io.remote_path import as_location
from fairerclip.data.io.strict_json import read_versioned_json
from fairerclip.data.row_pass import BLOCK_ROWS
from fairerclip.data.stores import EmbeddingStore, StoreOrigin, open_store
from fairerclip.data.writer import StoreWriter
from fairerclip.embedding.fitted_map import EmbeddingMap
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import OutputExistsError, ParameterError, StoreError

ENDINGS = (".npy", ".npz")
MARKER = "mitigated.json"
"""File of a folder of mitigated rows that says with which model it is written, so that no other one continues it."""
FORMAT, FORMAT_VERSION = "fairerclip-mitigated", 1
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class MitigationReport:
    """What `mitigate_store` did.

    Attributes
    ----------
    output : str
        File or folder of the mitigated embeddings.
    rows : int
        Rows of the collection.
    written : int
        Rows that this call wrote; the others were there already.
    unit : bool
        Whether rows are scaled to unit length.
    seconds : float
        Time of reading, mapping and writing.
    """

    output: str
    rows: int
    written: int
    unit: bool
    seconds: float

    @property
    def rate(self) -> float:
        """Rows written per second."""
        return self.written / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Copy:
    """One run: the model and its setting, the rows that are read, and what is called after each block."""

    model: EmbeddingMitigator
    store: EmbeddingStore
    unit: bool
    progress: Progress | None
    client: Any = None

    def blocks(self, start: int = 0) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the number of the first row, and mapped rows (b, p), block by block, from row ``start`` on."""
        n, zero = len(self.store), list[int]()
        blocks = [slice(first, min(first + BLOCK_ROWS, n)) for first in range(start, n, BLOCK_ROWS)]
        shared = (self.model.fitted_.map, self.unit)
        found: Iterator[tuple[Floats, list[int]]]
        if self.client is None:
            found = (_mapped(*shared, self.store, block) for block in blocks)
        else:
            found = run_in_order(self.client, _mapped, (*shared, _Reopened(self.store.origin)), blocks)
        for block, (rows, none) in zip(blocks, found, strict=True):
            yield block.start, rows
            zero += none
            self.tell(block.stop)
        warn_of_zero_rows(self.store, zero)

    def tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, len(self.store))


class _Reopened:
    """A store that is opened by its path where this is unpickled."""

    def __init__(self, origin: StoreOrigin | None) -> None:
        self._origin = origin

    def __reduce__(self) -> Any:
        return _open, (self._origin,)


def _open(origin: StoreOrigin) -> EmbeddingStore:
    return open_store(origin.path, **origin.options)


def _mapped(
    row_map: EmbeddingMap, unit: bool, store: EmbeddingStore, block: slice
) -> tuple[Floats, list[int]]:
    """Return mapped rows of a block, and the numbers of those that are zero."""
    rows, zero = checked_rows(store, block.start, block.stop)
    return row_map.transform(rows, unit=unit), zero


def mitigate_store(
    model: Any,
    source: Any,
    output: str | Path,
    *,
    unit: bool | None = None,
    split: str = "test",
    overwrite: bool = False,
    progress: Progress | None = None,
    client: Any = None,
) -> MitigationReport:
    """Write the mitigated copy of a collection: the same rows in the same order, mapped by a fitted mitigator.

    A folder can be interrupted at any moment, and the same call continues it, also when rows were added to the
    collection; one that was written with another model, setting or source is an error. Named warnings tell, before
    writing, if the collection differs from that of the fit.

    Parameters
    ----------
    model : EmbeddingMitigator, str or Path
        A fitted mitigator, or its folder.
    source : str, Path, EmbeddingStore or array of shape (n, p)
        Image embeddings: anything that `open_store` opens, or a task.
    output : str or Path
        ``.npy``, ``.npz`` (arrays ``embeddings`` and ``ids``), or a folder as `StoreWriter` writes it, with the text
        embeddings of a store that has some.
    unit : bool, optional
        Scale rows to unit length, which indexes of cosines need. Default: the mitigator's ``unit``.
    split : str
        Split of a task to use.
    overwrite : bool
        Replace a file. A folder is never replaced.
    progress : callable, optional
        Called after each block with the numbers of rows done, and of all rows.
    client : distributed.Client, optional
        Client of a Dask cluster whose workers read and map the rows; they must see the collection.

    Returns
    -------
    MitigationReport
        Rows, rows written now, and time. O(n·p·k) time for k sensitive values; memory of one block.
    """
    path = local_output(output)
    fitted = as_mitigator(model)
    _check_output(path, overwrite)
    source = as_location(source) if isinstance(source, str) else source
    store = as_store(source, split)
    check_widths(fitted, store)
    chosen = fitted.unit if unit is None else unit
    if client is not None and (store.origin is None or store.origin.rows is not None):
        raise ParameterError(
            f"workers of a cluster open a collection by its path; got {store!r}, rows of this process"
        )
    run = _Copy(fitted, store, chosen, progress, client)
    warn_of_collection(fitted, store)
    began = time.perf_counter()
    written = _write_file(run, path, overwrite) if path.suffix else _write_store(run, path, source)
    return MitigationReport(str(path), len(store), written, chosen, time.perf_counter() - began)


def _check_output(path: Path, overwrite: bool) -> None:
    """Raise before the work if the output cannot be written."""
    if path.suffix in ENDINGS:
        check_free(path, overwrite)
    elif path.suffix:
        raise ParameterError(
            f"the output must end in {' or '.join(ENDINGS)}, or be the name of a folder, without an ending; got "
            f"{path.name!r}"
        )
    else:
        check_folder(path, overwrite=True)


def stored_type(store: EmbeddingStore) -> np.dtype[Any]:
    """Return the type of the rows of one file: that of the source, or the widest of several; bfloat16 gives float32."""
    names = store.dtype_on_disk.replace("bfloat16", "float32").split(", ")
    return np.result_type(*(np.dtype(name) for name in names))


# One file -------------------------------------------------------------------------------------------


def _write_file(run: _Copy, path: Path, overwrite: bool) -> int:
    shape, dtype = run.store.shape, stored_type(run.store)
    if path.suffix == ".npy":
        with atomic_file(path, overwrite=overwrite) as handle:
            _write_rows(handle, run, dtype)
        return shape[0]
    ids = run.store.ids
    size = shape[0] * shape[1] * dtype.itemsize + (0 if ids is None else ids.nbytes)
    if size >= DEFAULT_LIMITS.npz_bytes:
        raise ParameterError(
            f"{path}: the embeddings take {size:,} bytes, and an .npz of more than {DEFAULT_LIMITS.npz_bytes:,} is not "
            "read again: write a folder or .npy"
        )
    with atomic_file(path, overwrite=overwrite) as handle, zipfile.ZipFile(handle, "w") as archive:
        # ZipInfo has a fixed date, so that equal rows make equal files.
        with archive.open(zipfile.ZipInfo("embeddings.npy"), "w", force_zip64=True) as member:
            _write_rows(member, run, dtype)
        if ids is not None:
            with archive.open(zipfile.ZipInfo("ids.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, ids, allow_pickle=False)
    return shape[0]


def _write_rows(handle: IO[bytes], run: _Copy, dtype: np.dtype[Any]) -> None:
    """Write an ``.npy`` of the mapped rows."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": run.store.shape}
    np.lib.format.write_array_header_1_0(handle, header)
    for _, rows in run.blocks():
        handle.write(np.ascontiguousarray(rows, dtype=dtype).data)


# A folder -------------------------------------------------------------------------------------------


def _write_store(run: _Copy, path: Path, source: Any) -> int:
    """Write or continue a store folder, and return the number of rows written; without ids, row numbers are used."""
    store, marker = run.store, path / MARKER
    dtype = "float16" if stored_type(store) == np.float16 else "float32"
    values = {"model": mitigator_digest(run.model), "unit": run.unit}
    known = marker.is_file()
    if known:
        _check_marker(marker, values)
    with StoreWriter(path, width=store.shape[1], provenance=store.provenance, dtype=dtype) as writer:
        done = len(writer.done)
        if done and not known:
            raise OutputExistsError(
                f"{path} is a store that mitigate_store did not write, so nothing was written; choose another folder"
            )
        if done > len(store) or writer.done != set(_names(store, 0, done)):
            raise OutputExistsError(
                f"{path} was written from another collection: its {done:,} ids are not the first ones of "
                f"{store.path}, so nothing was written; choose another folder, or remove it"
            )
        if not known:
            with atomic_file(marker, overwrite=False) as handle:
                text = {"format": FORMAT, "format_version": FORMAT_VERSION, **values}
                handle.write(json.dumps(text, indent=1).encode())
        run.tell(done)
        if writer.complete and done == len(store):
            return 0
        for first, rows in run.blocks(done):
            writer.append(_names(store, first, first + len(rows)), rows)
        if isinstance(source, Path) and (text_file := source / layouts.TEXT).is_file():
            _copy(text_file, path / layouts.TEXT)
        writer.finish()
    return len(store) - done


def _check_marker(file: Path, values: dict[str, Any]) -> None:
    """Raise if a folder was begun with another model or setting."""
    earlier = read_versioned_json(file, StoreError, FORMAT, FORMAT_VERSION)
    for name, difference in (("model", "another model"), ("unit", "another setting of unit")):
        if earlier.get(name) != values[name]:
            raise OutputExistsError(
                f"{file.parent} was written with {difference}, so nothing was written; choose another folder, or "
                "remove it"
            )


def _names(store: EmbeddingStore, start: int, stop: int) -> list[str]:
    """Return the ids of rows of a store, or their numbers."""
    if store.ids is None:
        return [str(number) for number in range(start, stop)]
    return [str(name) for name in store.ids[start:stop]]


@reading(StoreError)
def _copy(file: Path, target: Path) -> None:
    """Copy a file byte for byte."""
    with file.open("rb") as origin, atomic_file(target, overwrite=True) as handle:
        shutil.copyfileobj(origin, handle, 1 << 20)
