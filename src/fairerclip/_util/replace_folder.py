"""Replacement of a folder by a new one, in one step where the system can, keeping the user's own files in it."""

from __future__ import annotations

import os
import shutil
import stat
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fairerclip._util.exchange import swap, sync_folder
from fairerclip.errors import NotOneStepWarning, OutputExistsError


def replace_folder(path: Path, fresh: Path, ours: Sequence[str], last: Sequence[str]) -> None:
    """Put the folder ``fresh`` in the place of ``path``; keep the files of ``path`` that are not ours.

    Our files are those in ``fresh`` and those named in ``ours``. Where one step is not possible, files are replaced
    one by one with a `NotOneStepWarning`, those named in ``last`` after the others.
    """
    written = {str(file.relative_to(fresh)) for file in fresh.rglob("*")}
    replaced = written | {*ours}
    for name in sorted(replaced):  # replacing a user's folder by a file would delete everything in it
        _check_replaced(path / name, folder=(fresh / name).is_dir())
    names = os.listdir(fresh)
    if not _is_working_folder(path):
        _carry(path, fresh, replaced)
        os.chmod(fresh, stat.S_IMODE(path.stat().st_mode))
        if swap(fresh, path):
            sync_folder(path.parent)
            _carry(fresh, path, replaced)  # files that somebody put there meanwhile
            return
    warnings.warn(
        f"{path} cannot be replaced in one step (it is a network folder, on an older system, or the current folder): "
        "its files are replaced one by one; if this is interrupted, old and new files are mixed",
        NotOneStepWarning,
        stacklevel=6,
    )
    for name in {*ours} - written:
        (path / name).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: name in last):
        _move(fresh / name, path / name)
    sync_folder(path)


def _check_replaced(target: Path, *, folder: bool) -> None:
    """Raise if a file would replace a folder or a link, or a folder would replace anything but a folder."""
    if os.path.lexists(target) and (
        target.is_symlink() or not (target.is_dir() if folder else target.is_file())
    ):
        raise OutputExistsError(
            f"{target} is not a plain {'folder' if folder else 'file'}; remove it, or choose another name"
        )


def _is_working_folder(path: Path) -> bool:
    """Return whether the working folder of this process is the folder or below it, so that it must not be removed."""
    try:
        return Path.cwd().is_relative_to(path.resolve())
    except FileNotFoundError:  # somebody has removed the working folder
        return False


def _carry(old: Path, new: Path, skipped: set[str], inside: str = "") -> None:
    """Link the files of an old folder into the new one, or copy them where links are not possible."""
    changed = False
    for entry in [*os.scandir(old)]:
        name = os.path.join(inside, entry.name)
        target = new / entry.name
        if entry.is_dir(follow_symlinks=False) and (target.is_dir() or name not in skipped):
            is_new = not target.is_dir()
            if is_new:
                target.mkdir()
                changed = True
            _carry(old / entry.name, target, skipped, name)
            if is_new:
                shutil.copymode(entry.path, target)  # last, as the mode may forbid writing
        elif name not in skipped and not _same(old / entry.name, target):
            with suppress(FileNotFoundError):  # somebody has removed it meanwhile
                _link(old / entry.name, target)
                changed = True
    if changed:
        sync_folder(new)


def _same(first: Path, second: Path) -> bool:
    try:
        a, b = first.lstat(), second.lstat()
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
            raise  # copying a pipe would wait until somebody writes to it
        shutil.copy2(source, target, follow_symlinks=False)


def _move(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for name in os.listdir(source):
            _move(source / name, target / name)
    else:
        os.replace(source, target)
