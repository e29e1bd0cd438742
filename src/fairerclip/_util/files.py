"""Reading files of a bounded size; writing so that a path holds either the old content or the whole new one.

A file or folder is made under a hidden name beside its path, ``.NAME.TOKEN.tmp``, and put in place in one step. While
it is made, the lock ``.NAME.lock`` keeps other writers away. A process that is killed leaves both behind; the next
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
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fairerclip._util.exchange import rename_to_free, swap
from fairerclip.errors import (
    FairerClipError,
    NotOneStepWarning,
    OutputBusyError,
    OutputError,
    OutputExistsError,
)

_OURS = re.compile(r"\.(?P<of>.+)\.(?P<ending>[0-9a-f]{16}\.tmp|lock)", re.DOTALL)
"""Names of temporaries and locks, with the name of what is written."""
LONGEST_NAME = 230
"""Bytes of a name: file systems take 255, and while a file is written its name is longer."""


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


def read_bounded(path: Path, limit: int, error: type[FairerClipError]) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; anything else is ``error``, before memory is taken.

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
            if found.st_size > limit:
                raise error(f"{path}: expected at most {limit:,} bytes, got {found.st_size:,}")
            content = handle.read(min(limit, found.st_size))  # read(n) takes n bytes of memory at once
            if handle.read(1):  # the file has grown meanwhile
                raise error(f"{path}: expected at most {limit:,} bytes, got more")
            return content
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        if isinstance(problem, error):
            raise
        raise error(
            f"{path}: expected a readable file, got {getattr(problem, 'strerror', None) or problem}"
        ) from None


# Before the work ------------------------------------------------------------------------------------


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse, before the work, a file that could not be written after it: taken, or in a folder that is not ours."""
    _check_file(path, overwrite)
    _check_writable(path)


def check_folder(path: Path, overwrite: bool) -> None:
    """Refuse, before the work, a folder that could not be written after it: taken, or not ours to write into."""
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
                raise OutputExistsError(f"{path} is a link or a device, not a plain file; it is left alone")


def _check_folder(path: Path, overwrite: bool) -> None:
    check_name(path)
    with writing(path):
        if path.exists() and not path.is_dir():
            raise OutputExistsError(f"{path} is a file; give the name of a folder")
        if os.path.lexists(path):
            _check_taken(path, overwrite)
            if path.is_symlink():
                raise OutputExistsError(f"{path} is a link; give the name of the folder that it leads to")


def _check_taken(path: Path, overwrite: bool) -> None:
    if not overwrite:
        raise OutputExistsError(f"{path} exists; choose another name or pass overwrite=True (--overwrite)")


def check_name(path: Path) -> None:
    """Refuse, before anything is read, a name that nothing could be written under."""
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
    """The path with the name that ``.`` and ``..`` stand for."""
    return path if path.name not in ("", "..") else Path(os.path.abspath(path))


def _check_writable(path: Path) -> None:
    """Make a file, without a name where the system can, in the folder that the path or its parents will be made in."""
    with writing(path):
        lock = _beside(_named(path), "lock")
        if os.path.lexists(lock) and (lock.is_symlink() or not lock.is_file()):
            raise OutputError(f"{path} cannot be written: {lock} is in the way, and is not a lock of ours")
        if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        folder = next(parent for parent in _named(path).absolute().parents if os.path.lexists(parent))
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system says against writing a path, as our error."""
    try:
        yield
    except OSError as problem:
        if isinstance(problem, FairerClipError):
            raise
        raise OutputError(
            f"{path} cannot be written: {problem.strerror or problem}; make room for it or choose another place"
        ) from problem


# Writing --------------------------------------------------------------------------------------------


@contextmanager
def atomic_file(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """A binary handle whose content appears at ``path`` when the block ends well, and not before."""
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
    """A new folder to fill, which appears at ``path`` when the block ends well, and not before.

    With ``overwrite`` it takes the place of a folder that is there, in one step. Files of the old folder stay, but for
    those that are written anew and those called as one of ``ours``, which an earlier call may have written.

    Where the system cannot exchange two folders in one step, and for the folder that we work in, files are replaced
    one by one, those called as one of ``last`` after the others, with a `NotOneStepWarning`.
    """
    _check_folder(path, overwrite)
    path = _named(path)
    with _sole_writer(path) as fresh:
        fresh.mkdir()
        yield fresh
        _sync_tree(fresh)
        _check_folder(path, overwrite)
        if overwrite and os.path.lexists(path):
            _replace_folder(path, fresh, ours, last)
        else:
            _take_name(fresh, path)
        sync_folder(path.parent)


def write_folder(
    path: Path, contents: Mapping[str, bytes], *, overwrite: bool, ours: Sequence[str] = ()
) -> list[Path]:
    """Write named files into a folder as `atomic_folder` does, the last of them last; returns the files."""
    with atomic_folder(path, overwrite=overwrite, ours=ours, last=[*contents][-1:]) as fresh:
        for name, content in contents.items():
            (fresh / name).write_bytes(content)
    return [path / name for name in contents]


@contextmanager
def sole_use(path: Path) -> Iterator[None]:
    """Keep a folder from other processes that ask for it likewise; `OutputBusyError` where one has it.

    What killed processes left among its files is removed.
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
    """Whether a file was left by a process that was killed while it wrote one whose name matches ``written``."""
    found = _OURS.fullmatch(path.name)
    if found is None or not re.fullmatch(written, found["of"]) or path.is_symlink() or not path.is_file():
        return False
    return found["ending"] != "lock" or not path.stat().st_size


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk, where the system can tell."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system whose folders cannot be synced
            raise
    finally:
        os.close(handle)


def _take_name(temporary: Path, path: Path) -> None:
    try:
        rename_to_free(temporary, path)
    except FileExistsError:
        raise OutputExistsError(
            f"{path} has been made by another process meanwhile; it is left alone"
        ) from None


@contextmanager
def _sole_writer(path: Path) -> Iterator[Path]:
    """The name of a temporary beside a path, for the one writer that the path has; what is left of it is removed."""
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
    """Lock a path against other writers; None where the system has no locks, and two writers are the user's care.

    The lock falls with the process, however it ends. Its file is removed by a writer that ends in order: one that is
    there, and not locked, is of a writer that was killed.
    """
    try:
        import fcntl
    except ImportError:
        return None
    file = _beside(path, "lock")
    while True:
        found = False
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            found = True
            try:
                handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(handle, file):  # its writer ended between our two steps
                os.close(handle)
                continue
        except BlockingIOError:
            os.close(handle)
            raise OutputBusyError(f"{path} is being written by another process; wait for it to end") from None
        except OSError:  # a file system without locks
            os.close(handle)
            file.unlink(missing_ok=True)
            return None
        if found:
            _remove_leftovers(path)
        return handle


def _unlock(path: Path, lock: int | None, *, removed: bool = True) -> None:
    """Unlock a path; the file of the lock stays where something is left for the next writer to remove."""
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
    """Remove temporaries of a path whose writers were killed."""
    for name in os.listdir(path.parent):
        found = _OURS.fullmatch(name)
        if found is not None and found["of"] == path.name and found["ending"] != "lock":
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


# Replacing a folder ---------------------------------------------------------------------------------


def _replace_folder(path: Path, fresh: Path, ours: Sequence[str], last: Sequence[str]) -> None:
    written = {str(file.relative_to(fresh)) for file in fresh.rglob("*")}
    for name in sorted(
        written | {*ours}
    ):  # a folder of the user's in the place of a file would go with all it holds
        _check_replaced(path / name, folder=(fresh / name).is_dir())
    names = os.listdir(fresh)
    if not _is_working_folder(path):
        _carry(path, fresh, written | {*ours})
        os.chmod(fresh, stat.S_IMODE(path.stat().st_mode))
        if swap(fresh, path):
            sync_folder(path.parent)
            _carry(fresh, path, written | {*ours})  # what somebody put there meanwhile
            return
    warnings.warn(
        f"{path} cannot be replaced in one step here (a network folder, an older system, or the folder that you are "
        "in): its files are replaced one by one, and are of two kinds if this is broken off",
        NotOneStepWarning,
        stacklevel=6,
    )
    for name in {*ours} - written:
        (path / name).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: name in last):
        _move(fresh / name, path / name)
    sync_folder(path)


def _check_replaced(target: Path, *, folder: bool) -> None:
    """Refuse to put a file in the place of a folder or a link, or a folder in that of anything else."""
    if os.path.lexists(target) and (
        target.is_symlink() or not (target.is_dir() if folder else target.is_file())
    ):
        raise OutputExistsError(f"{target} is not a plain {'folder' if folder else 'file'}; it is left alone")


def _is_working_folder(path: Path) -> bool:
    """Whether we are in a folder or below it: exchanged and removed, it would leave us nowhere."""
    try:
        return Path.cwd().is_relative_to(path.resolve())
    except FileNotFoundError:  # somebody has removed where we are
        return False


def _carry(old: Path, new: Path, skipped: set[str], inside: str = "") -> None:
    """Link what there is in an old folder into the new one, or copy it where links are not possible."""
    carried = False
    for entry in [*os.scandir(old)]:
        name = os.path.join(inside, entry.name)
        target = new / entry.name
        if entry.is_dir(follow_symlinks=False) and (target.is_dir() or name not in skipped):
            made = not target.is_dir()
            if made:
                target.mkdir()
                carried = True
            _carry(old / entry.name, target, skipped, name)
            if made:
                shutil.copymode(entry.path, target)  # last, as it may forbid to write
        elif name not in skipped and not _same(old / entry.name, target):
            with suppress(FileNotFoundError):  # somebody has removed it meanwhile
                _link(old / entry.name, target)
                carried = True
    if carried:
        sync_folder(new)


def _same(one: Path, other: Path) -> bool:
    try:
        a, b = one.lstat(), other.lstat()
    except FileNotFoundError:
        return False
    return os.path.samestat(a, b) or (a.st_size, a.st_mtime_ns) == (b.st_size, b.st_mtime_ns)


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        if not source.is_symlink() and not source.is_file():
            raise  # reading a pipe would wait for somebody to write to it
        shutil.copy2(source, target, follow_symlinks=False)


def _move(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for name in os.listdir(source):
            _move(source / name, target / name)
    else:
        os.replace(source, target)
