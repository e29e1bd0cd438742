"""Encoders that transformers runs: CLIP and SigLIP from a folder that ``save_pretrained`` wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fairerclip._util.extras import require
from fairerclip.encoders.config import TRANSFORMERS, TRANSFORMERS_IGNORED, checked
from fairerclip.encoders.encoder import ClipEncoder
from fairerclip.encoders.preprocess import Preprocessing, read_json
from fairerclip.encoders.tokens import folder_tokens
from fairerclip.encoders.torch_encoder import TorchTowers, check_device, fetching, loading, torch_encoder
from fairerclip.encoders.weight_files import check_fits, member, transformers_files
from fairerclip.errors import EncoderError

_MODELS = {"clip": ("CLIPConfig", "CLIPModel"), "siglip": ("SiglipConfig", "SiglipModel")}
_FILES = ["*.json", "*.txt", "*.safetensors"]
_PROCESSOR, _NESTED = "preprocessor_config.json", "processor_config.json"


def load(
    name: str, place: str, device: str, download: bool, preprocessing: Preprocessing | None
) -> ClipEncoder:
    """Load a folder, or a repository in the cache; see `fairerclip.encoders.load`."""
    library = require("transformers", "transformers", "loading a transformers model")
    folder = _folder(place, download)
    files = transformers_files(folder)
    check_device(device)
    settings = preprocessing or read_settings(folder)
    kind, config = read_config(member(folder, "config.json"))
    with loading(folder, f"a {kind} model"):
        model = _build(library, kind, config, files).to(device).eval().requires_grad_(False)
        image_size = model.config.vision_config.image_size
        if settings.output_size != (image_size, image_size):
            raise EncoderError(
                f"{folder}: the image processor makes images of {settings.output_size} and the model expects "
                f"({image_size}, {image_size}); the two files do not belong together"
            )
        # Ids are padded to the full length, without a mask: SigLIP was trained so, and CLIP's attention is causal.
        towers = TorchTowers(
            model,
            lambda pixels: model.get_image_features(pixel_values=pixels).pooler_output,
            lambda ids: model.get_text_features(input_ids=ids).pooler_output,
            device,
        )
        return torch_encoder(
            name,
            towers,
            folder_tokens(folder, int(model.config.text_config.max_position_embeddings)),
            settings,
            label=_label(model.config),
            files=files,
            library=f"transformers {library.__version__}",
        )


def _label(config: Any) -> str:
    """Return a label of the model's shape, since the name of a folder means nothing on another machine."""
    vision = config.vision_config
    shape = f"{vision.hidden_size}x{vision.num_hidden_layers}-p{vision.patch_size}-{vision.image_size}"
    return f"{config.model_type}-{shape}"


def _folder(place: str, download: bool) -> Path:
    if os.path.isdir(place):
        return Path(place).absolute()
    with fetching(
        f"transformers:{place} is neither a folder nor a repository in the local cache. Pass the folder of a model "
        f"saved with save_pretrained, download it with `hf download {place}`"
    ) as hub:
        return Path(hub.snapshot_download(place, allow_patterns=_FILES, local_files_only=not download))


def _build(library: Any, kind: str, config: dict[str, Any], files: list[Path]) -> Any:
    """Build the model in float32 from checked settings only, and load its weights."""
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
    if missing:  # they would stay random
        raise EncoderError(
            f"{files[0].parent}: the weights lack {len(missing)} tensors, such as {min(missing)}"
        )
    return model


def read_config(path: Path) -> tuple[str, dict[str, Any]]:
    """Read the model type and the checked settings of ``config.json``; see `fairerclip.encoders.config`."""
    values = read_json(path)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in _MODELS:
        raise EncoderError(
            f"{path.parent} holds a model of type {kind!r:.60}; expected one of {', '.join(_MODELS)}"
        )
    return kind, checked(values, TRANSFORMERS[kind], str(path), TRANSFORMERS_IGNORED)


def read_settings(folder: Path) -> Preprocessing:
    """Read the preprocessing from the image processor of a folder."""
    file, nested = member(folder, _PROCESSOR), member(folder, _NESTED)
    if os.path.isfile(file):
        values = read_json(file)
    elif os.path.isfile(nested):
        values, file = read_json(nested).get("image_processor", {}), nested
    else:
        raise EncoderError(
            f"the preprocessing of images is unknown: expected {_PROCESSOR} in {folder}. Save the image processor "
            "there, or pass preprocessing= (--preprocessing)"
        )
    try:
        return Preprocessing.from_transformers(values)
    except EncoderError as error:
        raise EncoderError(f"{file}: {error}") from None
