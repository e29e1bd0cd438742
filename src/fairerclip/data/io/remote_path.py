"""Files in object storage, by URL, through fsspec: what a local path gives, and ranges of bytes.

fsspec is imported in this module only, when a URL is opened; exceptions of its file systems become `StoreError`.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.extras import require
from fairerclip._util.files import URL
from fairerclip._util.types import Ints
from fairerclip.data.io.npy import DEFAULT_LIMITS, Header, check_size, damage, read_header
from fairerclip.errors import FairerClipError, MissingExtraError, StoreError

Array = NDArray[Any]

LOCAL = ("file", "local")
"""Schemes of paths on this machine, which are opened without fsspec."""
GAP_BYTES = 1 << 18
"""Bytes between two rows that are read along: another request would take longer."""
REQUEST_BYTES = 1 << 24
"""Most bytes of a request that reads single rows, and about the most of all requests that are made at a time."""


def as_location(path: str | os.PathLike[str] | RemotePath) -> Location:
    """Return where a path or URL leads; ``file://`` is a path on this machine."""
    if isinstance(path, RemotePath) or not isinstance(path, str) or (found := URL.match(path)) is None:
        return path if isinstance(path, RemotePath) else Path(path)
    if found[1].lower() not in LOCAL:
        return RemotePath.of(path)
    host, slash, rest = path[found.end() :].partition("/")
    if host not in ("", "localhost") or not slash:
        raise StoreError(f"{path}: expected file:///FOLDER/FILE, with three slashes")
    return Path(unquote("/" + rest))


class RemotePath:
    """A file or folder in object storage; it has those members of `pathlib.Path` that readers of stores use.

    Parameters
    ----------
    system : fsspec file system
        Where the file is.
    path : str
        Its path there.
    url : str
        Its URL, for messages.
    """

    def __init__(self, system: Any, path: str, url: str) -> None:
        self._system, self._path, self._url = system, path.rstrip("/"), url.rstrip("/")

    @classmethod
    def of(cls, url: str) -> RemotePath:
        """Return the path of a URL such as ``s3://bucket/folder``."""
        fsspec = require("fsspec", "fsspec", "reading from object storage")
        try:
            system, path = fsspec.core.url_to_fs(url)
        except ImportError as error:  # the library of this kind of storage, such as s3fs
            raise MissingExtraError(f"{url}: {error}") from None
        except Exception as error:  # each file system has exceptions of its own
            raise StoreError(f"{url}: expected a URL that fsspec opens, got {error}") from error
        return cls(system, path, url)

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"RemotePath({self._url!r})"

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self._system, f"{self._path}/{name}", f"{self._url}/{name}")

    @property
    def name(self) -> str:
        """Last part of the path."""
        return PurePosixPath(self._path).name

    @property
    def stem(self) -> str:
        """Name without its ending."""
        return PurePosixPath(self._path).stem

    @property
    def suffix(self) -> str:
        """Ending of the name."""
        return PurePosixPath(self._path).suffix

    @contextmanager
    def answers(self) -> Iterator[None]:
        """Turn every exception of the file system into a `StoreError`."""
        try:
            yield
        except FairerClipError:
            raise
        except FileNotFoundError:
            raise StoreError(f"{self}: expected a file, found nothing at this URL") from None
        except Exception as error:  # each file system has exceptions of its own
            raise StoreError(
                f"{self}: expected an answer of the storage, got {type(error).__name__}: {error}"
            ) from error

    def _kind(self) -> str | None:
        with self.answers():
            try:
                return str(self._system.info(self._path)["type"])
            except FileNotFoundError:
                return None

    def is_file(self) -> bool:
        """Return whether there is a file at this path."""
        return self._kind() == "file"

    def is_dir(self) -> bool:
        """Return whether there is a folder at this path."""
        return self._kind() == "directory"

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the members of a folder."""
        with self.answers():
            found = self._system.ls(self._path, detail=False)
        names = {PurePosixPath(str(member).rstrip("/")).name for member in found}
        yield from (self / name for name in sorted(names - {self.name, ""}))

    def stat(self) -> SimpleNamespace:
        """Return the size of a file as ``st_size``."""
        with self.answers():
            size = self._system.info(self._path).get("size")
        if not isinstance(size, int) or size < 0:
            raise StoreError(f"{self}: expected a file of known size, and the storage does not tell it")
        return SimpleNamespace(st_size=size)

    def open(self) -> Any:
        """Open a file to read; a few megabytes are read ahead."""
        with self.answers():
            return self._system.open(self._path, "rb")

    def ranges(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Return ranges of bytes, read at the same time where the storage can."""
        with self.answers():
            found = self._system.cat_ranges([self._path] * len(starts), starts, stops, on_error="raise")
        for part, start, stop in zip(found, starts, stops, strict=True):
            if len(part) != stop - start:
                raise StoreError(
                    f"{self}: expected {stop - start} bytes from byte {start} on, got {len(part)}; has it changed?"
                )
        return [bytes(part) for part in found]


Location = Path | RemotePath
"""A path on this machine, or in object storage."""


class RemoteNpyRows:
    """Rows of an ``.npy`` in object storage: consecutive rows are one request.

    Header and size are checked when the object is made, before memory is allocated for rows.
    """

    def __init__(self, file: RemotePath) -> None:
        self._file = file
        size = file.stat().st_size
        (start,) = file.ranges([0], [min(size, DEFAULT_LIMITS.header_bytes + 12)])
        with damage(file, "a readable .npy"):  # type: ignore[arg-type]
            self.header: Header = read_header(str(file), io.BytesIO(start), DEFAULT_LIMITS)
            check_size(str(file), self.header, size)
        if self.header.fortran and len(self.header.shape) > 1:
            raise StoreError(
                f"{file}: expected rows one after another (C order), got columns (Fortran order), of which every read "
                "would need the whole file; write it with np.ascontiguousarray, or copy it to a local disk"
            )

    def read(self, start: int, stop: int) -> Array:
        """Return rows start to stop (m, p), as stored."""
        (found,) = self._read([(start, stop)])
        return found

    def take(self, rows: Ints) -> Array:
        """Return rows (m, p) by sorted row numbers, as stored; rows near each other are one request."""
        spans = self._spans(rows)
        out = np.empty((len(rows), *self.header.shape[1:]), dtype=self.header.dtype)
        at = 0
        per_turn = max(
            1, REQUEST_BYTES // max(1, max(stop - start for start, stop in spans) * self._row_bytes)
        )
        for first in range(0, len(spans), per_turn):
            turn = spans[first : first + per_turn]
            for (start, stop), block in zip(turn, self._read(turn), strict=True):
                end = at + int(np.searchsorted(rows[at:], stop))
                out[at:end] = block[rows[at:end] - start]
                at = end
        return out

    @property
    def _row_bytes(self) -> int:
        return int(np.prod(self.header.shape[1:], dtype=np.int64)) * self.header.dtype.itemsize

    def _spans(self, rows: Ints) -> list[tuple[int, int]]:
        """Return ranges of rows that hold all of the given ones, without long gaps and none of them too long."""
        gap, most = GAP_BYTES // self._row_bytes, max(1, REQUEST_BYTES // self._row_bytes)
        spans: list[tuple[int, int]] = []
        for row in rows.tolist():
            if spans and row - spans[-1][1] <= gap and row - spans[-1][0] < most:
                spans[-1] = (spans[-1][0], row + 1)
            else:
                spans.append((row, row + 1))
        return spans

    def _read(self, spans: list[tuple[int, int]]) -> list[Array]:
        first, size = self.header.length, self._row_bytes
        starts = [first + start * size for start, _ in spans]
        found = self._file.ranges(starts, [first + stop * size for _, stop in spans])
        return [
            np.frombuffer(part, dtype=self.header.dtype).reshape(-1, *self.header.shape[1:]) for part in found
        ]
