"""Encoders that onnxruntime runs, without torch.

A folder holds ``image.onnx`` (pixels (b, 3, H, W) float32 → (b, p)), ``text.onnx`` (ids (m, context) int64
→ (m, p)), both with their weights inside, ``tokenizer.json`` and ``preprocess.json``; `export_onnx` writes one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.extras import require
from fairerclip._util.files import read_bounded
from fairerclip.data.provenance import Provenance
from fairerclip.encoders.config import MAX_CONTEXT, MAX_VOCABULARY, MAX_WIDTH, is_whole
from fairerclip.encoders.encoder import ClipEncoder, one_line
from fairerclip.encoders.preprocess import Preprocessing, read_json
from fairerclip.encoders.tokens import Tokens, read_tokenizer
from fairerclip.encoders.weight_files import member
from fairerclip.errors import EncoderError, FairerClipError

SETTINGS = "preprocess.json"
IMAGE, TEXT, TOKENIZER = "image.onnx", "text.onnx", "tokenizer.json"
FORMAT_VERSION = 1
MAX_ONNX_BYTES = 2**31 - 1
"""Most bytes of an ONNX file: the size limit of a protobuf message."""
MAX_FIELDS = 150_000
"""Most nodes, tensors, names, attributes … of one graph: each can take as little as two bytes in a file, but some
hundred in memory. The image tower of ViT-B/32 has fewer than 20,000."""
_RANGES = {
    "format_version": (FORMAT_VERSION, FORMAT_VERSION),
    "width": (1, MAX_WIDTH),
    "context": (1, MAX_CONTEXT),
    "pad_id": (0, MAX_VOCABULARY),
}
_KEYS = {*_RANGES, "model", "preprocessing"}
_MAX_NAME = 200
_WIDTHS = {1: 8, 5: 4}
"""Bytes of a protobuf field by its wire type, for the types of fixed size."""
_DOMAINS = ("", "ai.onnx")
"""Domains of ONNX's own operators. Others need a library, or can read files that the graph names (onnxruntime's)."""


@dataclass(frozen=True)
class OnnxTowers:
    """Image and text tower as ONNX sessions on the CPU; ``name`` and ``width`` are those of the encoder."""

    image: Any
    text: Any
    name: str
    width: int

    def image_rows(self, pixels: np.ndarray) -> np.ndarray:
        """Return rows (b, p) of preprocessed images (b, 3, H, W) float32."""
        return self._rows(self.image, pixels)

    def text_rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows (m, p) of token ids (m, context) int64."""
        return self._rows(self.text, ids)

    def _rows(self, session: Any, values: np.ndarray) -> np.ndarray:
        try:
            rows = np.asarray(session.run(None, {session.get_inputs()[0].name: values})[0], dtype=np.float32)
        except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions have no other common base
            raise EncoderError(f"{self.name}: the model cannot be run: {one_line(error)}") from None
        if rows.shape != (len(values), self.width):
            raise EncoderError(
                f"{self.name}: expected embeddings {(len(values), self.width)}, got {rows.shape}"
            )
        return rows


def load(name: str, folder: Path, device: str, preprocessing: Preprocessing | None) -> ClipEncoder:
    """Load an ONNX folder; see `fairerclip.encoders.load`."""
    runtime = require("onnxruntime", "onnx", "running an ONNX model")
    if device != "cpu":
        raise EncoderError(f"expected device='cpu' for an ONNX model, got device={device!r}")
    absent = [f for f in (IMAGE, TEXT, TOKENIZER, SETTINGS) if not os.path.isfile(member(folder, f))]
    if absent:
        raise EncoderError(
            f"{folder} is not an ONNX encoder: it lacks {', '.join(absent)}; fairerclip.encoders.onnx_export "
            "writes such a folder, and docs/how-to/encoders.md describes it"
        )
    settings = read_settings(folder / SETTINGS)
    if preprocessing is not None:
        settings["preprocessing"] = preprocessing
    sessions, lines = [], ""
    for file in (folder / IMAGE, folder / TEXT):
        raw = read_bounded(file, MAX_ONNX_BYTES, EncoderError)
        lines += f"{hashlib.sha256(raw).hexdigest()}  {file.name}\n"
        sessions.append(open_session(raw, str(file)))
    tokens = Tokens(read_tokenizer(folder / TOKENIZER), settings["context"], settings["pad_id"])
    used: Preprocessing = settings["preprocessing"]
    provenance = Provenance(
        settings["model"],
        hashlib.sha256(lines.encode()).hexdigest(),
        str(used),
        f"onnxruntime {runtime.__version__}",
        True,
        settings["width"],
    )
    towers = OnnxTowers(sessions[0], sessions[1], name, provenance.width)
    return ClipEncoder(name, towers, tokens, used, provenance)


def read_settings(path: Path) -> dict[str, Any]:
    """Read ``preprocess.json`` of an ONNX folder, with ``preprocessing`` as a `Preprocessing`."""
    values = read_json(path)
    if set(values) != _KEYS or not isinstance(values["preprocessing"], dict):
        raise EncoderError(
            f"{path} must hold {', '.join(sorted(_KEYS))}; got {', '.join(map(ascii, sorted(values)))[:300]}"
        )
    for key, (low, high) in _RANGES.items():
        if not is_whole(values[key]) or not low <= values[key] <= high:
            raise EncoderError(
                f"{path}: expected {key} to be an integer from {low} to {high}, got {values[key]!r:.60}"
            )
    model = values["model"]
    if not isinstance(model, str) or not model.isprintable() or not 0 < len(model) <= _MAX_NAME:
        raise EncoderError(
            f"{path}: expected model to be a name of at most {_MAX_NAME} characters, got {model!r:.60}"
        )
    return values | {"preprocessing": Preprocessing.from_dict(values["preprocessing"], str(path))}


def open_session(raw: bytes, where: str) -> Any:
    """Return a session of a model in memory, which uses no other files and no operator libraries."""
    runtime = require("onnxruntime", "onnx", "running an ONNX model")
    check_model(raw, where)
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # the exception has the message
    options.add_session_config_entry("session.load_model_format", "ONNX")
    # onnxruntime would look for external weights in the current folder. The check above refuses them; this is a second
    # protection, because no file can lie below a device.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
    try:
        # Without fallback, which would print a message and try the same again.
        session = runtime.InferenceSession(
            raw,
            options,
            providers=["CPUExecutionProvider"],
            # Folding computes constants when the model is loaded: a few nodes can make a constant of gigabytes.
            disabled_optimizers=["ConstantFolding"],
            enable_fallback=False,
        )
    except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions have no other common base
        raise EncoderError(f"{where} is not a model that onnxruntime can run: {one_line(error)}") from None
    if len(session.get_inputs()) != 1:
        raise EncoderError(f"{where}: expected a model with one input, got {len(session.get_inputs())}")
    return session


def check_model(raw: bytes, where: str) -> None:
    """Raise if a model has external weights, defines functions, or uses operators that are not ONNX's own.

    Functions can call each other, so a small file could describe any number of operators.
    """
    onnx = require("onnx", "onnx", "checking an ONNX model")
    try:
        check_fields(raw, onnx.ModelProto.DESCRIPTOR, where)
        model = onnx.load_model_from_string(raw)
    except FairerClipError:
        raise
    except Exception as error:  # noqa: BLE001 - protobuf's DecodeError is not importable from one place
        raise EncoderError(f"{where} is not an ONNX model: {one_line(error)}") from None
    if model.functions:
        raise EncoderError(
            f"{where} defines functions, which are not supported: export it with operators only"
        )
    for message in _messages(model, onnx.TensorProto):
        if isinstance(message, onnx.TensorProto) and (
            message.data_location != onnx.TensorProto.DEFAULT or message.external_data
        ):
            raise EncoderError(
                f"{where} has weights in another file, which is not supported: save them in the model file"
            )
        if isinstance(message, onnx.NodeProto) and message.domain not in _DOMAINS:
            raise EncoderError(
                f"{where} has an operator {message.op_type!r:.60} of domain {message.domain!r:.60}; expected only "
                "operators of ONNX itself: export the model without optimisations of one runtime"
            )


def check_fields(raw: bytes, kind: Any, where: str) -> None:
    """Raise, before parsing, if a protobuf message has more than `MAX_FIELDS` fields at all levels together.

    Parameters
    ----------
    raw : bytes
        The message.
    kind : google.protobuf.descriptor.Descriptor
        Type of the message.
    where : str
        Name of the file in messages.

    Raises
    ------
    EncoderError
        There are too many fields.
    ValueError, IndexError
        The bytes are not a message of this type.
    """
    count, stack = 0, [(kind, 0, len(raw))]
    nested: dict[str, dict[int, Any]] = {}
    while stack:
        kind, at, end = stack.pop()
        if kind.full_name not in nested:
            nested[kind.full_name] = {
                f.number: f.message_type for f in kind.fields if f.message_type is not None
            }
        messages = nested[kind.full_name]
        while at < end:
            count += 1
            if count > MAX_FIELDS:
                raise EncoderError(f"{where}: expected a graph of at most {MAX_FIELDS:,} fields, got more")
            tag, at = _varint(raw, at)
            wire = tag & 7
            if wire == 2:  # a length, followed by as many bytes
                length, at = _varint(raw, at)
                if tag >> 3 in messages:
                    stack.append((messages[tag >> 3], at, at + length))
                at += length
            elif wire == 0:
                at = _varint(raw, at)[1]
            elif wire in _WIDTHS:
                at += _WIDTHS[wire]
            else:
                raise ValueError(f"wire type {wire}")
        if at != end:
            raise ValueError("a field is longer than its message")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return the integer at a position of a protobuf message, and the position after it."""
    value = shift = 0
    while (byte := raw[at]) > 127:
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if shift > 63:
            raise ValueError("an integer of more than ten bytes")
    return value | byte << shift, at + 1


def _messages(root: Any, leaf: type) -> Iterator[Any]:
    """Yield the root and every message inside it, at any depth; messages inside a ``leaf`` are left out."""
    stack = [iter([root])]
    while stack:
        message = next(stack[-1], None)
        if message is None:
            stack.pop()
            continue
        yield message
        if isinstance(message, leaf):
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                stack.append(iter([value] if hasattr(value, "DESCRIPTOR") else value))
