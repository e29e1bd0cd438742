"""Reading files of a bounded size; writing files so that a path holds either the old content or the whole new one."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fairerclip.errors import FairerClipError, OutputExistsError


@contextmanager
def reading(error: type[FairerClipError]) -> Iterator[None]:
    """What the system refuses to open or list is ``error``, with its path; also a decorator of readers."""
    try:
        yield
    except FairerClipError:
        raise
    except OSError as problem:
        raise error(
            f"{problem.filename or 'the input'}: expected something that can be read, got {problem.strerror or problem}"
        ) from None


def read_bounded(path: Path, limit: int, error: type[FairerClipError], *, prefix: bool = False) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; anything else is ``error``, before memory is taken.

    With ``prefix``, the first ``limit`` bytes of a file of any size.

    Examples
    --------
    >>> from fairerclip.errors import TaskFileError
    >>> read_bounded(Path("nowhere.json"), 10, TaskFileError)
    Traceback (most recent call last):
    ...
    fairerclip.errors.TaskFileError: nowhere.json: expected a readable file, got No such file or directory
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for somebody to write to it.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as handle:
            found = os.fstat(handle.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise error(f"{path}: expected a regular file, found a folder or a device")
            if found.st_size > limit and not prefix:
                raise error(f"{path}: expected at most {limit:,} bytes, got {found.st_size:,}")
            content = handle.read(min(limit, found.st_size))  # read(n) takes n bytes of memory at once
            if not prefix and handle.read(1):  # the file has grown meanwhile
                raise error(f"{path}: expected at most {limit:,} bytes, got more")
            return content
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        if isinstance(problem, error):
            raise
        raise error(
            f"{path}: expected a readable file, got {getattr(problem, 'strerror', None) or problem}"
        ) from None


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse a path that is taken, unless overwriting a plain file was asked for."""
    if path.is_dir():
        raise OutputExistsError(f"{path} is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise OutputExistsError(f"{path} exists; choose another name or pass overwrite=True (--overwrite)")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill, which appears at ``path`` when the block ends well; an existing one is kept."""
    if path.exists():
        raise OutputExistsError(f"{path} exists; choose another name, or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    fresh.mkdir()
    try:
        yield fresh
        os.rename(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def atomic_file(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A binary handle whose content appears at ``path`` when the block ends well, and not before."""
    check_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        check_free(path, overwrite)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
