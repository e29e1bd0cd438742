"""Tokenizers read from ``tokenizer.json``, which the tokenizers library reads as data.

The tokenizer classes of transformers are not used: the folder could choose the class and the Python file that it
comes from.
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
"""Most values of a tokenizer; the largest published ones, of multilingual models, have two million and some 40 MB."""
MAX_SETTINGS_BYTES = 16 * 1024**2
"""Most bytes of ``tokenizer_config.json``, which repeats every added token."""
_PADDING = ("[PAD]", "<pad>", "<|endoftext|>")
_SEPARATORS = ("[SEP]", "</s>")


@dataclass(frozen=True)
class Tokens:
    """A tokenizer of the tokenizers library, with rows padded on the right.

    Attributes
    ----------
    tokenizer : tokenizers.Tokenizer
        Tokenizer without padding and truncation.
    context : int
        Number of ids of a row.
    pad_id : int
        Id that fills a row after the prompt.
    zeroed_id : int or None
        Id that is replaced by 0.
    clean : callable or None
        Function that is applied to a prompt first.
    """

    tokenizer: Any
    context: int
    pad_id: int
    zeroed_id: int | None = None
    clean: Callable[[str], str] | None = None

    @property
    def start(self) -> int:
        """Number of ids before the words of a prompt: 1 for a start token, else 0."""
        return int(self.tokenizer.encode("a").special_tokens_mask[0])

    def ids(self, prompts: Sequence[str], *, room: int = 0) -> np.ndarray:
        """Return token ids (m, context) int64, the last ``room`` of them padding; raise if a prompt is too long."""
        texts = list(prompts) if self.clean is None else [self.clean(prompt) for prompt in prompts]
        try:
            rows = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        except BaseException as error:  # noqa: BLE001 - a panic in Rust is not an Exception
            _reraise(error, "the tokenizer cannot read these prompts")
        check_prompts(prompts, [len(row) for row in rows], self.context - room)
        out = np.full((len(rows), self.context), self.pad_id, np.int64)
        for target, row in zip(out, rows, strict=True):
            target[: len(row)] = row
        if self.zeroed_id is not None:
            out[out == self.zeroed_id] = 0
        return out


def read_tokenizer(path: Path) -> Any:
    """Read ``tokenizer.json`` and switch off its padding and truncation; `check_tokenizer` has the checks."""
    library = require("tokenizers", "onnx", "reading a tokenizer")
    raw = read_bounded(path, MAX_TOKENIZER_BYTES, EncoderError)
    limits = {"limit": MAX_TOKENIZER_BYTES, "values": MAX_TOKENIZER_VALUES}
    check_tokenizer(strict_loads(raw, str(path), EncoderError, **limits), str(path))
    try:
        tokenizer = library.Tokenizer.from_buffer(raw)
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is not an Exception
        _reraise(error, f"{path} is not a tokenizer")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def folder_tokens(
    folder: Path, context: int, *, strip_separator: bool = False, clean: Callable[[str], str] | None = None
) -> Tokens:
    """Read the tokenizer of a model's folder: ``tokenizer.json``, or CLIP's ``vocab.json`` and ``merges.txt``.

    Parameters
    ----------
    folder : Path
        Folder of the model, with ``tokenizer_config.json`` or ``special_tokens_map.json`` if its padding token is
        not a usual one.
    context : int
        Number of ids that the model reads.
    strip_separator : bool
        Whether separators are replaced by 0.
    clean : callable, optional
        Function that is applied to a prompt first.
    """
    file = member(folder, TOKENIZER_FILE)
    settings: dict[str, Any] = {}
    for name in reversed(SETTINGS_FILES):
        path = member(folder, name)
        if os.path.isfile(path):
            values = read_json(path, limit=MAX_SETTINGS_BYTES)
            settings |= checked(values, TOKENIZER, str(path), TOKENIZER_IGNORED)
    if os.path.isfile(file):
        tokenizer = read_tokenizer(file)
    elif all(os.path.isfile(member(folder, name)) for name in ("vocab.json", "merges.txt")):
        tokenizer = _clip_tokenizer(folder)
    else:
        raise EncoderError(
            f"{folder} holds no {TOKENIZER_FILE}; other forms of a tokenizer are not read: download it from where the "
            "model is published, or make it once as docs/how-to/encoders.md shows"
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
    """Return the id of a special token: the one that the folder names, or a usual one in the vocabulary."""
    names = usual if named is None else [named if isinstance(named, str) else named["content"]]
    for name in names:
        try:
            token_id = tokenizer.token_to_id(name)
        except UnicodeEncodeError:  # half of a surrogate pair
            token_id = None
        if token_id is not None:
            return int(token_id)
    raise EncoderError(
        f"{folder}: expected a {role} of the vocabulary, such as {usual[0]}, got {', '.join(map(ascii, names))[:120]}; "
        f"name it in {SETTINGS_FILES[0]}"
    )


def _clip_tokenizer(folder: Path) -> Any:
    """Read CLIP's own tokenizer from ``vocab.json`` and ``merges.txt``, its files before ``tokenizer.json``."""
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
    except BaseException as error:  # noqa: BLE001 - a panic in Rust is not an Exception
        _reraise(error, f"{folder}: vocab.json and merges.txt are not a tokenizer")


def _reraise(error: BaseException, message: str) -> NoReturn:
    """Raise an interrupt or an error of this package again; turn any other into an `EncoderError`."""
    if isinstance(error, FairerClipError | KeyboardInterrupt | SystemExit | GeneratorExit):
        raise error
    raise EncoderError(f"{message}: {one_line(error)}") from None
