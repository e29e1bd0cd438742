"""Prompts to token ids, from ``tokenizer.json`` alone: the tokenizers library reads it as data.

The tokenizer classes of transformers are not asked: which class is used, and which Python file it comes from, would
be for the folder to say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fairerclip._util.extras import require
from fairerclip._util.files import read_bounded
from fairerclip.data.io.strict_json import strict_loads
from fairerclip.encoders.config import MAX_VOCABULARY, TOKENIZER, TOKENIZER_IGNORED, checked, is_whole
from fairerclip.encoders.encoder import check_prompts, one_line
from fairerclip.encoders.preprocess import read_json
from fairerclip.encoders.tokenizer_rules import check_tokenizer
from fairerclip.encoders.weight_files import member
from fairerclip.errors import EncoderError, FairerClipError

TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILES = ("tokenizer_config.json", "special_tokens_map.json")
MAX_TOKENIZER_BYTES = 64 * 1024**2
MAX_TOKENIZER_VALUES = 2_500_000
"""The largest published ones, of multilingual models, take some 40 MB and two million tokens and parts of merges."""
MAX_SETTINGS_BYTES = 16 * 1024**2
"""``tokenizer_config.json`` repeats every added token."""
_PADDING = ("[PAD]", "<pad>", "<|endoftext|>")
_SEPARATORS = ("[SEP]", "</s>")


@dataclass(frozen=True)
class Tokens:
    """A tokenizer of the tokenizers library whose rows are padded on the right.

    Attributes
    ----------
    tokenizer : tokenizers.Tokenizer
    context : int
        Ids of a row.
    pad_id : int
        Fills a row after the prompt.
    zeroed_id : int or None
        An id that becomes 0 wherever it is.
    clean : callable or None
        What happens to a prompt first.
    """

    tokenizer: Any
    context: int
    pad_id: int
    zeroed_id: int | None = None
    clean: Callable[[str], str] | None = None

    def ids(self, prompts: Sequence[str]) -> np.ndarray:
        """Rows (m, context) int64; a prompt that is too long for the model is an error."""
        texts = list(prompts) if self.clean is None else [self.clean(prompt) for prompt in prompts]
        try:
            rows = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception
            _refuse(error, "the tokenizer cannot read these prompts")
        check_prompts(prompts, [len(row) for row in rows], self.context)
        out = np.full((len(rows), self.context), self.pad_id, np.int64)
        for target, row in zip(out, rows, strict=True):
            target[: len(row)] = row
        if self.zeroed_id is not None:
            out[out == self.zeroed_id] = 0
        return out


def read_tokenizer(path: Path) -> Any:
    """A ``tokenizer.json`` without padding and truncation of its own; see `check_tokenizer` for what is refused."""
    library = require("tokenizers", "onnx", "reading a tokenizer")
    raw = read_bounded(path, MAX_TOKENIZER_BYTES, EncoderError)
    limits = {"limit": MAX_TOKENIZER_BYTES, "values": MAX_TOKENIZER_VALUES}
    check_tokenizer(strict_loads(raw, str(path), EncoderError, **limits), str(path))
    try:
        tokenizer = library.Tokenizer.from_buffer(raw)
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception
        _refuse(error, f"{path} is not a tokenizer")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def folder_tokens(
    folder: Path, context: int, *, strip_separator: bool = False, clean: Callable[[str], str] | None = None
) -> Tokens:
    """The tokenizer of a model's folder: ``tokenizer.json``, or CLIP's ``vocab.json`` and ``merges.txt``.

    Parameters
    ----------
    folder : Path
        With ``tokenizer_config.json`` or ``special_tokens_map.json`` if the padding is not a usual one.
    context : int
        Ids that the model reads.
    strip_separator : bool
        Separators become 0.
    clean : callable, optional
        What happens to a prompt first.
    """
    file = member(folder, TOKENIZER_FILE)
    settings: dict[str, Any] = {}
    for name in reversed(SETTINGS_FILES):
        path = member(folder, name)
        if os.path.isfile(path):
            found = read_json(path, limit=MAX_SETTINGS_BYTES)
            settings |= checked(found, TOKENIZER, str(path), TOKENIZER_IGNORED)
    if os.path.isfile(file):
        tokenizer = read_tokenizer(file)
    elif all(os.path.isfile(member(folder, name)) for name in ("vocab.json", "merges.txt")):
        tokenizer = _clip_tokenizer(folder)
    else:
        raise EncoderError(
            f"{folder} holds no {TOKENIZER_FILE}; other forms of a tokenizer are not read: fetch it from where the "
            "model is published, or make it once as docs/encoders.md shows"
        )
    return Tokens(
        tokenizer,
        context,
        _special(folder, tokenizer, settings.get("pad_token"), "pad_token", _PADDING),
        _special(folder, tokenizer, settings.get("sep_token"), "sep_token", _SEPARATORS)
        if strip_separator
        else None,
        clean,
    )


def _special(folder: Path, tokenizer: Any, named: Any, role: str, usual: Sequence[str]) -> int:
    """The id of a special token: the one that the folder names, or a usual one of the vocabulary."""
    names = usual if named is None else [named if isinstance(named, str) else named["content"]]
    for name in names:
        try:
            found = tokenizer.token_to_id(name)
        except UnicodeEncodeError:  # half of a surrogate pair
            found = None
        if found is not None:
            return int(found)
    raise EncoderError(
        f"{folder}: expected a {role} of the vocabulary, such as {usual[0]}, got {', '.join(map(ascii, names))[:120]}; "
        f"name it in {SETTINGS_FILES[0]}"
    )


def _clip_tokenizer(folder: Path) -> Any:
    """CLIP's own tokenizer, of its two files as they were before there was ``tokenizer.json``."""
    library = require("transformers", "transformers", "reading vocab.json and merges.txt")
    vocabulary = read_json(member(folder, "vocab.json"), limit=MAX_SETTINGS_BYTES)
    if not all(is_whole(number) and 0 <= number < MAX_VOCABULARY for number in vocabulary.values()):
        raise EncoderError(
            f"{folder / 'vocab.json'}: expected an id from 0 to {MAX_VOCABULARY - 1} for each token"
        )
    raw = read_bounded(member(folder, "merges.txt"), MAX_SETTINGS_BYTES, EncoderError)
    try:
        lines = [line for line in raw.decode().split("\n") if line and not line.startswith("#version")]
        merges = [tuple(line.split()) for line in lines]
        return library.CLIPTokenizer(vocab=vocabulary, merges=merges).backend_tokenizer
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is no Exception
        _refuse(error, f"{folder}: vocab.json and merges.txt are not a tokenizer")


def _refuse(error: BaseException, what: str) -> NoReturn:
    """Pass on that the user stopped us, or our own error; anything else is the file's fault."""
    if isinstance(error, FairerClipError | KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    raise EncoderError(f"{what}: {one_line(error)}") from None
