"""Writing of a store that can be interrupted at any moment and resumed.

The folder holds ``store.json`` (format, provenance, width, whether complete), ``shards/00000.npy`` with
``shards/00000.ids.txt`` (a JSON string per line), ``skipped.jsonl`` (id and reason) and, if there are
prompts, ``text.safetensors``. A shard is committed when its ``.npy`` exists, which is renamed last.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import atomic_file, reading, sync_folder, writing
from fairerclip.data import layouts as layout
from fairerclip.data.io.bounded_text import MAX_LINE
from fairerclip.data.io.npy import map_npy
from fairerclip.data.io.tensors import metadata_texts, open_tensors, write_tensors
from fairerclip.data.provenance import Provenance
from fairerclip.errors import NonFiniteError, OutputExistsError, ProvenanceError, ShapeError, StoreError

SKIPPED = "skipped.jsonl"
SHARD_ROWS = 4096
Array = NDArray[Any]
_IDS = re.compile(r"[0-9]+\.ids\.txt")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class StoreWriter:
    """Writer of embeddings with their ids; committed rows survive a crash and are not written again.

    Parameters
    ----------
    path : path-like
        Folder; an interrupted store of the same provenance in it is resumed.
    width : int
        Width p of a row.
    provenance : Provenance or None
        Model that made the embeddings.
    shard_rows : int
        Rows per shard, and the most rows that a crash can lose. Memory: shard_rows × p.
    dtype : "float32" or "float16"
        Type on disk; float16 halves the size and changes the length of a unit row by up to 1e-4.

    Examples
    --------
    >>> import tempfile
    >>> from fairerclip.data.stores import open_store
    >>> folder = tempfile.TemporaryDirectory()
    >>> with StoreWriter(Path(folder.name) / "emb", width=2, provenance=None) as writer:
    ...     writer.append(["a.jpg", "b.jpg"], np.eye(2, dtype=np.float32))
    ...     writer.skip("c.jpg", "not an image")
    ...     writer.finish()
    >>> open_store(Path(folder.name) / "emb").ids.tolist(), sorted(writer.done)
    (['a.jpg', 'b.jpg'], ['a.jpg', 'b.jpg', 'c.jpg'])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        width: int,
        provenance: Provenance | None,
        shard_rows: int = SHARD_ROWS,
        dtype: str = "float32",
    ) -> None:
        self.path = Path(path)
        if dtype not in ("float32", "float16") or shard_rows < 1 or width < 1:
            raise StoreError(
                "expected dtype float32 or float16 and width and shard_rows above 0, got "
                f"{dtype!r}, {width} and {shard_rows}"
            )
        if provenance is not None and provenance.width != width:
            raise ProvenanceError(
                f"{self.path}: expected the width of the provenance, {provenance}, got width {width}"
            )
        self.width, self.provenance, self.dtype, self.shard_rows = width, provenance, dtype, shard_rows
        self.done: set[str] = set()
        self.complete = False
        self._next = 0
        self._ids: list[str] = []
        self._rows: list[Array] = []
        self._pending: set[str] = set()
        self._closed = False
        with reading(StoreError):
            self._open()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, ids: Sequence[str], X: Any) -> None:
        """Add rows X (m, p) with ids (m,); they are committed when a shard is full, on `close` or `finish`."""
        ids, rows = [str(name) for name in ids], np.asarray(X)
        if rows.ndim != 2 or rows.shape != (len(ids), self.width) or rows.dtype.kind != "f":
            raise ShapeError(
                f"{self.path}: expected floats of shape ({len(ids)}, {self.width}), one row per id; got "
                f"{rows.dtype} of shape {rows.shape}"
            )
        with np.errstate(over="ignore"):
            rows = rows.astype(self.dtype)
        if not (finite := np.isfinite(rows).all(axis=1)).all():
            raise NonFiniteError(
                f"{self.path}: the embedding of {ids[int(np.argmin(finite))]!r} holds NaN or infinity in {self.dtype}; "
                "skip it instead"
            )
        if len(set(ids)) < len(ids) or any(self._known(name) for name in ids):
            seen: set[str] = set()
            repeated = next(
                name
                for name in ids
                if self._known(name) or name in seen or seen.add(name)  # type: ignore[func-returns-value]
            )
            raise StoreError(f"{self.path}: {repeated!r} is already in the store; give each id once")
        if any("\0" in name for name in ids):
            raise StoreError(f"{self.path}: expected ids without NUL characters")
        self._reopen()
        self._ids += ids
        self._pending.update(ids)
        self._rows.append(rows)
        while len(self._ids) >= self.shard_rows:
            self._commit(self.shard_rows)

    def skip(self, id: str, reason: str) -> None:  # noqa: A002 - the key of the file format
        """Record that an image has no embedding, and the reason; it counts as done when the store is resumed."""
        if self._known(id):
            raise StoreError(f"{self.path}: {id!r} is already in the store; give each id once")
        self._reopen()
        line = json.dumps({"id": id, "reason": reason}).encode() + b"\n"
        with writing(self.path), (self.path / SKIPPED).open("ab") as handle:
            handle.write(line)
            handle.flush()
            os.fsync(handle.fileno())
        self.done.add(id)

    def finish(self) -> None:
        """Commit the remaining rows and mark the store complete."""
        self._flush()
        self._write_manifest(complete=True)

    def close(self) -> None:
        """Commit the remaining rows; the store stays incomplete unless `finish` was called."""
        if not self._closed:
            self._closed = True
            self._flush()

    def write_text(self, prompts: Sequence[str], T: Any, name: str = "text") -> Path:
        """Write prompts (m,) and their embeddings T (m, p) to ``NAME.safetensors``; an earlier file is replaced."""
        if not _NAME.fullmatch(name):
            raise StoreError(f"{self.path}: expected a name of letters, digits, - and _, got {name!r}")
        text = np.asarray(T)
        if text.shape != (len(prompts), self.width) or text.dtype.kind != "f" or not len(prompts):
            raise ShapeError(
                f"{self.path}: expected floats of shape ({len(prompts)}, {self.width}), one row per prompt; got "
                f"{text.dtype} of shape {text.shape}"
            )
        file = self.path / f"{name}.safetensors"
        arrays = {"embeddings": text.astype(np.float32)}
        return write_tensors(file, arrays, {"prompts": json.dumps(list(prompts))}, overwrite=True)

    def _known(self, name: str) -> bool:
        return name in self.done or name in self._pending

    def _open(self) -> None:
        manifest = self.path / layout.MANIFEST
        if self.path.exists() and not self.path.is_dir():
            raise OutputExistsError(f"{self.path} is a file; give the name of a folder")
        if self.path.is_dir() and not manifest.is_file() and not _only_remains(self.path):
            raise OutputExistsError(
                f"{self.path} exists and is not a fairerclip store, so nothing was written; choose another folder"
            )
        self._check_links()
        with writing(self.path):
            (self.path / layout.SHARDS).mkdir(parents=True, exist_ok=True)
        if manifest.is_file():
            self._resume()
        else:
            self._write_manifest(complete=False)

    def _check_links(self) -> None:
        """Raise if a part of the store is a link, so that no file outside the folder is changed."""
        shards = self.path / layout.SHARDS
        parts = [self.path / name for name in (layout.MANIFEST, SKIPPED)]
        parts += [shards, *(shards.iterdir() if shards.is_dir() and not shards.is_symlink() else ())]
        link = next((part for part in parts if part.is_symlink()), None)
        if link is not None:
            raise StoreError(
                f"{link} is a link; a store that is written must hold plain files: copy it in its place"
            )

    def _resume(self) -> None:
        manifest, provenance = layout.read_manifest(self.path)
        if provenance != self.provenance or manifest["width"] != self.width:
            raise ProvenanceError(
                f"{self.path} holds embeddings of {provenance or 'unknown provenance'}, not of "
                f"{self.provenance or 'unknown provenance'}; choose another folder"
            )
        if manifest["dtype"] != self.dtype:
            raise StoreError(
                f"{self.path} is of {manifest['dtype']}, not {self.dtype}; choose another folder"
            )
        shards = self.path / layout.SHARDS
        committed = layout.own_shards(self.path)
        skipped = _skipped_lines(self.path / SKIPPED)  # before anything is changed
        kept = {ids for _, ids in committed}
        for ids in shards.iterdir():
            if _IDS.fullmatch(ids.name) and ids not in kept:  # without embeddings, so not committed
                ids.unlink()
        for shard, ids in committed:
            rows = map_npy(shard)
            names = layout.read_id_file(ids, len(rows))
            if rows.shape != (len(names), self.width):
                raise StoreError(
                    f"{shard}: expected shape {(len(names), self.width)} by its ids and width, got {rows.shape}"
                )
            self.done.update(names.tolist())
            self._next = int(shard.stem) + 1
        _repair_skipped(self.path / SKIPPED)
        self.done.update(name for name, _ in skipped)
        self.complete = bool(manifest["complete"])

    def _reopen(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path}: this writer is closed; open a new one")
        if self.complete:
            self._write_manifest(complete=False)

    def _flush(self) -> None:
        while self._ids:
            self._commit(min(len(self._ids), self.shard_rows))

    def _commit(self, count: int) -> None:
        rows = self._rows[0] if len(self._rows) == 1 else np.concatenate(self._rows)
        ids, shard = self._ids[:count], rows[:count]
        folder, stem = self.path / layout.SHARDS, f"{self._next:05d}"
        text = "".join(json.dumps(name) + "\n" for name in ids).encode()
        with atomic_file(folder / f"{stem}.ids.txt", overwrite=False) as handle:
            handle.write(text)
        with atomic_file(folder / f"{stem}.npy", overwrite=False) as handle:
            np.lib.format.write_array(handle, np.ascontiguousarray(shard), allow_pickle=False)
        sync_folder(folder)
        self._next += 1
        self._ids, self._rows = self._ids[count:], [rows[count:]]
        self._pending.difference_update(ids)
        self.done.update(ids)

    def _write_manifest(self, *, complete: bool) -> None:
        manifest = {
            "format": layout.FORMAT,
            "format_version": layout.FORMAT_VERSION,
            "provenance": None if self.provenance is None else self.provenance.to_dict(),
            "width": self.width,
            "dtype": self.dtype,
            "complete": complete,
        }
        with atomic_file(self.path / layout.MANIFEST, overwrite=True) as handle:
            handle.write(json.dumps(manifest, indent=1).encode())
        self.complete = complete


def _only_remains(path: Path) -> bool:
    """Return whether a folder is empty, or was left by a writer that was killed before it wrote the manifest."""
    shards = path / layout.SHARDS
    names = {f.name for f in path.iterdir() if not f.name.startswith(f".{layout.MANIFEST}.")}
    return names <= {layout.SHARDS} and not (shards.is_dir() and any(shards.iterdir()))


def _repair_skipped(file: Path) -> None:
    """Remove the last line of the list of skipped images if it is incomplete."""
    if not file.is_file():
        return
    with file.open("rb+") as handle:
        size = handle.seek(0, os.SEEK_END)
        handle.seek(max(0, size - MAX_LINE))
        tail = handle.read()
        handle.truncate(size - len(tail) + tail.rfind(b"\n") + 1)


def _skipped_lines(file: Path) -> list[tuple[str, str]]:
    """Return id and reason of each skipped image; an incomplete last line is left out."""
    try:
        file.lstat()
    except FileNotFoundError:
        return []
    entries = [entry for block in layout.json_lines(file) for entry in block]
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(key), str) for key in ("id", "reason")
        ):
            raise StoreError(f"{file}, line {number}: expected an id and a reason, got {entry!r:.80}")
    return [(entry["id"], entry["reason"]) for entry in entries]


@reading(StoreError)
def read_skipped(path: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """Return the images of a store that have no embedding, with the reason."""
    file = Path(path) / SKIPPED
    return _skipped_lines(file)


@reading(StoreError)
def read_text(path: str | os.PathLike[str], name: str = "text") -> tuple[list[str], NDArray[np.float32]]:
    """Read the prompts (m,) and their embeddings T (m, p) that `StoreWriter.write_text` wrote into a store."""
    if not _NAME.fullmatch(name):
        raise StoreError(f"{path}: expected a name of letters, digits, - and _, got {name!r}")
    file = Path(path) / f"{name}.safetensors"
    tensors, metadata = open_tensors(file, StoreError)
    if "embeddings" not in tensors or "prompts" not in metadata:
        raise StoreError(
            f"{file}: expected a tensor 'embeddings' and prompts, got {', '.join(tensors) or 'none'}"
        )
    prompts = metadata_texts(metadata["prompts"], str(file), StoreError)
    tensor = tensors["embeddings"]
    if len(tensor.shape) != 2 or prompts.shape != tensor.shape[:1] or tensor.kind != "F32":
        raise StoreError(
            f"{file}: expected a row of F32 per prompt, got {tensor.kind} of shape {tensor.shape} and "
            f"{prompts.size} prompts"
        )
    return prompts.tolist(), np.array(tensor.array(), dtype=np.float32)
