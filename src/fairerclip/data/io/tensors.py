"""Safe reading and writing of ``.safetensors``.

The header is checked here before anything is allocated: repeated keys, which the library of the format accepts, and
every disagreement between the header and the size of the file are errors.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.files import atomic_file
from fairerclip.data.io.bounded_text import text_array
from fairerclip.data.io.strict_json import strict_loads
from fairerclip.errors import FairerClipError, TaskFileError

MAX_HEADER_BYTES = 16 * 1024**2
"""Most bytes of the header, less than the library of the format accepts; enough for some 600,000 ids of 20 letters."""
MAX_TENSORS = 256
MAX_METADATA = 256
MAX_TEXTS = 1_000_000
"""Most texts of one list in the metadata."""
MAX_AXES = 8
DTYPES = {
    "F16": "<f2",
    "BF16": "<u2",
    "F32": "<f4",
    "F64": "<f8",
    "I8": "<i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "<u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "BOOL": "|b1",
}
"""numpy types of the format's types; BF16, which numpy lacks, is mapped as 16-bit integers."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file that has not been read yet."""

    file: Path
    name: str
    kind: str  # as the format names it: "F16", "BF16", …
    shape: tuple[int, ...]
    offset: int  # of the data in the file

    def array(self) -> Array:
        """Map the tensor, read-only; BF16 is returned as uint16 bits."""
        dtype = np.dtype(DTYPES[self.kind])
        if self.count == 0:
            return np.empty(self.shape, dtype=dtype)
        if not self.shape:  # a memmap needs at least one axis
            return np.array(np.memmap(self.file, dtype=dtype, mode="r", offset=self.offset, shape=(1,))[0])
        return np.memmap(self.file, dtype=dtype, mode="r", offset=self.offset, shape=self.shape)

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def open_tensors(
    path: str | os.PathLike[str], error: type[FairerClipError], *, most: int = MAX_TENSORS
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors by name and the metadata of a ``.safetensors``; raise ``error`` if it is damaged.

    ``most`` is the largest accepted number of tensors.
    """
    file = Path(path)
    try:
        if not file.is_file():
            raise error(f"{file}: expected a regular file, found nothing or something else at this path")
        with file.open("rb") as handle:
            return tensors_of(handle, file, error, most=most)
    except (OSError, ValueError) as problem:
        if isinstance(problem, error):
            raise
        raise error(f"{file}: expected a readable .safetensors, got {problem}") from problem


def tensors_of(
    handle: BinaryIO, file: Path, error: type[FairerClipError], *, most: int = MAX_TENSORS
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return what `open_tensors` returns, for an open file at its first byte."""
    size = os.fstat(handle.fileno()).st_size
    length = int.from_bytes(handle.read(8), "little")
    if size < 8 or not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
        raise error(
            f"{file}: expected a header of at most {min(MAX_HEADER_BYTES, max(size - 8, 0))} bytes, got "
            f"{length}; is it truncated?"
        )
    header = strict_loads(handle.read(length), str(file), error, limit=MAX_HEADER_BYTES)
    if not isinstance(header, dict):
        raise error(f"{file}: expected a JSON object as header, got {type(header).__name__}")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise error(f"{file}: expected metadata of strings only")
    if len(metadata) > MAX_METADATA:
        raise error(f"{file}: expected at most {MAX_METADATA} entries of metadata, got {len(metadata)}")
    if len(header) > most:
        raise error(f"{file}: expected at most {most} tensors, got {len(header)}")
    start = 8 + length
    tensors = {name: _tensor(file, name, entry, start, error) for name, entry in header.items()}
    _check_layout(file, tensors, start, size, error)
    return tensors, metadata


def _tensor(file: Path, name: str, entry: Any, start: int, error: type[FairerClipError]) -> Tensor:
    where = f"{file}: tensor {name!r:.60}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise error(f"{where}: expected dtype, shape and data_offsets, got {entry!r:.100}")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise error(f"{where}: expected a dtype among {', '.join(DTYPES)}, got {kind!r:.100}")
    if not _counts(shape) or len(shape) > MAX_AXES or not _counts(offsets) or len(offsets) != 2:
        raise error(
            f"{where}: expected a shape and two offsets of whole numbers, got {shape!r:.100} {offsets!r:.100}"
        )
    size = np.dtype(DTYPES[kind]).itemsize
    if math.prod(max(n, 1) for n in shape) * size > sys.maxsize:
        raise error(f"{where}: expected a shape that fits in memory, got {shape!r:.100}")
    needed = math.prod(shape) * size
    if offsets[1] - offsets[0] != needed:
        raise error(
            f"{where}: shape {shape} of {kind} needs {needed} bytes, its offsets span {offsets[1] - offsets[0]}"
        )
    return Tensor(file, name, kind, tuple(shape), start + offsets[0])


def metadata_texts(text: str, where: str, error: type[FairerClipError]) -> Array:
    """Return an array of text (m,) from a JSON list of strings, (m, 2) of pairs, or without axes of a single string."""
    values = strict_loads(text, where, error, limit=MAX_HEADER_BYTES, values=MAX_TEXTS)
    listed = values if isinstance(values, list) else [values]
    paired = bool(listed) and all(isinstance(value, list) and len(value) == 2 for value in listed)
    words = [word for pair in listed for word in pair] if paired else listed
    if not all(isinstance(value, str) for value in words):
        raise error(f"{where}: expected a JSON string or list of strings, got {text:.60}")
    array = text_array(words, where, "a text", error)
    if paired:
        return array.reshape(-1, 2)
    return array if isinstance(values, list) else array.reshape(())


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63 for v in values
    )


def _check_layout(
    file: Path, tensors: Mapping[str, Tensor], start: int, size: int, error: type[FairerClipError]
) -> None:
    at = start
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.count)):
        if tensor.offset != at:
            raise error(
                f"{file}: expected tensor {tensor.name!r:.60} at byte {at}, its offset says {tensor.offset}; tensors "
                "must follow each other without gap or overlap"
            ).because("overlap")
        at += tensor.count * np.dtype(DTYPES[tensor.kind]).itemsize
    if at != size:
        raise error(
            f"{file}: the header accounts for {at} bytes, the file has {size}; is it truncated?"
        ).because("size")


def widen_bfloat16(bits: Array) -> NDArray[np.float32]:
    """Convert bfloat16, given as uint16 bits, to float32.

    Examples
    --------
    >>> widen_bfloat16(np.array([0x3F80], dtype=np.uint16)).tolist()
    [1.0]
    """
    wide: NDArray[np.float32] = (np.asarray(bits, dtype=np.uint32) << 16).view(np.float32)
    return wide


def write_tensors(
    path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str], *, overwrite: bool
) -> Path:
    """Write ``.safetensors`` so that the path holds either the old file or the whole new one.

    Equal arrays make equal files. The library of the format is not used: it copies all tensors in memory and writes
    metadata in an order that changes from run to run.
    """
    kinds = {np.dtype(code).str: kind for kind, code in DTYPES.items() if kind != "BF16"}
    plain = {
        name: np.asarray(a).astype(np.asarray(a).dtype.newbyteorder("<"), copy=False)
        for name, a in arrays.items()
    }
    # Widest type first, as in the library of the format: every tensor then begins at a multiple of its item size.
    order = sorted(plain, key=lambda name: -plain[name].dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name in order:
        array = plain[name]
        header[name] = {
            "dtype": kinds[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    too_long = next((key for key, value in metadata.items() if value.count(",") >= MAX_TEXTS), None)
    if too_long is not None:
        raise TaskFileError(
            f"{path}: expected {too_long!r} of at most {MAX_TEXTS:,} texts, got more; write .npz or a folder instead"
        )
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER_BYTES:
        raise TaskFileError(
            f"{path}: expected texts that fit a header of {MAX_HEADER_BYTES:,} bytes, got {len(text):,}; write .npz or "
            "a folder instead"
        )
    text += b" " * (-len(text) % 8)
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            handle.write(plain[name].tobytes())
    return path
