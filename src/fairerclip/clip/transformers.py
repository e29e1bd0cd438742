"""Encoders through transformers: CLIP and SigLIP from a folder that ``save_pretrained`` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from fairerclip.clip.base import (
    check_device,
    check_pixels,
    check_prompts,
    hub_access,
    in_batches,
    prompt_list,
    unit_rows,
)
from fairerclip.clip.preprocess import Preprocessing, read_json
from fairerclip.clip.weights import sha256_of, transformers_files
from fairerclip.data.provenance import Provenance
from fairerclip.errors import EncoderError
from fairerclip.extras import require

_TYPES = ("clip", "siglip")
_PROCESSORS = {
    "CLIPImageProcessor": "CLIPImageProcessorPil",
    "CLIPFeatureExtractor": "CLIPImageProcessorPil",
    "SiglipImageProcessor": "SiglipImageProcessorPil",
}
_LOAD_ERRORS = (OSError, RuntimeError, ValueError, TypeError, LookupError, SafetensorError)
_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]


class TransformersEncoder:
    """A CLIP or SigLIP model of transformers in float32 and evaluation mode; see `Encoder`."""

    def __init__(self, name: str, model: Any, tokenizer: Any, device: str, settings: Preprocessing):
        self.name = name
        self.model = model
        self.tokenizer = tokenizer
        self.device = device
        self.preprocessing = settings
        self.context = int(model.config.text_config.max_position_embeddings)
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
        prompts = prompt_list(prompts)
        check_prompts(prompts, [len(self.tokenizer(p)["input_ids"]) for p in prompts], self.context)
        return in_batches(prompts, self.width, self._encode)

    def _encode(self, prompts: list[str]) -> np.ndarray:
        # Padded to the full length and without a mask: SigLIP was trained so, and CLIP looks back only.
        torch = require("torch", "torch", "encoding prompts")
        ids = self.tokenizer(prompts, padding="max_length", max_length=self.context)["input_ids"]
        with torch.inference_mode():
            rows = self.model.get_text_features(input_ids=torch.tensor(ids, device=self.device))
        out: np.ndarray = rows.pooler_output.cpu().numpy()
        return out


def load(
    name: str, place: str, device: str, download: bool, preprocessing: Preprocessing | None
) -> TransformersEncoder:
    """Open a folder, or a repository that is in the cache; see `fairerclip.clip.load`."""
    library = require("transformers", "transformers", "loading a transformers model")
    folder = _folder(place, download)
    files = transformers_files(folder)
    check_device(device)
    settings = preprocessing or _settings(library, folder)
    with hub_access(False):
        model, tokenizer = _build(library, folder)
    model = model.to(device).eval().requires_grad_(False)
    encoder = TransformersEncoder(name, model, tokenizer, device, settings)
    image_size = int(model.config.vision_config.image_size)
    if settings.output_size != (image_size, image_size):
        raise EncoderError(
            f"{folder}: the image processor makes images of {settings.output_size} and the model reads "
            f"({image_size}, {image_size}); the two files do not belong together"
        )
    encoder.width = encoder.encode_images(np.zeros((1, 3, image_size, image_size), np.float32)).shape[1]
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
    if Path(place).is_dir():
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


def _build(library: Any, folder: Path) -> tuple[Any, Any]:
    torch = require("torch", "transformers", "loading a transformers model")
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    kind = read_json(folder / "config.json").get("model_type")
    if kind not in _TYPES:
        raise EncoderError(f"{folder} holds a model of type {kind!r}; expected one of {', '.join(_TYPES)}")
    try:
        model, report = library.AutoModel.from_pretrained(
            folder, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **local
        )
        tokenizer = library.AutoTokenizer.from_pretrained(folder, **local)
    except (ImportError, *_LOAD_ERRORS) as error:
        raise EncoderError(f"{folder} does not load as a {kind} model: {str(error)[:400]}") from error
    missing = sorted(report["missing_keys"])
    if missing:  # transformers would leave them random
        raise EncoderError(f"{folder}: the weights lack {len(missing)} tensors, such as {missing[0]}")
    return model, tokenizer


def _settings(library: Any, folder: Path) -> Preprocessing:
    """The numbers of the folder's own image processor."""
    file = folder / "preprocessor_config.json"
    nested = folder / "processor_config.json"
    if file.is_file():
        found = read_json(file)
    elif nested.is_file():
        found = read_json(nested).get("image_processor", {})
    else:
        found = {}
    kind = str(found.get("image_processor_type", found.get("feature_extractor_type", "")))
    kind = _PROCESSORS.get(kind.removesuffix("Fast").removesuffix("Pil"), "")
    if not kind:
        raise EncoderError(
            f"nothing in {folder} says how images are prepared: expected preprocessor_config.json with an "
            f"image_processor_type of {', '.join(_PROCESSORS)}. Save the image processor there, or pass "
            "preprocessing= (--preprocessing)"
        )
    try:
        return Preprocessing.from_transformers(getattr(library, kind)(**found).to_dict())
    except (
        ImportError,
        RuntimeError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:  # torchvision may not fit torch
        if isinstance(error, EncoderError):
            raise
        raise EncoderError(f"{folder}: the image processor's settings cannot be used: {error}") from error
