"""Encoders through transformers: CLIP and SigLIP from a folder that ``save_pretrained`` wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.extras import require
from fairerclip.data.provenance import Provenance
from fairerclip.encoders.config import TRANSFORMERS, TRANSFORMERS_IGNORED, checked
from fairerclip.encoders.encoder import (
    check_device,
    check_pixels,
    check_towers,
    in_batches,
    one_line,
    prompt_list,
    unit_rows,
)
from fairerclip.encoders.preprocess import Preprocessing, read_json
from fairerclip.encoders.tokens import Tokens, folder_tokens
from fairerclip.encoders.weight_files import check_fits, member, sha256_of, transformers_files
from fairerclip.errors import EncoderError, FairerClipError

_MODELS = {"clip": ("CLIPConfig", "CLIPModel"), "siglip": ("SiglipConfig", "SiglipModel")}
_FILES = ["*.json", "*.txt", "*.safetensors"]
_PROCESSOR, _NESTED = "preprocessor_config.json", "processor_config.json"


class TransformersEncoder:
    """A CLIP or SigLIP model of transformers in float32 and evaluation mode; see `Encoder`."""

    def __init__(self, name: str, model: Any, tokenizer: Tokens, device: str, settings: Preprocessing):
        self.name = name
        self.model = model
        self.tokenizer = tokenizer
        self.device = device
        self.preprocessing = settings
        self.provenance: Provenance
        self.width: int

    def preprocess(self, image: Any) -> np.ndarray:
        """A Pillow image as (3, H, W) float32."""
        return self.preprocessing.apply(image)

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Unit rows (b, p) of preprocessed images (b, 3, H, W)."""
        torch = require("torch", "torch", "encoding images")
        pixels = check_pixels(pixels, self.preprocessing.output_size)
        with torch.inference_mode():
            rows = self.model.get_image_features(pixel_values=torch.from_numpy(pixels).to(self.device))
        return unit_rows(rows.pooler_output.float().cpu().numpy())

    def encode_text(self, prompts: Sequence[str]) -> np.ndarray:
        """Unit rows (m, p) of prompts; one that is too long for the model is an error."""
        return in_batches(self.tokenizer.ids(prompt_list(prompts)), self.width, self._encode)

    def _encode(self, ids: np.ndarray) -> np.ndarray:
        # Padded to the full length and without a mask: SigLIP was trained so, and CLIP looks back only.
        torch = require("torch", "torch", "encoding prompts")
        with torch.inference_mode():
            rows = self.model.get_text_features(input_ids=torch.from_numpy(ids).to(self.device))
        out: np.ndarray = rows.pooler_output.cpu().numpy()
        return out


def load(
    name: str, place: str, device: str, download: bool, preprocessing: Preprocessing | None
) -> TransformersEncoder:
    """Open a folder, or a repository that is in the cache; see `fairerclip.encoders.load`."""
    library = require("transformers", "transformers", "loading a transformers model")
    folder = _folder(place, download)
    files = transformers_files(folder)
    check_device(device)
    settings = preprocessing or read_settings(folder)
    kind, config = read_config(member(folder, "config.json"))
    try:
        model = _build(library, kind, config, files).to(device).eval().requires_grad_(False)
        tokenizer = folder_tokens(folder, int(model.config.text_config.max_position_embeddings))
        encoder = TransformersEncoder(name, model, tokenizer, device, settings)
        image_size = model.config.vision_config.image_size
        if settings.output_size != (image_size, image_size):
            raise EncoderError(
                f"{folder}: the image processor makes images of {settings.output_size} and the model reads "
                f"({image_size}, {image_size}); the two files do not belong together"
            )
        images = encoder.encode_images(np.zeros((1, 3, *settings.output_size), np.float32))
        encoder.width = images.shape[-1]
        check_towers(images, encoder.encode_text(["a"]))
    except FairerClipError:
        raise
    except Exception as error:  # what a wrong configuration makes torch raise is not a closed list
        raise EncoderError(
            f"{folder} does not load as a {kind} model: {type(error).__name__}: {one_line(error)}"
        ) from error
    encoder.provenance = Provenance(
        model=_label(model.config),
        weights=sha256_of(files),
        preprocessing=str(settings),
        library=f"transformers {library.__version__}",
        normalised=True,
        width=encoder.width,
    )
    return encoder


def _label(config: Any) -> str:
    """The shape of the model: a folder's name says nothing on another machine."""
    vision = config.vision_config
    shape = f"{vision.hidden_size}x{vision.num_hidden_layers}-p{vision.patch_size}-{vision.image_size}"
    return f"{config.model_type}-{shape}"


def _folder(place: str, download: bool) -> Path:
    if os.path.isdir(place):
        return Path(place).absolute()
    hub = require("huggingface_hub", "transformers", "finding weights in the cache")
    try:
        return Path(hub.snapshot_download(place, allow_patterns=_FILES, local_files_only=not download))
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"transformers:{place} is neither a folder nor a repository in the local cache. Pass the folder "
            f"of a model saved with save_pretrained, fetch it with `hf download {place}`, or allow it here by "
            f"name: download=True (--download). ({type(error).__name__})"
        ) from None


def _build(library: Any, kind: str, config: dict[str, Any], files: list[Path]) -> Any:
    """The model in float32; of the folder's configuration only what was checked is used."""
    torch = require("torch", "transformers", "loading a transformers model")
    load_file = require("safetensors.torch", "torch", "loading a transformers model").load_file
    configured, model_class = (getattr(library, name) for name in _MODELS[kind])
    with torch.device("meta"):
        check_fits(model_class(configured(**config)), files)
    model = model_class(configured(**config))
    state: dict[str, Any] = {}
    for file in files:
        state |= load_file(file)
    missing = model.load_state_dict(state, strict=False).missing_keys
    if missing:  # they would be left random
        raise EncoderError(
            f"{files[0].parent}: the weights lack {len(missing)} tensors, such as {min(missing)}"
        )
    return model


def read_config(path: Path) -> tuple[str, dict[str, Any]]:
    """Kind of model and settings of a ``config.json``; see `fairerclip.encoders.config`."""
    values = read_json(path)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in _MODELS:
        raise EncoderError(
            f"{path.parent} holds a model of type {kind!r:.60}; expected one of {', '.join(_MODELS)}"
        )
    return kind, checked(values, TRANSFORMERS[kind], str(path), TRANSFORMERS_IGNORED)


def read_settings(folder: Path) -> Preprocessing:
    """What the folder's own image processor does to an image."""
    file, nested = member(folder, _PROCESSOR), member(folder, _NESTED)
    if os.path.isfile(file):
        found = read_json(file)
    elif os.path.isfile(nested):
        found, file = read_json(nested).get("image_processor", {}), nested
    else:
        raise EncoderError(
            f"nothing in {folder} says how images are prepared: expected {_PROCESSOR}. Save the image processor "
            "there, or pass preprocessing= (--preprocessing)"
        )
    try:
        return Preprocessing.from_transformers(found)
    except EncoderError as error:
        raise EncoderError(f"{file}: {error}") from None
