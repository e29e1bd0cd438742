"""File-system calls that `os` lacks: exchange two folders, rename to a free name only, flush a folder to disk."""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Error numbers of systems and file systems that do not have these renames."""
_AT_FDCWD = -100
"""Value of AT_FDCWD on Linux: names are relative to the working folder."""
_FLAGS = {"linux": {"swap": 2, "free": 1}, "darwin": {"swap": 2, "free": 4}}
"""RENAME_EXCHANGE and RENAME_NOREPLACE of renameat2(2); RENAME_SWAP and RENAME_EXCL of renamex_np(2)."""


def swap(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; return False, with nothing changed, if the system cannot do it."""
    return _rename(one, other, "swap")


def rename_to_free(source: Path, target: Path) -> None:
    """Rename a file or folder; raise FileExistsError if anything has the new name, even an empty folder.

    If several processes do so at the same time, exactly one succeeds. Where the system has no such rename, an empty
    file or folder reserves the name first; a process that is killed at that moment leaves it behind.
    """
    if os.name == "nt":
        os.rename(source, target)  # on Windows this never replaces
    elif not _rename(source, target, "free"):
        if source.is_dir():
            target.mkdir()
        else:
            target.open("xb").close()
        os.replace(source, target)


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


def _rename(source: Path, target: Path, kind: str) -> bool:
    import ctypes

    function = _function()
    if function is None:
        return False
    names = [os.fsencode(source), os.fsencode(target)]
    flag = _FLAGS[sys.platform][kind]
    if sys.platform == "linux":
        failed = function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], flag)
    else:
        failed = function(*names, flag)
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))


@cache
def _function() -> Any:
    """Return the C library's rename with flags, or None if it has none."""
    import ctypes

    names = {"linux": "renameat2", "darwin": "renamex_np"}
    if sys.platform not in names:
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), names[sys.platform], None)
    if function is not None:
        text, number, flags = ctypes.c_char_p, ctypes.c_int, ctypes.c_uint
        arguments = [number, text, number, text, flags] if sys.platform == "linux" else [text, text, flags]
        function.argtypes, function.restype = arguments, number
    return function
