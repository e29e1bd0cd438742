"""Renames in one step that `os` does not have: exchange two folders, or take a name only if it is free."""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
"""What a system or file system answers that does not know these renames."""
_HERE = -100
"""Linux' AT_FDCWD: names are relative to the working folder."""
_FLAGS = {"linux": {"swap": 2, "free": 1}, "darwin": {"swap": 2, "free": 4}}
"""RENAME_EXCHANGE and RENAME_NOREPLACE of renameat2(2); RENAME_SWAP and RENAME_EXCL of renamex_np(2)."""


def swap(one: Path, other: Path) -> bool:
    """Exchange two folders in one step; False, with nothing done, where the system or file system cannot."""
    return _rename(one, other, "swap")


def rename_to_free(source: Path, target: Path) -> None:
    """Rename a file or folder to a name that must be free, an empty folder not being so; FileExistsError else.

    Of several that do so at once exactly one succeeds. Where the system has no such rename, the name is taken first
    by an empty file or folder, which a process that is killed at that moment leaves behind.
    """
    if os.name == "nt":
        os.rename(source, target)  # never replaces there
    elif not _rename(source, target, "free"):
        if source.is_dir():
            target.mkdir()
        else:
            target.open("xb").close()
        os.replace(source, target)


def _rename(source: Path, target: Path, kind: str) -> bool:
    import ctypes

    function = _function()
    if function is None:
        return False
    names = [os.fsencode(source), os.fsencode(target)]
    flag = _FLAGS[sys.platform][kind]
    if sys.platform == "linux":
        failed = function(_HERE, names[0], _HERE, names[1], flag)
    else:
        failed = function(*names, flag)
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))


@cache
def _function() -> Any:
    """The C library's rename with flags, or None."""
    import ctypes

    names = {"linux": "renameat2", "darwin": "renamex_np"}
    if sys.platform not in names:
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), names[sys.platform], None)
    if function is not None:
        text, number, flags = ctypes.c_char_p, ctypes.c_int, ctypes.c_uint
        ours = [number, text, number, text, flags] if sys.platform == "linux" else [text, text, flags]
        function.argtypes, function.restype = ours, number
    return function
