"""Encoders that open_clip runs: models of OpenAI, LAION and DataComp, from .safetensors files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.extras import require
from fairerclip.encoders.config import OPEN_CLIP, checked
from fairerclip.encoders.encoder import ClipEncoder, Tokenizer, check_prompts
from fairerclip.encoders.preprocess import Preprocessing, read_json
from fairerclip.encoders.tokens import SETTINGS_FILES, TOKENIZER_FILE, folder_tokens
from fairerclip.encoders.torch_encoder import (
    TorchTowers,
    check_device,
    fetching,
    hub_access,
    loading,
    torch_encoder,
)
from fairerclip.encoders.weight_files import (
    CONVERT,
    check_fits,
    check_safetensors,
    member,
    open_clip_file,
)
from fairerclip.errors import EncoderError

CONFIG = "open_clip_config.json"
_SHAPE: tuple[tuple[str, ...], ...] = (
    ("embed_dim",),
    *(("vision_cfg", key) for key in ("width", "layers", "patch_size", "image_size")),
    *(("text_cfg", key) for key in ("width", "layers", "context_length", "vocab_size")),
)


@dataclass(frozen=True)
class _Source:
    """Model to build: architecture, configuration, weights, and the preprocessing and activation that they need."""

    architecture: str
    config: dict[str, Any]
    folder: Path | None
    file: Path
    settings: Mapping[str, Any] | None
    quick_gelu: bool


@dataclass(frozen=True)
class SimpleTokens:
    """CLIP's own tokenizer in open_clip; see `Tokenizer`."""

    tokenizer: Any

    @property
    def start(self) -> int:
        """Number of ids before the words: it has a start token."""
        return 1

    def ids(self, prompts: Sequence[str], *, room: int = 0) -> np.ndarray:
        """Return token ids (m, context) int64, the last ``room`` of them padding; raise if a prompt is too long."""
        known = dict(self.tokenizer.cache)
        try:
            lengths = (len(self.tokenizer.encode(prompt)) + 2 for prompt in prompts)
            check_prompts(prompts, lengths, self.tokenizer.context_length - room)
            rows: np.ndarray = self.tokenizer(prompts).numpy()
        finally:
            self.tokenizer.cache = known  # it would keep every word for ever
        return rows


def load(
    name: str,
    architecture: str,
    weights: str | Path | None,
    device: str,
    download: bool,
    preprocessing: Preprocessing | Mapping[str, Any] | str | Path | None,
) -> ClipEncoder:
    """Load the model of an architecture or folder and its weights; see `fairerclip.encoders.load`."""
    library = _library()
    source = _find(library, architecture, weights, download)
    check_device(device)
    settings, quick_gelu = _passed(library, source, preprocessing)
    with hub_access(download), loading(source.file, source.architecture):
        model = _build(library, source, quick_gelu).to(device).eval().requires_grad_(False)
        return torch_encoder(
            name,
            TorchTowers(model, model.encode_image, model.encode_text, device),
            _tokenizer(library, source, download),
            settings or _own_settings(library, source, model.visual.image_size),
            label=_label(source.architecture, quick_gelu),
            files=[source.file],
            library=f"open_clip {library.__version__}",
        )


def _library() -> Any:
    try:
        return require("open_clip", "open-clip", "loading an open_clip model")
    except RuntimeError as error:  # torchvision was built for another torch
        raise EncoderError(
            f"open_clip is installed but cannot be imported: {str(error)[:200]}. Install the torchvision that "
            "belongs to torch (same release, both CPU or both CUDA), or use transformers: or onnx: models"
        ) from error


def _label(architecture: str, quick_gelu: bool) -> str:
    return architecture + "-quickgelu" * (quick_gelu and not architecture.endswith("-quickgelu"))


def _build(library: Any, source: _Source, quick_gelu: bool) -> Any:
    """Build the model in float32 from checked settings only, and load its weights strictly."""
    torch = require("torch", "torch", "loading an open_clip model")
    config = source.config | ({"quick_gelu": True} if quick_gelu else {})
    vision, text = dict(config["vision_cfg"]), dict(config["text_cfg"])
    # All weights come from the file: open_clip would download others for a tower of timm or transformers.
    vision["timm_model_pretrained"] = text["hf_model_pretrained"] = False
    _check_shadowed(text.get("hf_model_name"))
    custom = config.pop("custom_text", False) or bool(text.get("hf_model_name"))
    kind = (
        library.CLIP if not custom else library.CoCa if "multimodal_cfg" in config else library.CustomTextCLIP
    )
    config |= {"vision_cfg": vision, "text_cfg": text}
    with torch.device("meta"):
        check_fits(kind(**config), [source.file])
    model = kind(**config)
    library.load_checkpoint(model, str(source.file), strict=True, weights_only=True)
    return model


def _check_shadowed(repository: str | None) -> None:
    """Raise if transformers would load a folder of the current directory in the place of a hub repository."""
    if repository and os.path.exists(repository):
        raise EncoderError(
            f"{os.path.abspath(repository)} has the name of a hub repository and would be loaded in its place: run "
            "this in another folder"
        )


def _tokenizer(library: Any, source: _Source, download: bool) -> Tokenizer:
    """Return CLIP's own tokenizer, or that of ``tokenizer.json`` in the folder or in the cache."""
    text = source.config["text_cfg"]
    context = text.get("context_length", library.tokenizer.DEFAULT_CONTEXT_LENGTH)
    settings = dict(text.get("tokenizer_kwargs", {}))
    strip = settings.pop("strip_sep_token", False)
    repository = text.get("hf_tokenizer_name")
    if not repository:
        if source.folder is None and "siglip" in source.architecture.lower():
            raise EncoderError(
                f"{source.architecture} would download its tokenizer: use a folder with the tokenizer in it"
            )
        if strip:
            raise EncoderError(
                f"{source.architecture}: expected hf_tokenizer_name with strip_sep_token, got none"
            )
        return SimpleTokens(library.SimpleTokenizer(context_length=context, **settings))
    clean = library.tokenizer.get_clean_fn(settings.get("clean", "whitespace"))
    folder = source.folder or _cached_tokenizer(repository, download)
    return folder_tokens(folder, context, strip_separator=strip, clean=clean)


def _cached_tokenizer(repository: str, download: bool) -> Path:
    files = [TOKENIZER_FILE, *SETTINGS_FILES]
    with fetching(
        f"the tokenizer of {repository} is not in the local cache: download it with `hf download {repository} "
        f"{TOKENIZER_FILE} {SETTINGS_FILES[0]}`"
    ) as hub:
        return Path(hub.snapshot_download(repository, allow_patterns=files, local_files_only=not download))


def _own_settings(library: Any, source: _Source, size: Any) -> Preprocessing:
    if source.settings is None:
        raise EncoderError(
            f"the preprocessing of images for {source.file} is unknown: put it in a folder with its "
            f"{CONFIG}, or pass preprocessing= (--preprocessing): settings, a JSON file, or the tag they "
            f"belong to ({', '.join(_tags(library, source.architecture)[:6]) or 'this model has none'})"
        )
    return Preprocessing.from_open_clip(source.settings, size)


def read_config(path: Path) -> dict[str, Any]:
    """Read ``open_clip_config.json`` and check every key and value; see `fairerclip.encoders.config`."""
    config = checked(read_json(path), OPEN_CLIP, str(path))
    model = config.get("model_cfg", {})
    missing = [key for key in ("embed_dim", "vision_cfg", "text_cfg") if key not in model]
    if missing:
        raise EncoderError(
            f"{path} must hold model_cfg with vision_cfg and text_cfg; it lacks {', '.join(missing)}"
        )
    return config


def _tags(library: Any, architecture: str) -> list[str]:
    return list(library.list_pretrained_tags_by_model(architecture))


def _find(library: Any, architecture: str, weights: str | Path | None, download: bool) -> _Source:
    """Find the file and the settings of an architecture or folder and its weights."""
    named = library.get_model_config(architecture) if ":" not in architecture else None
    if named is None:
        return _find_folder(architecture, weights)
    if weights is None:
        tags = ", ".join(_tags(library, architecture)) or "none"
        raise EncoderError(
            f"open_clip:{architecture} needs weights= (--weights): a .safetensors file, a folder with one and "
            f"{CONFIG}, or a tag that is in the cache (known tags: {tags})"
        )
    tag = {} if isinstance(weights, Path) else library.get_pretrained_cfg(architecture, weights)
    if tag:
        file = _cached(architecture, str(weights), tag, download)
        return _Source(architecture, named, None, file, tag, bool(tag.get("quick_gelu", False)))
    path = Path(weights)
    if not os.path.exists(path):
        raise EncoderError(
            f"weights {str(weights)!r} is neither a path nor a known tag of {architecture} "
            f"({', '.join(_tags(library, architecture)) or 'it has none'})"
        )
    is_folder = os.path.isdir(path)
    folder = path if is_folder else path.parent
    config: dict[str, Any] = {}
    if is_folder or os.path.isfile(folder / CONFIG):
        config = read_config(member(folder, CONFIG))
        _check_same(architecture, named, config["model_cfg"], folder / CONFIG)
    file = open_clip_file(path) if is_folder else check_safetensors(path)
    quick_gelu = config.get("model_cfg", named).get("quick_gelu", named.get("quick_gelu", False))
    return _Source(architecture, named, None, file, config.get("preprocess_cfg"), quick_gelu)


def _find_folder(place: str, weights: str | Path | None) -> _Source:
    folder = Path(place)
    if not os.path.isfile(folder / CONFIG):
        raise EncoderError(
            f"{place!r} is neither an architecture of open_clip nor a folder with {CONFIG}; "
            "open_clip.list_models() names the architectures"
        )
    if weights is not None:
        raise EncoderError(f"open_clip:FOLDER has its own weights; leave weights={str(weights)!r} out")
    config = read_config(member(folder, CONFIG))
    model = config["model_cfg"]
    vision = model["vision_cfg"]
    label = f"{vision.get('timm_model_name', 'clip')}-{vision.get('width')}x{vision.get('layers')}"
    file = open_clip_file(folder)
    return _Source(
        label, model, folder.absolute(), file, config.get("preprocess_cfg"), model.get("quick_gelu", False)
    )


def _check_same(architecture: str, named: Any, in_folder: Any, where: Path) -> None:
    """Raise if the model in a folder has another shape or activation than the named architecture."""

    def value(config: Any, keys: tuple[str, ...]) -> Any:
        for key in keys:
            config = config.get(key) if isinstance(config, dict) else None
        return config

    for keys in _SHAPE:
        expected, actual = value(named, keys), value(in_folder, keys)
        if expected is not None and actual is not None and expected != actual:
            raise EncoderError(
                f"{where} has {'.'.join(keys)} = {actual!r} and {architecture} has {expected!r}: "
                "name the architecture of the weights, or load the folder as open_clip:FOLDER"
            )
    if architecture.endswith("-quickgelu") and in_folder.get("quick_gelu") is False:
        raise EncoderError(f"{where} has quick_gelu = false; leave -quickgelu out of the name")


def _cached(architecture: str, tag: str, config: Mapping[str, Any], download: bool) -> Path:
    """Return the .safetensors file of a tag in the Hugging Face cache; download it only if that is allowed."""
    repository, _, filename = str(config.get("hf_hub", "")).rpartition("/")
    safe = f"{os.path.splitext(filename)[0]}.safetensors" if filename else "open_clip_model.safetensors"
    if not repository:
        raise EncoderError(
            f"tag {tag!r} of {architecture} is published as a pickle only ({config.get('url')}): download it, "
            f"{CONVERT}, and pass the file as weights="
        )
    problem = "could not be downloaded" if download else "is not in the local cache"
    with fetching(
        f"{safe} of {repository} (tag {tag!r} of {architecture}) {problem}. Pass weights= (--weights) with a "
        f".safetensors file you have, download it with `hf download {repository} {safe}`"
    ) as hub:
        return Path(hub.hf_hub_download(repository, safe, local_files_only=not download))


def _passed(
    library: Any, source: _Source, value: Preprocessing | Mapping[str, Any] | str | Path | None
) -> tuple[Preprocessing | None, bool]:
    """Return the preprocessing that was passed, or None, and whether the weights need QuickGELU.

    A tag determines the activation too: OpenAI's weights in an architecture without QuickGELU give wrong embeddings.
    """
    from fairerclip.encoders.loading import settings_of

    if not isinstance(value, str) or os.path.isfile(value):
        return settings_of(value), source.quick_gelu
    tag = library.get_pretrained_cfg(source.architecture, value)
    if not tag:
        raise EncoderError(
            f"preprocessing {value!r} is neither a JSON file nor a tag of {source.architecture} "
            f"({', '.join(_tags(library, source.architecture)) or 'it has none'})"
        )
    config = library.get_model_config(source.architecture)
    size = config["vision_cfg"]["image_size"]
    settings = Preprocessing.from_open_clip(tag, tuple(size) if isinstance(size, list) else size)
    return settings, source.quick_gelu or bool(tag.get("quick_gelu", False))
