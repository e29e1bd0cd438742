"""Writing files so that a path holds either the old content or the whole new one."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fairerclip.errors import OutputExistsError


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
