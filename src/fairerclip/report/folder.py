"""A folder of files that one call writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from fairerclip.errors import OutputExistsError
from fairerclip.files import atomic_file, atomic_folder


def check_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that is taken, unless overwriting the files of a folder was asked for."""
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{folder} is a file; give the name of a folder")
    if folder.exists() and not overwrite:
        raise OutputExistsError(f"{folder} exists; choose another name or pass overwrite=True (--overwrite)")


def write_folder(
    folder: Path, contents: Mapping[str, bytes], ours: Iterable[str], *, overwrite: bool
) -> list[Path]:
    """Write named files: a new folder appears whole; in an old one each file does.

    ``ours`` are the names that this kind of folder may hold: those of an earlier call that are not written
    again are deleted, so that old and new are never taken for one. Other files are left alone.
    """
    check_folder(folder, overwrite)
    if not folder.exists():
        with atomic_folder(folder) as fresh:
            for name, content in contents.items():
                (fresh / name).write_bytes(content)
        return [folder / name for name in contents]
    for name in sorted(set(ours) - set(contents)):
        (folder / name).unlink(missing_ok=True)
    for name, content in contents.items():
        with atomic_file(folder / name, overwrite=True) as handle:
            handle.write(content)
    return [folder / name for name in contents]
