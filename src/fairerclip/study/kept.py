"""Answers of long work, one JSON file each, so that what was done is not done again."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairerclip._util.files import atomic_file
from fairerclip.data.io.strict_json import read_strict_json
from fairerclip.errors import KeptRunWarning, ResultsFileError

MAX_BYTES, MAX_VALUES = 8 << 20, 2_000_000
"""Of one answer, which may hold the predicted class of every row."""


def read_kept(file: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer that a file keeps for a key; None where there is none, or one of another key.

    A file that is damaged, or that we did not write, is told in a `KeptRunWarning` and stands for no answer.
    """
    try:
        os.lstat(file)
    except FileNotFoundError:
        return None
    except OSError:
        pass  # a folder that may not be looked into is told below
    try:
        found = read_strict_json(file, ResultsFileError, limit=MAX_BYTES, values=MAX_VALUES)
        if isinstance(found, dict) and set(found) == {"key", "run"}:
            return None  # as an earlier version kept it
        if not isinstance(found, dict) or set(found) != {"key", "answer", "sha256"}:
            raise ResultsFileError(f"{file}: expected a key, an answer and its digest")
        if not isinstance(found["answer"], dict) or found["sha256"] != _digest(found["answer"]):
            raise ResultsFileError(f"{file} does not match its digest: the file is damaged or was changed")
    except ResultsFileError as error:
        warnings.warn(f"a kept run cannot be used and is run again: {error}", KeptRunWarning, stacklevel=2)
        return None
    return found["answer"] if found["key"] == key else None


def write_kept(file: Path, key: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Keep the answer for a key."""
    content = {"key": key, "answer": answer, "sha256": _digest(answer)}
    with atomic_file(file, overwrite=True) as handle:
        handle.write(json.dumps(content, allow_nan=False).encode())


def _digest(answer: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(answer, allow_nan=False).encode()).hexdigest()
