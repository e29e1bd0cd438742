"""What `save` may replace: a model of the same kind, a damaged one, and an empty folder; all else is left alone."""

from __future__ import annotations

import os
from pathlib import Path

from fairerclip.errors import ModelFileError, OutputExistsError
from fairerclip.model import earlier_files
from fairerclip.model.contents import CARD, FORMAT, MANIFEST, TENSORS, Manifest
from fairerclip.model.folder_files import read_manifest
from fairerclip.model.kinds import home_of


def check_replaced(path: Path, kind: str, *, overwrite: bool) -> tuple[str, ...]:
    """Raise if the path exists and is no model of a kind, or of a baseline for a baseline.

    Returns the files of an earlier layout that are to be removed.
    """
    if not os.path.lexists(path) or not overwrite:
        return ()  # without overwrite, an existing path is refused elsewhere
    home = home_of(kind)
    earlier = earlier_files.files_in(path)
    manifest = path / (earlier[0] if earlier else MANIFEST)
    files = [manifest, *(path / name for name in (TENSORS, CARD, *earlier))]
    plain = path.is_dir() and not path.is_symlink() and not any(file.is_symlink() for file in files)
    if not plain or not (manifest.is_file() or _is_empty(path)):
        raise _foreign(path)
    try:
        held = _kind_in(path, read_manifest(manifest)[1], manifest.name)
    except ModelFileError:
        if earlier:  # other programs write files of these names, too
            raise _foreign(path) from None
        return ()  # nothing, or a model that is damaged
    try:
        same = home_of(held) is home
    except ModelFileError:
        raise OutputExistsError(
            f"{path} exists and holds a {held!r:.60}, which this version of fairerclip does not know; it is left alone"
        ) from None
    if not same:
        raise OutputExistsError(f"{path} exists and holds a {held}, not a {kind}; it is left alone")
    return earlier


def _foreign(path: Path) -> OutputExistsError:
    return OutputExistsError(f"{path} exists and is not a fairerclip model; it is left alone")


def _kind_in(path: Path, values: Manifest, name: str) -> str:
    """Return the kind of the model of a manifest that could be read; raise if another program wrote it."""
    layout = earlier_files.LAYOUTS.get(str(values.get("format")))
    if layout is None and (values.get("format") != FORMAT or name != MANIFEST):
        raise _foreign(path)
    if layout is not None and layout.manifest != name:
        raise _foreign(path)
    return str(values.get("kind") if layout is None else layout.kind or values.get("baseline"))


def _is_empty(path: Path) -> bool:
    """Return whether a folder has no files but hidden ones, as a new clone of a repository does."""
    return all(name.startswith(".") for name in os.listdir(path))
