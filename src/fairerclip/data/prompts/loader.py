"""Reading of prompt files: those of the package by name, user files by path; both are checked."""

from __future__ import annotations

import codecs
import os
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fairerclip._util.files import read_bounded, reading
from fairerclip.data.io.strict_json import strict_loads
from fairerclip.data.prompts.parse import parse_prompts
from fairerclip.data.prompts.prompt_set import PromptSet, unknown
from fairerclip.errors import PromptFileError

SUFFIXES = (".json", ".toml")
MAX_TOML_BYTES = 512 * 1024
MAX_KEY_PARTS, MAX_BRACKETS = 5, 10_000
"""Most parts of a dotted TOML key (tomllib stores every prefix of it), and most lines that begin with a bracket."""
_PART = rb"""(?:(?<![A-Za-z0-9_-])[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+"""
_LONG_KEY = re.compile(rb"(?:%b){%d}" % (_PART, MAX_KEY_PARTS))
MAX_BYTES = 4 * 1024**2
_PACKAGE = "fairerclip.data.prompts"


def available_prompts() -> list[str]:
    """Return the names of the prompt sets of the package, sorted.

    Examples
    --------
    >>> "waterbirds" in available_prompts()
    True
    """
    return sorted(
        file.name.removesuffix(".json") for file in files(_PACKAGE).iterdir() if file.name.endswith(".json")
    )


@reading(PromptFileError)
def load_prompts(name_or_path: str | os.PathLike[str]) -> PromptSet:
    """Read a prompt set and check it.

    Parameters
    ----------
    name_or_path : str or path-like
        A name of `available_prompts`, or the path of a ``.json`` or ``.toml`` file in the same format, which may
        consist of ``classes`` and ``sensitive`` alone; its name is then that of the file. A prompt set of the
        package takes precedence over a file of its name; write ``./name.json`` for the file.

    Returns
    -------
    PromptSet
        Prompt set with templates filled in.

    Raises
    ------
    PromptFileError
        There is no such name or file, or its content is not a prompt set.

    Examples
    --------
    >>> load_prompts("waterbirds").class_prompts()
    (('This is a picture of a landbird.',), ('This is a picture of a waterbird.',))
    """
    text = os.fspath(name_or_path)
    if text in available_prompts():
        content = (files(_PACKAGE) / f"{text}.json").read_bytes()
        return parse_prompts(_from_json(content, text), f"prompt set {text!r}")
    path = Path(text)
    looks_like_path = path.suffix.lower() in SUFFIXES or len(path.parts) > 1 or os.path.exists(text)
    if isinstance(name_or_path, str) and not looks_like_path:
        raise PromptFileError(
            unknown("prompts", "set", text, available_prompts())
            + "; or give the path of a .json or .toml file"
        )
    return parse_prompts(_read(path), str(path), stem=path.stem)


def _read(path: Path) -> Mapping[str, Any]:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise PromptFileError(
            f"{path}: expected a prompt file ({', '.join(SUFFIXES)}), got {suffix or 'no suffix'}"
        )
    if suffix == ".toml":
        return _from_toml(path)
    return _from_json(read_bounded(path, MAX_BYTES, PromptFileError), str(path))


def _from_toml(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file; tomllib makes a million entries from a dotted key of a thousand parts."""
    raw = read_bounded(file, MAX_TOML_BYTES, PromptFileError)
    if _LONG_KEY.search(raw):
        raise PromptFileError(f"{file}: expected keys of at most {MAX_KEY_PARTS} parts, got a longer one")
    if sum(line.lstrip().startswith(b"[") for line in raw.split(b"\n")) > MAX_BRACKETS:
        raise PromptFileError(f"{file}: expected at most {MAX_BRACKETS:,} tables, got more")
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as problem:
        raise PromptFileError(f"{file}: expected TOML, got {type(problem).__name__}: {problem}") from None


def _from_json(content: bytes, where: str) -> Mapping[str, Any]:
    # Some editors write a byte order mark before the text.
    data = strict_loads(content.removeprefix(codecs.BOM_UTF8), where, PromptFileError, limit=MAX_BYTES)
    if not isinstance(data, dict):
        raise PromptFileError(f"{where}: expected an object with classes and prompts, got {_kind(data)}")
    return data


def _kind(value: object) -> str:
    return type(value).__name__
