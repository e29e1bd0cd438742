"""``index.json``: the description of a search index."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fairerclip import __version__
from fairerclip.data.io.strict_json import read_versioned_json
from fairerclip.data.provenance import Provenance
from fairerclip.errors import IndexFileError, ProvenanceError

MANIFEST, IDS = "index.json", "ids.txt"
SIDES = {"original": "original.index", "mitigated": "mitigated.index"}
"""The two indexes → their files."""
KINDS = ("flat", "ivf", "pq")
FORMAT, FORMAT_VERSION, METRIC = "fairerclip-index", 1, "inner product"
LARGEST = 2**40


@dataclass(frozen=True)
class IndexManifest:
    """Description of a search index.

    Attributes
    ----------
    kind : {"flat", "ivf", "pq"}
        Kind of both indexes.
    rows, width : int
        Shape of the collection.
    unit : bool
        Whether mitigated rows have unit length; original rows always have.
    model : str
        SHA-256 of the mitigator's map.
    named : bool
        Whether rows have ids.
    files : dict
        Name of each file → its bytes and its SHA-256.
    provenance : dict or None
        Model that embedded the images, if known.
    """

    kind: str
    rows: int
    width: int
    unit: bool
    model: str
    named: bool
    files: dict[str, list[Any]]
    provenance: dict[str, Any] | None

    def to_bytes(self) -> bytes:
        """Return the content of ``index.json``."""
        values = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "fairerclip_version": __version__,
            "metric": METRIC,
            **asdict(self),
        }
        return json.dumps(values, indent=1).encode()


def read_index_manifest(folder: Path) -> IndexManifest:
    """Read and check ``index.json`` of a folder."""
    file = folder / MANIFEST
    values = read_versioned_json(file, IndexFileError, FORMAT, FORMAT_VERSION)
    names = [*IndexManifest.__dataclass_fields__]
    if set(values) != {"format", "format_version", "fairerclip_version", "metric", *names} or not _valid(
        values
    ):
        raise IndexFileError(f"{file}: it does not describe an index; build the index again")
    return IndexManifest(*(values[name] for name in names))


def _valid(values: dict[str, Any]) -> bool:
    files = values["files"]
    expected = {*SIDES.values(), *([IDS] if values["named"] else [])}
    try:
        if values["provenance"] is not None:
            Provenance.from_dict(values["provenance"])
    except ProvenanceError:
        return False
    return (
        values["kind"] in KINDS
        and values["metric"] == METRIC
        and all(type(values[name]) is int and 0 < values[name] < LARGEST for name in ("rows", "width"))
        and all(type(values[name]) is bool for name in ("unit", "named"))
        and _is_digest(values["model"])
        and isinstance(files, dict)
        and set(files) == expected
        and all(
            isinstance(entry, list) and len(entry) == 2 and type(entry[0]) is int and _is_digest(entry[1])
            for entry in files.values()
        )
    )


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None
