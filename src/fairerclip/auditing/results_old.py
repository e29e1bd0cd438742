"""``results.json``: what an audit writes and every report is made from, read as untrusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairerclip._util.files import atomic_file, reading
from fairerclip.auditing.results_format import FORMAT, RESULTS, VERSION
from fairerclip.auditing.structure import checked
from fairerclip.data.io.strict_json import read_strict_json, strict_loads
from fairerclip.errors import ResultsFileError

FILE_NAME = "results.json"
MAX_BYTES = 16 << 20
LINE = 160
"""What fits into this many characters stands on one line of the file."""


@reading(ResultsFileError)
def read_results(path: str | Path) -> dict[str, Any]:
    """What a file of results, or a folder with ``results.json``, holds, checked against the format.

    The file is not trusted: its size is limited, its JSON read strictly, and everything in it is of the
    type and length that the format gives, so that what is made of it need not check again. Keys that the
    format does not know are left out. O(size of the file).

    Raises
    ------
    ResultsFileError
        With the path of the file and the place inside the document.
    """
    path = Path(path)
    file = path / FILE_NAME if path.is_dir() else path
    if not file.exists():
        raise ResultsFileError(
            f"{file}: expected a file of results or a folder with {FILE_NAME}; got neither"
        )
    document = read_strict_json(file, ResultsFileError, limit=MAX_BYTES)
    try:
        return check_results(document)
    except ResultsFileError as error:
        raise ResultsFileError(f"{file}: {error}") from None


def write_results(results: Mapping[str, Any], path: str | Path, *, overwrite: bool = False) -> Path:
    """Write results, checked first, as JSON with short lines that can be compared; returns the path."""
    document = check_results(dict(results), exact=True)
    path = Path(path)
    raw = (_lines(document, 0) + "\n").encode()
    if len(raw) > MAX_BYTES:
        raise ResultsFileError(
            f"{path}: expected results of at most {MAX_BYTES} bytes, got {len(raw)}; audit fewer groups or τ"
        )
    strict_loads(raw, str(path), ResultsFileError, limit=MAX_BYTES)  # nothing is written that cannot be read
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(raw)
    return path


def check_results(document: Any, *, exact: bool = False) -> dict[str, Any]:
    """A copy of a document that the format allows; a key beyond it is left out, or refused if ``exact``."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ResultsFileError(f"expected results that `fairerclip audit` wrote (format {FORMAT!r})")
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ResultsFileError(
            f"expected version {VERSION} or older, got a later one: made by a newer fairerclip; update yours"
        )
    return dict(checked(document, RESULTS, ResultsFileError, exact=exact))


def _lines(value: Any, depth: int) -> str:
    """JSON in which what is short stands on one line and what is long is broken up by one level."""
    short = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if len(short) <= LINE or not isinstance(value, dict | list):
        return short
    inner = "\n" + " " * (depth + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(k, ensure_ascii=False)}: {_lines(v, depth + 1)}" for k, v in value.items()]
        opening, closing = "{}"
    else:
        items = [_lines(item, depth + 1) for item in value]
        opening, closing = "[]"
    return f"{opening}{inner}{f',{inner}'.join(items)}\n{' ' * depth}{closing}"
