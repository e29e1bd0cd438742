"""Sources of images: folders, lists, tables and webdataset tars.

A source yields its `ImageItem`s in a fixed order; an entry that cannot be read is a `Refused` with the reason and is
never left out silently.
"""

from __future__ import annotations

import os
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol, Self

from fairerclip._util.files import reading
from fairerclip.data.io.bounded_text import csv_records, text_lines
from fairerclip.encoders.decode import FORMATS, MAX_FILE_BYTES
from fairerclip.errors import DatasetError, JoinError

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
"""Endings of files that are read as images; their content must be one of `FORMATS`."""
OTHER_ENDINGS = frozenset(
    {
        ".gif",
        ".tif",
        ".tiff",
        ".heic",
        ".heif",
        ".avif",
        ".jfif",
        ".jpe",
        ".jp2",
        ".j2k",
        ".jxl",
        ".apng",
        ".ico",
    }
    | {".svg", ".psd", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".dds", ".exr", ".hdr", ".eps"}
    | {".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2"}
)
"""Endings of images in formats that are not supported; such files are reported with the reason."""
MAX_LIST_BYTES = 256 * 1024**2
MAX_LISTED = 2_000_000
"""Most lines of one list or table: each takes about a microsecond, 100 bytes, and the text of its path and id."""
MAX_TAR_HEADER = 16 * 1024
"""Most bytes of a long name or of extended attributes before a member of a tar, which tarfile reads at once."""
_TAR_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


@dataclass(frozen=True)
class ImageItem:
    """One image: its id, and its file or its bytes."""

    id: str
    content: Path | bytes


@dataclass(frozen=True)
class Refused:
    """An entry of a source that is not read, with the reason."""

    id: str
    reason: str


class ImageSource(Protocol):
    """Images in a fixed order."""

    @property
    def total(self) -> int | None:
        """Number of items; None if it is known only after reading all of them."""

    def items(self, done: frozenset[str] | set[str] = frozenset()) -> Iterator[ImageItem | Refused]:
        """Yield all items in order; the bytes of those whose id is in ``done`` need not be read."""


@dataclass(frozen=True)
class ListedImages:
    """Images given as a sequence of items."""

    entries: Sequence[ImageItem | Refused]

    @property
    def total(self) -> int | None:
        """Number of items."""
        return len(self.entries)

    def items(self, done: frozenset[str] | set[str] = frozenset()) -> Iterator[ImageItem | Refused]:
        """Yield all items in order."""
        return iter(self.entries)


@dataclass(frozen=True)
class ListedFiles:
    """Images of a list or table: files by id, relative to a folder. Memory: see `MAX_LISTED`."""

    folder: Path
    files: Mapping[str, str]

    @property
    def total(self) -> int | None:
        """Number of items."""
        return len(self.files)

    def items(self, done: frozenset[str] | set[str] = frozenset()) -> Iterator[ImageItem | Refused]:
        """Yield all items in order."""
        return (ImageItem(key, self.folder / file) for key, file in self.files.items())


class _BoundedMember(tarfile.TarInfo):
    """A tar member whose declared size is checked before anything of that size is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (member.type in _TAR_HEADERS and member.size > MAX_TAR_HEADER):
            raise tarfile.ReadError(
                f"expected headers of at most {MAX_TAR_HEADER:,} bytes, got one of {member.size:,}"
            )
        return member


@dataclass(frozen=True)
class TarImages:
    """Images of webdataset tars, read as a stream and never extracted; the id is the path without its ending."""

    paths: Sequence[Path]

    @property
    def total(self) -> int | None:
        """Always None: the number is known only after reading the tars."""
        return None

    def items(self, done: frozenset[str] | set[str] = frozenset()) -> Iterator[ImageItem | Refused]:
        """Yield all items in order; links, paths outside the tar, and a damaged end are `Refused`."""
        seen: set[str] = set()
        for path in self.paths:
            try:
                with (
                    path.open("rb") as handle,
                    tarfile.open(fileobj=handle, mode="r:", tarinfo=_BoundedMember) as tar,
                ):
                    for member in tar:
                        item = _member(path, tar, member, seen, done)
                        if item is not None:
                            yield item
                    handle.seek(tar.offset)
                    if handle.read(tarfile.BLOCKSIZE).strip(b"\0") or handle.tell() == tar.offset:
                        yield Refused(
                            f"{path.name}@{tar.offset}", "the tar is damaged or truncated at this byte"
                        )
            except RecursionError:
                yield Refused(
                    f"{path.name}@end", "the rest of the tar cannot be read: too many headers of one member"
                )
            except (tarfile.TarError, OSError, ValueError, MemoryError) as error:
                yield Refused(
                    f"{path.name}@end", f"the rest of the tar cannot be read: {error or type(error).__name__}"
                )


def _member(
    path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, seen: set[str], done: frozenset[str] | set[str]
) -> ImageItem | Refused | None:
    """Return a member as an image; None if it is not an image, such as a caption."""
    name = PurePosixPath(member.name)
    place = f"{path.name}:{member.name}"
    ending = name.suffix.lower()
    if member.isdir() or ending not in ENDINGS | OTHER_ENDINGS:
        return None
    if name.is_absolute() or ".." in name.parts or "\\" in member.name:
        return Refused(place, "its path points outside the tar")
    if not member.isreg():
        return Refused(place, "it is a link or a device, not a file")
    if member.issparse():
        return Refused(place, "it is a sparse file, whose size has no limit: pack it without --sparse")
    key = name.with_suffix("").as_posix()
    if not _is_text(key):
        return Refused(_printable(place), "its name is not UTF-8")
    if ending in OTHER_ENDINGS:
        return Refused(place, not_read(ending))
    if key in seen:
        return Refused(place, f"an earlier image has the key {key!r}")
    seen.add(key)
    if key in done:
        return ImageItem(key, b"")
    if member.size > MAX_FILE_BYTES:
        return Refused(key, f"it is larger than {MAX_FILE_BYTES} bytes")
    handle = tar.extractfile(member)
    return ImageItem(key, b"" if handle is None else handle.read())


def not_read(ending: str) -> str:
    """Return the reason why an image of `OTHER_ENDINGS` is not read."""
    return f"{ending} files are not read; save it as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"


def _is_text(name: str) -> bool:
    """Return whether a name from disk is UTF-8; Python turns other bytes into surrogates, which cannot be stored."""
    return not any("\ud800" <= c <= "\udfff" for c in name)


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def open_source(
    path: str | os.PathLike[str], *, path_column: str | None = None, id_column: str | None = None
) -> ImageSource:
    """Open a folder, a list, a table or a tar of images.

    Parameters
    ----------
    path : path-like
        A folder (read recursively, in sorted order; ids are paths relative to it), a ``.csv`` table, a
        webdataset ``.tar`` or a folder of tars only, or a text file with one path per line. Paths in
        files are relative to the file, and are used as ids unchanged.
    path_column, id_column : str, optional
        Columns of a table: that of the paths (default: ``path``), and that of the ids (default: the paths).

    Raises
    ------
    DatasetError
        There is nothing at ``path``, or no image in it.
    JoinError
        Two images have the same id.
    """
    path = Path(path)
    table = path.suffix.lower() == ".csv"
    if (path_column or id_column) and not table:
        raise DatasetError(f"--path-column and --id-column are for .csv tables; got {path}")
    if os.path.isdir(path):  # Path.is_dir raises if a parent folder is not accessible
        return _folder(path)
    if not os.path.isfile(path):
        raise DatasetError(f"{path} does not exist; give a folder, a list, a .csv table or a .tar of images")
    if path.suffix.lower() == ".tar":
        return TarImages([path])
    if path.suffix.lower() in ENDINGS:
        return ListedImages([ImageItem(path.name, path)])
    if path.suffix.lower() in OTHER_ENDINGS:
        raise DatasetError(f"{path}: {not_read(path.suffix.lower())}")
    with reading(DatasetError):
        _check_lines(path)
    return _listed_files(path, _rows(path, path_column or "path", id_column) if table else _lines(path))


def _listed(path: Path, entries: Sequence[ImageItem | Refused]) -> ListedImages:
    refused = [entry for entry in entries if isinstance(entry, Refused)]
    if len(refused) == len(entries):
        first = (
            f"; {len(refused)} left out, the first {refused[0].id}: {refused[0].reason}" if refused else ""
        )
        raise DatasetError(
            f"{path} holds no image; expected files ending in {', '.join(sorted(ENDINGS))}{first}"
        )
    name, count = Counter(entry.id for entry in entries).most_common(1)[0]
    if count > 1:
        raise JoinError(f"{path} has {count} images with the id {name!r}: ids must differ")
    return ListedImages(entries)


def _folder(path: Path) -> ImageSource:
    entries: list[ImageItem | Refused] = []
    tars: list[Path] = []

    def unlisted(error: OSError) -> None:
        key = _printable(Path(error.filename).relative_to(path).as_posix())
        entries.append(Refused(key, f"the folder cannot be listed: {error.strerror}"))

    for folder, folders, files in os.walk(path, onerror=unlisted):
        for name in [n for n in folders if os.path.islink(Path(folder) / n)]:
            key = _printable(_relative(path, folder, name))
            entries.append(Refused(key, "a link to a folder is not followed"))
        for name in files:
            ending = Path(name).suffix.lower()
            if ending == ".tar":
                tars.append(Path(folder) / name)
            elif ending in ENDINGS | OTHER_ENDINGS:
                entries.append(_file(_relative(path, folder, name), Path(folder) / name))
    if tars and entries:
        raise DatasetError(
            f"{path} holds both images and .tar files, such as {entries[0].id} and {tars[0].name}; give one kind"
        )
    return TarImages(sorted(tars)) if tars else _listed(path, sorted(entries, key=lambda entry: entry.id))


def _file(key: str, path: Path) -> ImageItem | Refused:
    if not _is_text(key):
        return Refused(_printable(key), "its name is not UTF-8")
    ending = path.suffix.lower()
    return Refused(key, not_read(ending)) if ending in OTHER_ENDINGS else ImageItem(key, path)


def _relative(root: Path, folder: str, name: str) -> str:
    return (Path(folder) / name).relative_to(root).as_posix()


def _check_lines(path: Path) -> None:
    """Raise, before reading it, if a list has too many bytes or lines."""
    size, ends = os.path.getsize(path), 0
    if size > MAX_LIST_BYTES:
        raise DatasetError(f"{path}: expected at most {MAX_LIST_BYTES:,} bytes, got {size:,}; split the file")
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            ends += max(block.count(b"\n"), block.count(b"\r"))
    if ends > MAX_LISTED:
        raise DatasetError(f"{path}: expected at most {MAX_LISTED:,} lines, got {ends:,}; split the file")


def _listed_files(path: Path, pairs: Iterator[tuple[int, str, str]]) -> ListedFiles:
    """Return the images of a list or table from (line, id, file); raise if an id is repeated."""
    files: dict[str, str] = {}
    for line, key, file in pairs:
        if not key or not file or "\0" in key or "\0" in file:
            raise DatasetError(
                f"{path}, line {line}: expected a path and an id, got {file!r:.80} and {key!r:.80}"
            )
        if key in files:
            raise JoinError(f"{path}, line {line}: expected ids that differ, got {key!r:.80} again")
        files[key] = file
    if not files:
        raise DatasetError(f"{path} lists no image: expected one path per line or row")
    return ListedFiles(path.parent, files)


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text_lines(path, DatasetError), start=1):
        file = line.strip()
        if file:
            yield number, file, file


def _rows(path: Path, path_column: str, id_column: str | None) -> Iterator[tuple[int, str, str]]:
    records = csv_records(path, DatasetError)
    names = next(records, (0, []))[1]
    places = []
    for column in (id_column or path_column, path_column):
        if column not in names:
            raise DatasetError(
                f"{path} has no column {column!r}; it has {', '.join(names)[:300] or 'none'}: "
                "choose with --path-column and --id-column"
            )
        places.append(names.index(column))
    for number, fields in records:
        key, file = (fields[i] if i < len(fields) else "" for i in places)
        yield number, key, file
