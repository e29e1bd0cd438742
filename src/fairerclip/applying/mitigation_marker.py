"""``mitigated.json``: which model a folder of mitigated embeddings is written with, and whether it is complete."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fairerclip import __version__
from fairerclip._util.files import atomic_file
from fairerclip.data.io.strict_json import read_versioned_json
from fairerclip.errors import OutputExistsError, StoreError

MARKER = "mitigated.json"
FORMAT, FORMAT_VERSION = "fairerclip-mitigated", 1
KEYS = {
    "format",
    "format_version",
    "fairerclip_version",
    "complete",
    "model",
    "unit",
    "rows",
    "width",
    "files",
}


@dataclass(frozen=True)
class MitigationMarker:
    """Description of a folder of mitigated embeddings.

    Attributes
    ----------
    model : str
        SHA-256 of the mitigator's map.
    unit : bool
        Whether rows are scaled to unit length.
    rows, width : int
        Shape of the collection.
    files : dict
        Name of each partition → its number of rows and its type; empty for a store of fairerclip's own layout.
    complete : bool
        Whether everything is written.
    """

    model: str
    unit: bool
    rows: int
    width: int
    files: dict[str, list[Any]]
    complete: bool = False

    def write(self, folder: Path) -> None:
        """Write the marker into a folder, in one step."""
        values = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "fairerclip_version": __version__,
            **asdict(self),
        }
        with atomic_file(folder / MARKER, overwrite=True) as handle:
            handle.write(json.dumps(values, indent=1).encode())

    def check_resumed(self, folder: Path) -> bool:
        """Return whether the folder is complete; raise if it was begun with another model, setting or source."""
        earlier = read_marker(folder)
        for name, what in (("model", "another model"), ("unit", "another setting of unit")):
            if getattr(earlier, name) != getattr(self, name):
                raise OutputExistsError(
                    f"{folder} was written with {what}, so nothing was written; choose another folder, or remove it"
                )
        if replace(earlier, complete=self.complete) != self:
            raise OutputExistsError(
                f"{folder} was written from another collection ({earlier.rows:,} rows in {len(earlier.files)} "
                f"partitions, this one has {self.rows:,} in {len(self.files)}), so nothing was written; choose another "
                "folder, or remove it"
            )
        return earlier.complete


def read_marker(folder: Path) -> MitigationMarker:
    """Read and check the marker of a folder of mitigated embeddings."""
    file = folder / MARKER
    values = read_versioned_json(file, StoreError, FORMAT, FORMAT_VERSION)
    if set(values) != KEYS or not _valid(values):
        raise StoreError(f"{file}: it is damaged, or was changed; remove the folder and write it again")
    return MitigationMarker(
        *(values[name] for name in ("model", "unit", "rows", "width", "files", "complete"))
    )


def _valid(values: dict[str, Any]) -> bool:
    files = values["files"]
    return (
        isinstance(values["model"], str)
        and re.fullmatch(r"[0-9a-f]{64}", values["model"]) is not None
        and all(type(values[name]) is bool for name in ("unit", "complete"))
        and all(type(values[name]) is int and values[name] > 0 for name in ("rows", "width"))
        and isinstance(files, dict)
        and all(
            isinstance(entry, list)
            and len(entry) == 2
            and type(entry[0]) is int
            and isinstance(entry[1], str)
            for entry in files.values()
        )
    )
