"""Images from folders, lists, tables and webdataset tars, decoded without trusting them.

A source is iterated for its `ImageItem`s, in a fixed order; what cannot be an image is a `Refused` with the
reason, never dropped in silence. Orientation tags (EXIF) are not applied: CLIP's own preprocessing does not
rotate, so neither does this.
"""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, Self

from fairerclip._util.extras import require
from fairerclip._util.files import reading
from fairerclip.data.io.bounded_text import csv_records, text_lines
from fairerclip.errors import DatasetError, ImageError, JoinError

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
"""Files that count as images; the content must be one of `FORMATS` all the same."""
FORMATS = ("JPEG", "PNG", "WEBP", "BMP")
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
"""Files that are images too, and are left out by name: whoever has them should hear of it."""
MAX_PIXELS = 50_000_000
"""The largest image that is decoded; checked from the header, before anything is allocated."""
MAX_FILE_BYTES = 256 * 1024**2
MAX_SCANS, MAX_MARKERS = 50, 10_000
"""Passes over the pixels of a JPEG, of which progressive ones have some ten, and its parts. A pass can take some bytes
of the file, and takes 50 ms for 50 megapixels."""
_JPEG = b"\xff\xd8"
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""What begins a part of a JPEG: neither a byte of the data nor a restart within it."""
_SCAN, _END = 0xDA, 0xD9
_EIGHT_BITS = frozenset({"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"})
MAX_LIST_BYTES = 256 * 1024**2
MAX_LISTED = 2_000_000
"""Lines of one list or table: each takes some microsecond, 100 bytes, and the characters of its path and id."""
MAX_TAR_HEADER = 16 * 1024
"""Bytes of a long name or of extended attributes before a member of a tar, which tarfile reads at once."""
_TAR_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


@dataclass(frozen=True)
class ImageItem:
    """One image: its id, and the file or the bytes that hold it."""

    id: str
    content: Path | bytes


@dataclass(frozen=True)
class Refused:
    """Something in a source that is not read, and why."""

    id: str
    reason: str


class ImageSource(Protocol):
    """Images in a fixed order; ``total`` is None where only reading to the end would tell."""

    @property
    def total(self) -> int | None:
        """How many items there are."""

    def items(self, done: frozenset[str] | set[str] = frozenset()) -> Iterator[ImageItem | Refused]:
        """Everything in order; the bytes of what is ``done`` need not be read."""


@dataclass(frozen=True)
class ListedImages:
    """Images whose files are known before the first is opened."""

    entries: Sequence[ImageItem | Refused]

    @property
    def total(self) -> int | None:
        """How many items there are."""
        return len(self.entries)

    def items(self, done: frozenset[str] | set[str] = frozenset()) -> Iterator[ImageItem | Refused]:
        """Everything in order."""
        return iter(self.entries)


@dataclass(frozen=True)
class ListedFiles:
    """Images that a list or table names: ids and files, which are relative to a folder. Memory: see `MAX_LISTED`."""

    folder: Path
    files: Mapping[str, str]

    @property
    def total(self) -> int | None:
        """How many items there are."""
        return len(self.files)

    def items(self, done: frozenset[str] | set[str] = frozenset()) -> Iterator[ImageItem | Refused]:
        """Everything in order."""
        return (ImageItem(key, self.folder / file) for key, file in self.files.items())


class _BoundedMember(tarfile.TarInfo):
    """A member whose header says a size that can be, checked before anything of that size is read."""

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
    """Images of webdataset tars, read as a stream and never extracted; the id is the path without ending."""

    paths: Sequence[Path]

    @property
    def total(self) -> int | None:
        """None: a tar tells only at its end."""
        return None

    def items(self, done: frozenset[str] | set[str] = frozenset()) -> Iterator[ImageItem | Refused]:
        """Everything in order; a member that points elsewhere, and a damaged end, are refused by name."""
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
                            f"{path.name}@{tar.offset}", "the tar is damaged or cut off from here on"
                        )
            except RecursionError:
                yield Refused(f"{path.name}@end", "the tar cannot be read on: too many headers of one member")
            except (tarfile.TarError, OSError, ValueError, MemoryError) as error:
                yield Refused(
                    f"{path.name}@end", f"the tar cannot be read on: {error or type(error).__name__}"
                )


def _member(
    path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, seen: set[str], done: frozenset[str] | set[str]
) -> ImageItem | Refused | None:
    """One member as an image; None for what belongs to one, such as its caption."""
    name = PurePosixPath(member.name)
    place = f"{path.name}:{member.name}"
    ending = name.suffix.lower()
    if member.isdir() or ending not in ENDINGS | OTHER_ENDINGS:
        return None
    if name.is_absolute() or ".." in name.parts or "\\" in member.name:
        return Refused(place, "its path leads out of the tar")
    if not member.isreg():
        return Refused(place, "it is a link or a device, not a file")
    if member.issparse():
        return Refused(
            place, "it has holes, which a few bytes can make of any size: pack it without --sparse"
        )
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
    """Why an image of `OTHER_ENDINGS` is refused."""
    return f"{ending} files are not read; save it as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"


def _is_text(name: str) -> bool:
    """Whether a name from disk is UTF-8: undecodable bytes come as surrogates, which no file can hold."""
    return not any("\ud800" <= c <= "\udfff" for c in name)


def _printable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def open_source(
    path: str | os.PathLike[str], *, path_column: str | None = None, id_column: str | None = None
) -> ImageSource:
    """Find out what ``path`` is and list its images.

    Parameters
    ----------
    path : path-like
        A folder (read recursively, in sorted order; ids are paths relative to it), a ``.csv`` table, a
        webdataset ``.tar`` or a folder of nothing but them, or a text file with one path per line. Paths in
        files are relative to the file, and are the ids as they stand there.
    path_column, id_column : str, optional
        Columns of a table: where the paths are (default: ``path``), and the ids, if not the paths.

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
    if os.path.isdir(path):  # Path.is_dir raises where a folder above may not be entered
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
        raise DatasetError(f"{path} names no image; the endings read are {', '.join(sorted(ENDINGS))}{first}")
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
    """Refuse a list of too many bytes or lines before any of them takes memory."""
    size, ends = os.path.getsize(path), 0
    if size > MAX_LIST_BYTES:
        raise DatasetError(f"{path}: expected at most {MAX_LIST_BYTES:,} bytes, got {size:,}; split the file")
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            ends += max(block.count(b"\n"), block.count(b"\r"))
    if ends > MAX_LISTED:
        raise DatasetError(f"{path}: expected at most {MAX_LISTED:,} lines, got {ends:,}; split the file")


def _listed_files(path: Path, pairs: Iterator[tuple[int, str, str]]) -> ListedFiles:
    """What a list or table names, with its line, id and file; the first repeated id ends it."""
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
        raise DatasetError(f"{path} names no image: expected one path per line or row")
    return ListedFiles(path.parent, files)


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text_lines(path, DatasetError), start=1):
        file = line.strip()
        if file:
            yield number, file, file


def _rows(path: Path, path_column: str, id_column: str | None) -> Iterator[tuple[int, str, str]]:
    records = csv_records(path, DatasetError)
    names = next(records, (0, []))[1]
    at = []
    for column in (id_column or path_column, path_column):
        if column not in names:
            raise DatasetError(
                f"{path} has no column {column!r}; it has {', '.join(names)[:300] or 'none'}: "
                "choose with --path-column and --id-column"
            )
        at.append(names.index(column))
    for number, fields in records:
        key, file = (fields[i] if i < len(fields) else "" for i in at)
        yield number, key, file


@contextmanager
def _quiet_bombs(pillow: Any) -> Iterator[None]:
    # Pillow warns of large images; ours are refused from the header, or allowed on purpose.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
        yield


def _check_parts(raw: bytes) -> None:
    """Refuse a JPEG of too many parts, which the decoder goes through one by one, before it does."""
    scans, at = 0, len(_JPEG)
    for _ in range(MAX_MARKERS):
        marker = _MARKER.search(raw, at)
        if marker is None or raw[marker.end() - 1] == _END:
            return
        at = marker.end() + int.from_bytes(raw[marker.end() : marker.end() + 2], "big")
        scans += raw[marker.end() - 1] == _SCAN
        if scans > MAX_SCANS:
            raise ImageError(f"it is a JPEG of more than {MAX_SCANS} scans; save it again")
    raise ImageError(f"it is a JPEG of more than {MAX_MARKERS:,} parts; save it again")


def open_image(content: Path | str | bytes, *, max_pixels: int = MAX_PIXELS) -> Any:
    """Decode an image into RGB, or say why not.

    Memory: 8 to 10 bytes per pixel, of WEBP 16, as the image is held as it is stored and in RGB; and the file of a
    JPEG. The largest image, in WEBP, takes 800 MB.

    Parameters
    ----------
    content : path or bytes
        JPEG, PNG, WEBP or BMP, whatever its name says; of an animation, the first frame.
    max_pixels : int
        More than this is refused from the header alone.

    Returns
    -------
    PIL.Image.Image
        Mode RGB. Transparency is dropped and the EXIF orientation left as it is, as CLIP's own code does.

    Raises
    ------
    ImageError
        Not an image of these formats, damaged, cut off, too large, of more than 8 bits per channel, or a JPEG of too
        many scans.
    """
    pillow = require("PIL.Image", "images", "reading images")
    try:
        if not isinstance(content, bytes):
            found = os.stat(content)
            if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
                raise ImageError("it is a folder, a pipe or a device, not a file")
            if found.st_size > MAX_FILE_BYTES:
                raise ImageError(f"it is larger than {MAX_FILE_BYTES} bytes")
            with open(content, "rb") as handle:
                if handle.read(len(_JPEG)) == _JPEG:
                    handle.seek(0)
                    content = handle.read(found.st_size)
        if isinstance(content, bytes) and content.startswith(_JPEG):
            _check_parts(content)
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        with _quiet_bombs(pillow), pillow.open(source, formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise ImageError(f"it has {width}×{height} pixels; at most {max_pixels} are decoded")
            if any(
                ";16" in str(tile) for tile in image.tile
            ):  # Pillow would cut 16 bits of RGB down in silence
                raise ImageError("it has 16 bits per channel; save it with 8 bits per channel")
            image.load()
            if image.mode not in _EIGHT_BITS:
                raise ImageError(f"it has mode {image.mode}; save it with 8 bits per channel")
            if image.mode == "P" and "transparency" in image.info:
                return image.convert("RGBA").convert("RGB")
            return image.convert("RGB")
    except ImageError:
        raise
    except pillow.DecompressionBombError as error:
        raise ImageError(f"it is a decompression bomb: {error}") from None
    except FileNotFoundError:
        raise ImageError("there is no such file") from None
    except Exception as error:  # noqa: BLE001 - what decoders raise on hostile bytes is not a closed list
        raise ImageError(f"it cannot be decoded: {type(error).__name__}: {str(error)[:200]}") from None
