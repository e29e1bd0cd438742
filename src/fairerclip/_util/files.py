"""Files: reading with a size limit, and writing so that a path holds either the old content or the whole new one.

A file, or a new folder, is written under a hidden name beside its path, ``.NAME.TOKEN.tmp``, and then renamed. A
process that is killed leaves that name behind; the next writer of the path removes it. Of two processes that write one
path at the same time, one may end with an `OutputError`; the path is whole all the same.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fairerclip.errors import FairerClipError, OutputError, OutputExistsError

URL = re.compile(r"([a-z][a-z0-9+.\-]+)://", re.IGNORECASE)
"""Start of a URL; a drive letter is no scheme."""
LONGEST_NAME = 230
"""Most bytes of a name: file systems accept 255, and the temporary name of a file is longer than its own."""


@contextmanager
def reading(error: type[FairerClipError]) -> Iterator[None]:
    """Raise ``error``, with the path, when the system cannot open or list something; also a decorator of readers."""
    try:
        yield
    except FairerClipError:
        raise
    except OSError as problem:
        raise error(
            f"{problem.filename or 'the input'}: expected a readable file or folder, got {problem.strerror or problem}"
        ) from None


def read_bounded(path: Path, limit: int, error: type[FairerClipError]) -> bytes:
    """Return the content of a regular file; raise ``error``, before reading, if it has more than ``limit`` bytes.

    Examples
    --------
    >>> from fairerclip.errors import TaskFileError
    >>> read_bounded(Path("nowhere.json"), 10, TaskFileError)
    Traceback (most recent call last):
    ...
    fairerclip.errors.TaskFileError: nowhere.json: expected a readable file, got No such file or directory
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait until somebody writes to it.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as handle:
            status = os.fstat(handle.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise error(f"{path}: expected a regular file, found a folder or a device")
            if status.st_size > limit:
                raise error(f"{path}: expected at most {limit:,} bytes, got {status.st_size:,}")
            content = handle.read(min(limit, status.st_size))  # read(n) allocates n bytes at once
            if handle.read(1):  # the file has grown meanwhile
                raise error(f"{path}: expected at most {limit:,} bytes, got more")
            return content
    except (OSError, ValueError) as problem:  # ValueError: the name holds a NUL
        if isinstance(problem, error):
            raise
        raise error(
            f"{path}: expected a readable file, got {getattr(problem, 'strerror', None) or problem}"
        ) from None


# Checks before the work ------------------------------------------------------------------------------


def check_free(path: Path, overwrite: bool) -> None:
    """Raise, before the work, if its output file could not be written: the name is taken or the folder read-only."""
    _check_file(path, overwrite)
    _check_writable(path)


def check_folder(path: Path, overwrite: bool) -> None:
    """Raise, before the work, if its output folder could not be written: the name is taken or a folder read-only."""
    _check_folder(path, overwrite)
    _check_writable(path)


def _check_file(path: Path, overwrite: bool) -> None:
    check_name(path)
    with writing(path):
        if path.is_dir() and not path.is_symlink():
            raise OutputExistsError(f"{path} is a folder; give the name of a file")
        if os.path.lexists(path):
            _check_taken(path, overwrite)
            if path.is_symlink() or not path.is_file():
                raise OutputExistsError(
                    f"{path} is a link or a device, not a plain file, and was not changed; choose another name"
                )


def _check_folder(path: Path, overwrite: bool) -> None:
    check_name(path)
    with writing(path):
        if path.exists() and not path.is_dir():
            raise OutputExistsError(f"{path} is a file; give the name of a folder")
        if os.path.lexists(path):
            _check_taken(path, overwrite)
            if path.is_symlink():
                raise OutputExistsError(f"{path} is a link; give the name of the folder that it points to")


def _check_taken(path: Path, overwrite: bool) -> None:
    if not overwrite:
        raise OutputExistsError(f"{path} exists; choose another name or pass overwrite=True (--overwrite)")


def is_url(text: str) -> bool:
    """Return whether a text is a URL and no path on this machine.

    Examples
    --------
    >>> is_url("s3://bucket/embeddings"), is_url("C:/embeddings")
    (True, False)
    """
    return URL.match(text) is not None


def local_output(path: str | os.PathLike[str]) -> Path:
    """Return a path to write to; raise if it is a URL, which would become a folder of that name."""
    if is_url(os.fspath(path)):
        raise OutputError(
            f"{path} cannot be written: give a file or folder on this machine, and copy it to the storage"
        )
    return Path(path)


def check_name(path: Path) -> None:
    """Raise if no file or folder of this name could be written."""
    text = str(path)
    if "\0" in text or not _named(path).name:
        raise OutputError(f"{text!r} cannot be written: give the name of a file or folder")
    longest = max(len(os.fsencode(part)) for part in _named(path).parts)
    if longest > LONGEST_NAME:
        raise OutputError(
            f"{text[:40]}… cannot be written: names may have {LONGEST_NAME} bytes, got one of {longest:,}"
        )
    with writing(path):
        above = next(parent for parent in _named(path).parents if os.path.lexists(parent))
        if not above.is_dir():
            raise OutputError(f"{path} cannot be written: {above} is not a folder")


def _named(path: Path) -> Path:
    """Return the path with a last name, resolving ``.`` and ``..`` at its end."""
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))


def _check_writable(path: Path) -> None:
    """Raise if no file can be created in the nearest existing folder above the path, by creating a temporary one."""
    with writing(path):
        if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        folder = next(parent for parent in _named(path).absolute().parents if os.path.lexists(parent))
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise `OutputError` when the system refuses to write a path."""
    try:
        yield
    except OSError as problem:
        if isinstance(problem, FairerClipError):
            raise
        raise OutputError(
            f"{path} cannot be written: {problem.strerror or problem}; check permissions and free space, or choose "
            "another path"
        ) from problem


# Writing --------------------------------------------------------------------------------------------


@contextmanager
def atomic_file(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """Yield a binary handle; its content appears at ``path``, whole, when the block ends without an error."""
    _check_file(path, overwrite)
    with _temporary(path) as temporary:
        with temporary.open("xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        _check_file(path, overwrite)
        os.replace(temporary, path)
        sync_folder(path.parent)


@contextmanager
def output_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder to write into: a new one appears at ``path``, whole, when the block ends without an error.

    A folder that exists, which needs ``overwrite``, is yielded itself: write each file with `atomic_file`, the one that
    names the others last.
    """
    _check_folder(path, overwrite)
    path = _named(path)
    if path.is_dir():
        yield path
        return
    with _temporary(path) as fresh:
        fresh.mkdir()
        yield fresh
        sync_folder(fresh)
        _check_folder(path, overwrite=False)
        os.rename(fresh, path)
        sync_folder(path.parent)


def write_folder(
    path: Path, contents: Mapping[str, bytes], *, overwrite: bool, ours: Collection[str] = ()
) -> list[Path]:
    """Write named files into an `output_folder`, the last name last, and return their paths.

    Of the files that an earlier call may have written, ``ours``, those that are not written again are then removed.
    """
    with output_folder(path, overwrite=overwrite) as folder:
        for name in {*contents, *ours}:
            _check_file(folder / name, overwrite=True)
        for name, content in contents.items():
            with atomic_file(folder / name, overwrite=True) as handle:
                handle.write(content)
        for name in {*ours} - {*contents}:
            (folder / name).unlink(missing_ok=True)
    return [path / name for name in contents]


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to the disk; do nothing where the system cannot."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: the file system cannot sync folders
            raise
    finally:
        os.close(handle)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a free name beside a path; what killed writers of the path left is removed before, and the name after."""
    path = _named(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        start = f".{path.name}."
        for name in os.listdir(path.parent):
            if name.startswith(start) and re.fullmatch(r"[0-9a-f]{16}\.tmp", name.removeprefix(start)):
                _remove(path.parent / name)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        try:
            yield temporary
        finally:
            _remove(temporary)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
