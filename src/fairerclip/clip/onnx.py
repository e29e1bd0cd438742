"""Encoders through onnxruntime: no torch, weights inline, text from ``tokenizer.json``.

A folder holds ``image.onnx`` (pixels (b, 3, H, W) float32 → (b, p)), ``text.onnx`` (ids (m, context) int64
→ (m, p)), ``tokenizer.json`` and ``preprocess.json``; `export_onnx` writes one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip.clip.base import check_pixels, check_prompts, in_batches, prompt_list, unit_rows
from fairerclip.clip.preprocess import Preprocessing, read_json
from fairerclip.data.provenance import Provenance
from fairerclip.errors import EncoderError
from fairerclip.extras import require

SETTINGS = "preprocess.json"
IMAGE, TEXT, TOKENIZER = "image.onnx", "text.onnx", "tokenizer.json"
FORMAT_VERSION = 1
_KEYS = {"format_version", "model", "width", "preprocessing", "context", "pad_id"}


class OnnxEncoder:
    """Two ONNX graphs and a tokenizer on the CPU; see `Encoder`."""

    def __init__(self, name: str, image: Any, text: Any, tokenizer: Any, settings: dict[str, Any]):
        self.name = name
        self.image = image
        self.text = text
        self.tokenizer = tokenizer
        self.preprocessing: Preprocessing = settings["preprocessing"]
        self.context: int = settings["context"]
        self.pad_id: int = settings["pad_id"]
        self.width: int = settings["width"]
        self.provenance: Provenance

    def preprocess(self, image: Any) -> np.ndarray:
        """A Pillow image as (3, H, W) float32."""
        return self.preprocessing.apply(image)

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Unit rows (b, p) of preprocessed images (b, 3, H, W)."""
        return self._run(self.image, check_pixels(pixels, self.preprocessing.output_size))

    def encode_text(self, prompts: Sequence[str]) -> np.ndarray:
        """Unit rows (m, p) of prompts; one that is too long for the model is an error."""
        prompts = prompt_list(prompts)
        lengths = [len(encoding.ids) for encoding in self.tokenizer.encode_batch(prompts)]
        check_prompts(prompts, lengths, self.context)
        return in_batches(prompts, self.width, self._encode)

    def _encode(self, prompts: list[str]) -> np.ndarray:
        ids = np.full((len(prompts), self.context), self.pad_id, np.int64)
        for row, encoding in zip(ids, self.tokenizer.encode_batch(prompts), strict=True):
            row[: len(encoding.ids)] = encoding.ids
        return self._run(self.text, ids)

    def _run(self, session: Any, values: np.ndarray) -> np.ndarray:
        rows = session.run(None, {session.get_inputs()[0].name: values})[0]
        if rows.ndim != 2 or rows.shape != (len(values), self.width):
            raise EncoderError(
                f"{self.name}: expected embeddings {(len(values), self.width)}, got {rows.shape}"
            )
        return unit_rows(rows)


def load(name: str, folder: Path, device: str, preprocessing: Preprocessing | None) -> OnnxEncoder:
    """Open an ONNX folder; see `fairerclip.clip.load`."""
    runtime = require("onnxruntime", "onnx", "running an ONNX model")
    tokenizers = require("tokenizers", "onnx", "reading an ONNX model's tokenizer")
    if device != "cpu":
        raise EncoderError(f"ONNX models run on the CPU here; got device={device!r}")
    absent = [f for f in (IMAGE, TEXT, TOKENIZER, SETTINGS) if not (folder / f).is_file()]
    if absent:
        raise EncoderError(
            f"{folder} is not an ONNX encoder: it lacks {', '.join(absent)}; fairerclip.clip.export_onnx "
            "writes such a folder, and docs/encoders.md describes it"
        )
    settings = _read_settings(folder / SETTINGS)
    if preprocessing is not None:
        settings["preprocessing"] = preprocessing
    sessions, lines = [], ""
    for file in (folder / IMAGE, folder / TEXT):
        raw = file.read_bytes()
        _refuse_external_data(file, raw)
        lines += f"{hashlib.sha256(raw).hexdigest()}  {file.name}\n"
        try:
            sessions.append(runtime.InferenceSession(raw, providers=["CPUExecutionProvider"]))
        except Exception as error:  # noqa: BLE001 - onnxruntime's own exceptions share no base but this
            raise EncoderError(
                f"{file} is not a model that onnxruntime can run: {str(error)[:300]}"
            ) from None
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # noqa: BLE001 - the tokenizers library raises bare Exception
        raise EncoderError(f"{folder / TOKENIZER} is not a tokenizer: {str(error)[:300]}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoder = OnnxEncoder(name, sessions[0], sessions[1], tokenizer, settings)
    encoder.provenance = Provenance(
        model=settings["model"],
        weights=hashlib.sha256(lines.encode()).hexdigest(),
        preprocessing=str(settings["preprocessing"]),
        library=f"onnxruntime {runtime.__version__}",
        normalised=True,
        width=encoder.width,
    )
    return encoder


def _read_settings(path: Path) -> dict[str, Any]:
    values = read_json(path)
    numbers = [values.get(key) for key in ("format_version", "width", "context", "pad_id")]
    if (
        set(values) != _KEYS
        or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers)
        or values["format_version"] != FORMAT_VERSION
        or not isinstance(values["model"], str)
        or not isinstance(values["preprocessing"], dict)
    ):
        raise EncoderError(
            f"{path} must hold {', '.join(sorted(_KEYS))} with format_version {FORMAT_VERSION}; "
            f"got {', '.join(sorted(values))}"
        )
    return values | {"preprocessing": Preprocessing.from_dict(values["preprocessing"], str(path))}


def _refuse_external_data(file: Path, raw: bytes) -> None:
    """Weights must be inside the file: a reference could name any other file of this machine."""
    onnx = require("onnx", "onnx", "checking an ONNX model")
    try:
        model = onnx.load_model_from_string(raw)
    except Exception as error:  # noqa: BLE001 - protobuf's DecodeError is not importable from one place
        raise EncoderError(f"{file} is not an ONNX model: {error}") from None
    graphs = [model.graph, *model.functions]
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for g in graphs for tensor in _tensors(g)):
        raise EncoderError(f"{file} keeps weights outside itself, which is not read: save them inline")


def _tensors(graph: Any) -> Iterator[Any]:
    """Every tensor of a graph or function, those of nested graphs included."""
    yield from getattr(graph, "initializer", ())
    for sparse in getattr(graph, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for nested in (attribute.g, *attribute.graphs):
                yield from _tensors(nested)
