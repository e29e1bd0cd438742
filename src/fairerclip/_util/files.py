"""Files: reading with a size limit, and writing so that a path holds either the old content or the whole new one.

A file or folder is written under a hidden name beside its path, ``.NAME.TOKEN.tmp``, and put in place in one step.
Meanwhile the lock ``.NAME.lock`` keeps other writers away. A process that is killed leaves both behind; the next
writer of the path removes them.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fairerclip._util.exchange import rename_to_free, sync_folder
from fairerclip._util.replace_folder import replace_folder
from fairerclip.errors import (
    FairerClipError,
    OutputBusyError,
    OutputError,
    OutputExistsError,
)

_OURS = re.compile(r"\.(?P<of>.+)\.(?P<ending>[0-9a-f]{16}\.tmp|lock)", re.DOTALL)
"""Pattern of the names of temporary files and locks; ``of`` is the name of the file or folder being written."""
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
        lock = _beside(_named(path), "lock")
        if os.path.lexists(lock) and (lock.is_symlink() or not lock.is_file()):
            raise OutputError(
                f"{path} cannot be written: {lock} is not a lock file of fairerclip; remove or rename it"
            )
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
    with _sole_writer(path) as temporary:
        with temporary.open("xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        _check_file(path, overwrite)
        if overwrite:
            os.replace(temporary, path)
        else:
            _take_name(temporary, path)
        sync_folder(path.parent)


@contextmanager
def atomic_folder(
    path: Path, *, overwrite: bool = False, ours: Sequence[str] = (), last: Sequence[str] = ()
) -> Iterator[Path]:
    """Yield a new folder to fill; it appears at ``path``, whole, when the block ends without an error.

    With ``overwrite`` it replaces an existing folder in one step. Files of the old folder are kept, except those that
    are written again and those named in ``ours``, which an earlier call may have written.

    Where the system cannot exchange two folders in one step, and for the current folder, files are replaced one by
    one, those named in ``last`` after the others, with a `NotOneStepWarning`.
    """
    _check_folder(path, overwrite)
    path = _named(path)
    with _sole_writer(path) as fresh:
        fresh.mkdir()
        yield fresh
        _sync_tree(fresh)
        _check_folder(path, overwrite)
        if overwrite and os.path.lexists(path):
            replace_folder(path, fresh, ours, last)
        else:
            _take_name(fresh, path)
        sync_folder(path.parent)


def write_folder(
    path: Path, contents: Mapping[str, bytes], *, overwrite: bool, ours: Sequence[str] = ()
) -> list[Path]:
    """Write named files into a folder as `atomic_folder` does, the last name last, and return their paths."""
    with atomic_folder(path, overwrite=overwrite, ours=ours, last=[*contents][-1:]) as fresh:
        for name, content in contents.items():
            (fresh / name).write_bytes(content)
    return [path / name for name in contents]


@contextmanager
def sole_use(path: Path) -> Iterator[None]:
    """Lock a folder against other processes that call this; raise `OutputBusyError` if one of them holds it.

    Temporary files that killed processes left in the folder are removed.
    """
    check_folder(path, overwrite=True)
    path = _named(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _lock(path)
    try:
        for name in os.listdir(path) if path.is_dir() else ():
            if name.startswith(".") and is_leftover(path / name, r".+\.json"):
                (path / name).unlink()
        yield
    finally:
        _unlock(path, lock)


def is_leftover(path: Path, written: str) -> bool:
    """Return whether a process that was killed while writing a file of a name like ``written`` left this file."""
    match = _OURS.fullmatch(path.name)
    if match is None or not re.fullmatch(written, match["of"]) or path.is_symlink() or not path.is_file():
        return False
    return match["ending"] != "lock" or not path.stat().st_size


def _take_name(temporary: Path, path: Path) -> None:
    try:
        rename_to_free(temporary, path)
    except FileExistsError:
        raise OutputExistsError(
            f"{path} was created by another process meanwhile, and was not changed; choose another name"
        ) from None


@contextmanager
def _sole_writer(path: Path) -> Iterator[Path]:
    """Lock a path and yield the name of a temporary file or folder beside it, which is removed at the end."""
    path = _named(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock, temporary = _lock(path), _beside(path, f"{secrets.token_hex(8)}.tmp")
        try:
            yield temporary
        finally:
            _remove(temporary)
            _unlock(path, lock, removed=not os.path.lexists(temporary))


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}.{ending}")


def _lock(path: Path) -> int | None:
    """Lock a path against other writers; return None where the system has no locks.

    The system releases the lock when the process ends, however it ends. A writer that ends normally removes the lock
    file: a file that is there but not locked belongs to a writer that was killed. Without locks, the user must see
    to it that a path has one writer only.
    """
    try:
        import fcntl
    except ImportError:
        return None
    file = _beside(path, "lock")
    while True:
        existed = False
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            existed = True
            try:
                handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(handle, file):  # the other writer removed it after we opened it
                os.close(handle)
                continue
        except BlockingIOError:
            os.close(handle)
            raise OutputBusyError(f"{path} is being written by another process; wait for it to end") from None
        except OSError:  # a file system without locks
            os.close(handle)
            file.unlink(missing_ok=True)
            return None
        if existed:
            _remove_leftovers(path)
        return handle


def _unlock(path: Path, lock: int | None, *, removed: bool = True) -> None:
    """Unlock a path; keep the lock file if a temporary file is left, which the next writer then removes."""
    if lock is None:
        return
    if removed:
        _beside(path, "lock").unlink(missing_ok=True)
    os.close(lock)


def _is_at(handle: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(file))
    except FileNotFoundError:
        return False


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files of a path whose writers were killed."""
    for name in os.listdir(path.parent):
        match = _OURS.fullmatch(name)
        if match is not None and match["of"] == path.name and match["ending"] != "lock":
            _remove(path.parent / name)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync_tree(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(Path(parent, name), "rb+") as handle:
                os.fsync(handle.fileno())
        sync_folder(Path(parent))
