"""`mitigate_store`: the mitigated copy of a collection on disk, written block by block."""

from __future__ import annotations

import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import (
    atomic_file,
    check_folder,
    check_free,
    is_leftover,
    local_output,
    reading,
    sole_use,
)
from fairerclip.applying.mitigated_rows import (
    as_mitigator,
    as_store,
    check_widths,
    checked_blocks,
    mitigator_digest,
    warn_of_collection,
)
from fairerclip.applying.mitigation_marker import MARKER, MitigationMarker
from fairerclip.data import layouts
from fairerclip.data.cluster_rows import run_calls
from fairerclip.data.io.npy import DEFAULT_LIMITS, map_npy
from fairerclip.data.io.remote_path import as_location
from fairerclip.data.stores import EmbeddingStore, StoreOrigin, open_store
from fairerclip.data.writer import StoreWriter
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import OutputExistsError, ParameterError, StoreError, TaskFileError

ENDINGS = (".npy", ".npz")
IMAGES, TEXTS = layouts.CLIP_RETRIEVAL["image"], layouts.CLIP_RETRIEVAL["text"]
_WRITTEN = r"[a-z_]+_[0-9]+\.(npy|parquet)|.+\.json"
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

    def blocks(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the number of the first row, and mapped rows (b, p), block by block."""
        for first, rows in checked_blocks(self.store, start, stop):
            yield first, self.model.fitted_.map.transform(rows, unit=self.unit)
            self.tell(first + len(rows))

    def tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, len(self.store))


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

    A folder can be interrupted at any moment, and the same call continues it; one that was written with another model,
    setting or source is an error. Named warnings tell, before writing, if the collection differs from that of the fit.

    Parameters
    ----------
    model : EmbeddingMitigator, str or Path
        A fitted mitigator, or its folder.
    source : str, Path, EmbeddingStore or array of shape (n, p)
        Image embeddings: anything that `open_store` opens, or a task.
    output : str or Path
        ``.npy``, ``.npz`` (arrays ``embeddings`` and ``ids``), or a folder: in the layout of clip-retrieval if the
        source has it, with metadata and text embeddings copied, otherwise as `StoreWriter` writes it.
    unit : bool, optional
        Scale rows to unit length, which indexes of cosines need. Default: the mitigator's ``unit``.
    split : str
        Split of a task to use.
    overwrite : bool
        Replace a file. A folder is never replaced.
    progress : callable, optional
        Called after each block with the numbers of rows done, and of all rows.
    client : distributed.Client, optional
        Client of a Dask cluster whose workers see both folders, of clip-retrieval: each partition is one task.

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
    partitioned = not path.suffix and isinstance(source, Path) and layouts.is_clip_retrieval(source)
    _check_cluster_layout(client, partitioned, source, path)
    run = _Copy(fitted, store, chosen, progress, client)
    warn_of_collection(fitted, store)
    began = time.perf_counter()
    if path.suffix:
        written = _write_file(run, path, overwrite)
    elif partitioned:
        written = _write_partitions(run, source, path)
    else:
        written = _write_store(run, path, source)
    return MitigationReport(str(path), len(store), written, chosen, time.perf_counter() - began)


def _check_cluster_layout(client: Any, partitioned: bool, source: Any, path: Path) -> None:
    """Raise if a cluster should write something else than partitions."""
    if client is not None and not partitioned:
        raise ParameterError(
            "a cluster writes partitions: the source must be a folder of clip-retrieval, and the output a folder; got "
            f"{source} and {path}"
        )


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
            _write_rows(handle, run, 0, shape, dtype)
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
            _write_rows(member, run, 0, shape, dtype)
        if ids is not None:
            with archive.open(zipfile.ZipInfo("ids.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, ids, allow_pickle=False)
    return shape[0]


def _write_rows(
    handle: IO[bytes], run: _Copy, start: int, shape: tuple[int, int], dtype: np.dtype[Any]
) -> None:
    """Write the header of an ``.npy``, and the mapped rows of the store from ``start`` on."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(handle, header)
    for _, rows in run.blocks(start, start + shape[0]):
        handle.write(np.ascontiguousarray(rows, dtype=dtype).data)


# The layout of clip-retrieval -------------------------------------------------------------------------


def _write_partitions(run: _Copy, source: Path, path: Path) -> int:
    """Write a folder of clip-retrieval, and return the number of rows written; finished partitions are kept."""
    images = layouts.partition_files(source / IMAGES, IMAGES, ".npy")
    with _store_errors():
        shapes = {file.name: map_npy(file) for file in images.values()}
    files: dict[str, list[Any]] = {
        name: [len(rows), rows.dtype.newbyteorder("=").name] for name, rows in shapes.items()
    }
    marker = _marker(run, files)
    copied = [*layouts.partition_files(source / layouts.METADATA, layouts.METADATA, ".parquet").values()]
    copied += layouts.partition_files(source / TEXTS, TEXTS, ".npy").values()
    with _resumable(path, marker):
        written = start = 0
        left: list[_Partition] = []
        for name, (rows, dtype) in files.items():
            shape = (rows, run.store.shape[1])
            if not _is_written(path / IMAGES / name, shape, dtype):
                left.append(_Partition(path / IMAGES / name, start, shape, dtype))
                written += rows
            start += rows
        _write_all(run, left, len(run.store) - written)
        for file in copied:
            _copy(file, path / file.parent.name / file.name)
        replace(marker, complete=True).write(path)
    return written


class _Partition(NamedTuple):
    """File to write, its first row in the store, its shape and type."""

    target: Path
    start: int
    shape: tuple[int, int]
    dtype: str


def _write_all(run: _Copy, left: list[_Partition], done: int) -> None:
    """Write partitions one after another, or each on a worker of a cluster; ``done`` rows are written already."""
    run.tell(done)
    if run.client is None:
        for partition in left:
            _write_partition(run, partition)
        return
    work = [partial(_write_on_worker, run.model, run.store.origin, run.unit, partition) for partition in left]
    for number in run_calls(run.client, work):
        done += left[number].shape[0]
        run.tell(done)


def _write_on_worker(
    model: EmbeddingMitigator, origin: StoreOrigin | None, unit: bool, partition: _Partition
) -> None:
    if origin is None:
        raise AssertionError("a folder of partitions was opened by its path")
    store = open_store(origin.path, **origin.options)
    if (
        not partition.target.exists()
    ):  # a worker that died after it had written the file is followed by another one
        _write_partition(_Copy(model, store, unit, None), partition)


def _write_partition(run: _Copy, partition: _Partition) -> None:
    with atomic_file(partition.target, overwrite=False) as handle:
        _write_rows(handle, run, partition.start, partition.shape, np.dtype(partition.dtype))


@contextmanager
def _resumable(path: Path, marker: MitigationMarker) -> Iterator[None]:
    """Lock a folder, check or write its marker, and remove what a killed process left."""
    with sole_use(path):
        if path.is_dir() and any(path.iterdir()) and not (path / MARKER).is_file():
            raise OutputExistsError(
                f"{path} exists and holds no mitigated embeddings, so nothing was written; choose another folder"
            )
        if not (path / MARKER).is_file() or not marker.check_resumed(path):
            path.mkdir(exist_ok=True)
            marker.write(path)
        for folder in (path, *(path / name for name in (IMAGES, TEXTS, layouts.METADATA))):
            _check_plain(folder)
            for file in folder.iterdir() if folder.is_dir() else ():
                if is_leftover(file, _WRITTEN):  # of a process that was killed
                    file.unlink()
        yield


def _check_plain(folder: Path) -> None:
    """Raise if a folder is a link, so that no file outside of the output is changed."""
    if folder.is_symlink():
        raise OutputExistsError(f"{folder} is a link; give a folder that holds plain folders")


def _is_written(target: Path, shape: tuple[int, int], dtype: str) -> bool:
    """Return whether a partition is there; raise if it is not what was written."""
    if not target.is_file() and not target.is_symlink():
        return False
    with _store_errors():
        rows = map_npy(target)
    if rows.shape != shape or rows.dtype != dtype:
        raise StoreError(
            f"{target}: expected {dtype} of shape {shape}, got {rows.dtype} of shape {rows.shape}; remove it, and it "
            "is written again"
        )
    return True


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except TaskFileError as error:
        raise StoreError(str(error)) from error


@reading(StoreError)
def _copy(file: Path, target: Path) -> None:
    """Copy a file byte for byte, unless it was copied before."""
    if not file.is_file():
        raise StoreError(f"{file}: expected a regular file, found a folder or a device")
    if target.is_file() and target.stat().st_size == file.stat().st_size:
        return
    with file.open("rb") as origin, atomic_file(target, overwrite=False) as handle:
        shutil.copyfileobj(origin, handle, 1 << 20)


def _marker(run: _Copy, files: dict[str, list[Any]]) -> MitigationMarker:
    rows, width = run.store.shape
    return MitigationMarker(mitigator_digest(run.model), run.unit, rows, width, files)


# A store of fairerclip ---------------------------------------------------------------------------------


def _write_store(run: _Copy, path: Path, source: Any) -> int:
    """Write or continue a store folder, and return the number of rows written; without ids, row numbers are used."""
    store, marker = run.store, _marker(run, {})
    dtype = "float16" if stored_type(store) == np.float16 else "float32"
    if (path / MARKER).is_file() and marker.check_resumed(path):
        run.tell(len(store))
        return 0
    with StoreWriter(path, width=store.shape[1], provenance=store.provenance, dtype=dtype) as writer:
        if writer.done and not (path / MARKER).is_file():
            raise OutputExistsError(
                f"{path} is a store that mitigate_store did not write, so nothing was written; choose another folder"
            )
        marker.write(path)
        done = len(writer.done)
        run.tell(done)
        for first, rows in run.blocks(done, len(store)):
            numbers = range(first, first + len(rows))
            ids = store.ids
            names = [str(number) for number in numbers] if ids is None else ids[numbers.start : numbers.stop]
            writer.append([str(name) for name in names], rows)
        if isinstance(source, Path) and (text := source / layouts.TEXT).is_file():
            _copy(text, path / layouts.TEXT)
        writer.finish()
        replace(marker, complete=True).write(path)
    return len(store) - done
