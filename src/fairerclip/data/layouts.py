"""Layouts of embeddings that `open_store` reads: single files, clip-retrieval, shards, and fairerclip stores."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip.data.io.bounded_text import MAX_CHARACTERS, TextColumn, text_lines
from fairerclip.data.io.npy import map_npy
from fairerclip.data.io.npz import Member, npz_members
from fairerclip.data.io.parquet import ParquetRows, id_column, natural, open_parquet, read_ids
from fairerclip.data.io.remote_path import Location, RemoteNpyRows, RemotePath
from fairerclip.data.io.strict_json import read_versioned_json, strict_loads
from fairerclip.data.io.tensors import metadata_texts, open_tensors
from fairerclip.data.provenance import Provenance
from fairerclip.data.store_parts import StorePart, array_part, matrix_part
from fairerclip.errors import StoreError, TaskFileError

Array = NDArray[Any]

MANIFEST, SHARDS, TEXT = "store.json", "shards", "text.safetensors"
FORMAT, FORMAT_VERSION = "fairerclip-store", 1
MANIFEST_KEYS = {"format", "format_version", "provenance", "width", "dtype", "complete"}
ENDINGS = (".npy", ".npz", ".parquet", ".safetensors")
CLIP_RETRIEVAL = {"image": "img_emb", "text": "text_emb"}
METADATA = "metadata"
NAMES = ("embeddings", "image_embeddings", "X")
"""Names of the array of embeddings in a file of several arrays; a single matrix may have any name."""
_JSON_LINES, _JSON_LINE = 1024, 14 * MAX_CHARACTERS  # lines read at once, and the most characters of one
DATACOMP = re.compile(r"(b32|l14)_(img|txt)")


@dataclass(frozen=True)
class Ask:
    """Request of the caller of `open_store`."""

    modality: str = "image"
    key: str | None = None
    id_column: str | None = None
    incomplete: bool = False


def find_parts(path: Location, ask: Ask) -> tuple[list[StorePart], Provenance | None]:
    """Return the parts of the store at a path, and its provenance if the layout records it."""
    if path.is_file():
        return [file_part(path, ask)], None
    if not path.is_dir():
        raise StoreError(f"{path}: expected a file or folder of embeddings, found nothing at this path")
    if (path / MANIFEST).is_file():
        if isinstance(path, RemotePath):
            raise StoreError(
                f"{path}: expected .npy, .parquet or a folder of clip-retrieval in object storage, found a store that "
                "fairerclip embed wrote: copy it to a local disk"
            )
        return _own(path, ask)
    if is_clip_retrieval(path):
        return _clip_retrieval(path, ask), None
    return _shards(path, ask), None


def is_clip_retrieval(path: Location) -> bool:
    """Return whether a folder has the layout of clip-retrieval's inference."""
    folders = any((path / name).is_dir() for name in CLIP_RETRIEVAL.values())
    return folders and not (path / MANIFEST).is_file()


def file_part(file: Location, ask: Ask) -> StorePart:
    """Return the part that a file holds; its ending gives the format."""
    kinds: dict[str, Callable[[Path, Ask], StorePart]] = {
        ".npy": _npy,
        ".npz": _npz,
        ".safetensors": _safetensors,
        ".parquet": _parquet,
    }
    ending = file.suffix.lower()
    if isinstance(file, RemotePath):
        return _remote_part(file, ask)
    if ending not in kinds:
        raise StoreError(f"{file}: expected {', '.join(ENDINGS)} or a folder; got {ending or 'no ending'}")
    with _store_errors():
        return kinds[ending](file, ask)


def _remote_part(file: RemotePath, ask: Ask) -> StorePart:
    """Return the part that a file in object storage holds."""
    ending = file.suffix.lower()
    with _store_errors():
        if ending == ".npy":
            rows = RemoteNpyRows(file)
            return matrix_part(str(file), rows, rows.header.shape, rows.header.dtype)
        if ending == ".parquet":
            return _parquet(file, ask)
    raise StoreError(
        f"{file}: expected .npy, .parquet or a folder of these in object storage; got {ending or 'no ending'}: copy it "
        "to a local disk"
    )


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except TaskFileError as error:
        raise StoreError(str(error)) from error


def _npy(file: Path, ask: Ask) -> StorePart:
    array = map_npy(file)
    return array_part(str(file), lambda: array, array.shape, array.dtype)


def _npz(file: Path, ask: Ask) -> StorePart:
    members = npz_members(file)
    chosen = members[_choose(file, members, ask)]
    ids = members.get("ids")
    if ids is not None and (
        len(ids.shape) != 1 or ids.dtype.kind not in "Uiu" or ids.shape != chosen.shape[:1]
    ):
        raise StoreError(f"{file}: {chosen.shape[0]} embeddings but ids of shape {ids.shape} ({ids.dtype})")
    reader = None if ids is None else lambda: _npz_ids(ids)
    return array_part(f"{file}: {chosen.name}", lambda: _opened(chosen), chosen.shape, chosen.dtype, reader)


def _opened(member: Member) -> Array:
    with _store_errors():
        return member.array()


def _npz_ids(member: Member) -> Array:
    return np.array(_opened(member)).astype(np.str_)


def _choose(file: Path, members: dict[str, Member], ask: Ask) -> str:
    matrices = [name for name, m in members.items() if len(m.shape) == 2 and m.dtype.kind == "f"]
    named = [name for name in NAMES if name in members]
    candidates = [ask.key] if ask.key is not None else named[:1] or matrices
    if len(candidates) == 1 and candidates[0] in members:
        return candidates[0]
    datacomp = [name for name in matrices if DATACOMP.fullmatch(name)]
    example = f'key="{(datacomp or matrices or ["NAME"])[0]}"'
    raise StoreError(
        f"{file}: expected {'the array ' + repr(ask.key) if ask.key else f'one matrix, or one called {NAMES[0]!r}'}; "
        f"found {', '.join(f'{k} {m.shape}' for k, m in members.items()) or 'nothing'}; choose one with {example}"
    )


def _safetensors(file: Path, ask: Ask) -> StorePart:
    tensors, metadata = open_tensors(file, StoreError)
    matrices = [
        n for n, t in tensors.items() if len(t.shape) == 2 and t.kind in ("F16", "BF16", "F32", "F64")
    ]
    candidates = [ask.key] if ask.key is not None else [n for n in NAMES if n in matrices][:1] or matrices
    if len(candidates) != 1 or candidates[0] not in tensors:
        listed = ", ".join(f"{n} {t.kind} {t.shape}" for n, t in tensors.items()) or "nothing"
        raise StoreError(
            f"{file}: expected one matrix of floats, or one called {NAMES[0]!r}; found {listed}; choose one with key="
        )
    tensor = tensors[candidates[0]]
    names = next((metadata[k] for k in ("ids", "prompts") if k in metadata), None)
    ids = None if names is None else lambda: metadata_texts(names, str(file), StoreError)
    array = tensor.array()
    dtype: Any = "bfloat16" if tensor.kind == "BF16" else array.dtype
    return array_part(f"{file}: {tensor.name}", lambda: array, tensor.shape, dtype, ids)


def _parquet(file: Location, ask: Ask) -> StorePart:
    rows = ParquetRows(file, ask.key)
    column = rows.ids(ask.id_column)
    ids = None if column is None else lambda: read_ids(file, column)
    return StorePart(str(file), rows, (rows.rows, rows.width or 0), rows.dtype.name, ids)


def _clip_retrieval(path: Location, ask: Ask) -> list[StorePart]:
    stem = CLIP_RETRIEVAL[ask.modality]
    files = partition_files(path / stem, stem, ".npy")
    if not files:
        raise StoreError(
            f"{path}: expected {stem}/{stem}_0.npy and so on for modality {ask.modality!r}, found none"
        )
    metadata = partition_files(path / METADATA, METADATA, ".parquet")
    if metadata and (lone := sorted(set(files) ^ set(metadata))):
        raise StoreError(
            f"{path}: partition {lone[0]} is in {stem if lone[0] in files else 'metadata'} only; embeddings and "
            "metadata must have the same partitions"
        )
    parts = []
    for number, file in files.items():
        part = file_part(file, replace(ask, key=None))
        if metadata:
            _set_metadata_ids(part, metadata[number], ask, file)
        parts.append(part)
    return parts


def partition_files(folder: Location, stem: str, ending: str) -> dict[int, Any]:
    """Return the files of a folder of clip-retrieval by partition number, in the order of the numbers.

    Names sort differently with and without zero padding.
    """
    found: dict[int, Any] = {}  # paths of the kind of the folder
    if folder.is_dir():
        members: Iterable[Any] = folder.iterdir()
        for file in sorted(members, key=attrgetter("name")):
            match = re.fullmatch(rf"{stem}_([0-9]+){re.escape(ending)}", file.name)
            if match and (number := int(match[1])) in found:
                raise StoreError(
                    f"{folder}: {file.name} and {found[number].name} are both partition {number}"
                )
            if match:
                found[int(match[1])] = file
    return dict(sorted(found.items()))


def _set_metadata_ids(part: StorePart, file: Location, ask: Ask, beside: Location) -> None:
    opened = open_parquet(file)
    if opened.metadata.num_rows != part.shape[0]:
        raise StoreError(
            f"{file} has {opened.metadata.num_rows:,} rows, {beside.name} {part.shape[0]:,}; rows and embeddings must "
            "correspond one to one"
        )
    names = opened.schema_arrow.names
    column = ask.id_column or ("image_path" if "image_path" in names else None)
    column = id_column(file, opened, column)
    part.ids = None if column is None else lambda: read_ids(file, column)


def _shards(path: Location, ask: Ask) -> list[StorePart]:
    files = [
        f
        for f in path.iterdir()
        if f.suffix.lower() in ENDINGS and not f.name.startswith(".") and f.is_file()
    ]
    files.sort(key=lambda f: natural(f.name))
    kinds = {f.suffix.lower() for f in files}
    if not files:
        raise StoreError(f"{path}: expected a folder of embeddings ({', '.join(ENDINGS)}), found none in it")
    beside: dict[str, Location] = {}
    if len(kinds) == 2 and ".parquet" in kinds:  # DataComp, and npy + parquet of embedding-reader
        beside = {f.stem: f for f in files if f.suffix.lower() == ".parquet"}
        files = [f for f in files if f.suffix.lower() != ".parquet"]
    if len({f.suffix.lower() for f in files}) > 1 or (beside and set(beside) != {f.stem for f in files}):
        raise StoreError(
            f"{path}: expected shards of one kind, or each with a parquet file of the same name; found "
            f"{', '.join(sorted(kinds))}"
        )
    parts = [file_part(file, ask) for file in files]
    for file, part in zip(files, parts, strict=True):
        if beside:
            _set_metadata_ids(part, beside[file.stem], ask, file)
    return parts


def read_manifest(path: Path) -> tuple[dict[str, Any], Provenance | None]:
    """Read and check ``store.json`` of a store folder; return it and the provenance in it."""
    file = path / MANIFEST
    manifest = read_versioned_json(file, StoreError, FORMAT, FORMAT_VERSION)
    if set(manifest) != MANIFEST_KEYS:
        raise StoreError(f"{file}: expected the keys {sorted(MANIFEST_KEYS)}, got {sorted(manifest)}")
    width = manifest["width"]
    if (
        not isinstance(width, int)
        or isinstance(width, bool)
        or width < 1
        or manifest["complete"] not in (True, False)
    ):
        raise StoreError(f"{file}: expected width above 0 and complete true or false, got {manifest!r:.200}")
    if manifest["dtype"] not in ("float16", "float32"):
        raise StoreError(f"{file}: expected dtype float16 or float32, got {manifest['dtype']!r}")
    stored = manifest["provenance"]
    return manifest, None if stored is None else Provenance.from_dict(stored)


def _own(path: Path, ask: Ask) -> tuple[list[StorePart], Provenance | None]:
    manifest, provenance = read_manifest(path)
    if ask.modality == "text":
        return [file_part(path / TEXT, ask)], provenance
    if not manifest["complete"] and not ask.incomplete:
        raise StoreError(
            f"{path}: the store is not complete: run fairerclip embed again to finish it, or open it with "
            "incomplete=True"
        )
    parts = []
    for shard, ids in own_shards(path):
        part = _npy(shard, ask)
        part.ids = lambda ids=ids, rows=part.shape[0]: read_id_file(ids, rows)
        if part.shape[1] != manifest["width"]:
            raise StoreError(f"{shard}: expected width {manifest['width']}, got {part.shape[1]}")
        parts.append(part)
    return parts, provenance


def own_shards(path: Path) -> list[tuple[Path, Path]]:
    """Return the committed shards of a store folder, as files of embeddings and of ids.

    A file of ids without its embeddings is not committed yet.
    """
    shards = []
    for file in sorted((path / SHARDS).glob("[0-9]*.npy")):
        ids = file.with_name(f"{file.stem}.ids.txt")
        if not ids.is_file():
            raise StoreError(f"{file}: expected {ids.name} beside it, found none; the store is damaged")
        shards.append((file, ids))
    return shards


def read_id_file(file: Path, rows: int) -> Array:
    """Read the ids (n,) of a shard of n rows: one JSON string per line."""
    ids, count = TextColumn(str(file), "an id", StoreError), 0
    for values in json_lines(file):
        count += len(values)
        if count > rows or not all(isinstance(value, str) for value in values):
            raise StoreError(f"{file}: expected a JSON string per line, one for each of {rows:,} rows")
        ids.add(values)
    return ids.array()


def json_lines(file: Path) -> Iterator[list[Any]]:
    """Yield the values of a file with one JSON value per line, in blocks; an incomplete last line is left out."""
    lines = text_lines(file, StoreError, limit=_JSON_LINE)
    while block := list(itertools.islice(lines, _JSON_LINES)):
        if not block[-1].endswith("\n"):
            block.pop()
        most = _JSON_LINES * (_JSON_LINE + 1) + 2
        values = strict_loads("[" + ",".join(block) + "]", str(file), StoreError, limit=most)
        if len(values) != len(block):
            raise StoreError(f"{file}: expected one JSON value per line")
        yield values
