"""Preprocessing of images for CLIP models with Pillow and numpy.

The steps are resize, centre crop, scaling to [0, 1] and normalisation, with the numbers of the model's own
configuration. Results equal torchvision's transforms bit for bit (`origin` "even") and transformers' Pillow
processors up to rounding (`origin` "floor"); the two differ in how an odd margin is halved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.extras import require
from fairerclip.data.io.strict_json import MAX_JSON_BYTES, read_strict_json
from fairerclip.encoders.config import (
    IMAGE_PROCESSOR,
    IMAGE_PROCESSOR_IGNORED,
    MAX_IMAGE_EDGE,
    checked,
    is_number,
    is_whole,
)
from fairerclip.encoders.decode import MAX_PIXELS
from fairerclip.errors import EncoderError, ImageError

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)
_SMALLEST_STD, _LARGEST = 1e-6, 1e6
_RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def _square(edge: int) -> dict[str, int]:
    return {"height": edge, "width": edge}


_STEPS = {
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "rescale_factor": 1 / 255,
    "resample": 3,
}
_CLIP_PROCESSOR: dict[str, Any] = {
    **_STEPS,
    "size": {"shortest_edge": 224},
    "do_center_crop": True,
    "crop_size": _square(224),
    "image_mean": list(OPENAI_MEAN),
    "image_std": list(OPENAI_STD),
}
_SIGLIP_PROCESSOR: dict[str, Any] = {
    **_STEPS,
    "size": _square(224),
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
_PROCESSORS = {
    "CLIPImageProcessor": _CLIP_PROCESSOR,
    "CLIPFeatureExtractor": _CLIP_PROCESSOR,
    "SiglipImageProcessor": _SIGLIP_PROCESSOR,
}
"""Default settings of transformers' image processors, for keys that their files leave out."""


@dataclass(frozen=True)
class Preprocessing:
    """Settings of resize, crop and normalisation that one model expects.

    Parameters
    ----------
    size : tuple of int
        Height and width after resizing; for ``resize="shortest"`` both are the shorter edge.
    resize : {"shortest", "squash"}
        Keep the aspect ratio and scale the shorter edge, or stretch the image to ``size``.
    crop : tuple of int or None
        Height and width of the centre crop; None means no crop (``"squash"`` only).
    mean, std : tuple of float
        Mean and standard deviation per channel, for values in [0, 1].
    interpolation : str
        Filter of Pillow: bicubic, bilinear, lanczos, …
    origin : {"even", "floor"}
        Rounding of half a pixel of margin: as in torchvision or as in transformers.

    Examples
    --------
    >>> str(Preprocessing.openai(224)).split("; ")[:2]
    ['rgb', 'resize shortest 224x224 bicubic']
    """

    size: tuple[int, int]
    resize: str
    crop: tuple[int, int] | None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str = "bicubic"
    origin: str = "even"

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            came = ", ".join(f"{name} {_shown(value):.60}" for name, value in vars(self).items())
            raise EncoderError(f"preprocessing cannot be used: {problem}; got {came}")

    @classmethod
    def openai(cls, size: int) -> Preprocessing:
        """Return the preprocessing of OpenAI's CLIP models for an image size."""
        return cls((size, size), "shortest", (size, size), OPENAI_MEAN, OPENAI_STD)

    @classmethod
    def from_open_clip(cls, config: Mapping[str, Any], size: int | tuple[int, int]) -> Preprocessing:
        """Return the preprocessing of open_clip's ``preprocess_cfg``; ``size`` is the image size of the model."""
        height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
        missing = [key for key in ("mean", "std", "interpolation", "resize_mode") if key not in config]
        if missing:
            raise EncoderError(
                f"the model's preprocess_cfg lacks {', '.join(missing)}: add them, or pass preprocessing="
            )
        resize = str(config["resize_mode"])
        crop = (height, width) if resize == "shortest" else None
        mean, std = _triple(config["mean"]), _triple(config["std"])
        return cls((height, width), resize, crop, mean, std, str(config["interpolation"]))

    @classmethod
    def from_transformers(cls, config: Mapping[str, Any]) -> Preprocessing:
        """Return the preprocessing of the settings of transformers' CLIP or SigLIP image processor."""
        kind = str(config.get("image_processor_type", config.get("feature_extractor_type", "")))
        defaults = _PROCESSORS.get(kind.removesuffix("Fast").removesuffix("Pil"))
        if defaults is None:
            raise EncoderError(
                f"expected an image_processor_type of {', '.join(_PROCESSORS)}, got {kind!r:.60}: save the image "
                "processor beside the model, or pass preprocessing= (--preprocessing)"
            )
        settings = defaults | checked(config, IMAGE_PROCESSOR, "the image processor", IMAGE_PROCESSOR_IGNORED)
        steps = [step for step in ("do_resize", "do_rescale", "do_normalize") if not settings[step]]
        if steps:
            raise EncoderError(
                f"expected an image processor with {', '.join(steps)} true, as CLIP's, got false"
            )
        if abs(settings["rescale_factor"] * 255 - 1) > 1e-6:
            raise EncoderError(f"rescale_factor must be 1/255; got {settings['rescale_factor']}")
        size = settings["size"]
        if is_whole(size):
            size = {"shortest_edge": size} if "shortest_edge" in defaults["size"] else _square(size)
        crop = settings.get("crop_size") if settings.get("do_center_crop") else None
        if is_whole(crop):
            crop = _square(crop)
        edge = size.get("shortest_edge")
        return cls(
            size=(edge, edge) if edge else (size["height"], size["width"]),
            resize="shortest" if edge else "squash",
            crop=None if crop is None else (crop["height"], crop["width"]),
            mean=_triple(settings["image_mean"]),
            std=_triple(settings["image_std"]),
            interpolation=next(
                name for name, number in _RESAMPLING.items() if number == settings["resample"]
            ),
            origin="floor",
        )

    @classmethod
    def from_json(cls, path: Path) -> Preprocessing:
        """Read the preprocessing from a file with the fields of this class as a JSON object."""
        return cls.from_dict(read_json(path), str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "preprocessing") -> Preprocessing:
        """Return the preprocessing of a mapping of fields, in which lists are read as tuples."""
        try:
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
            return cls(**fields)
        except TypeError as error:
            raise EncoderError(
                f"{where} must hold size, resize, crop, mean, std, interpolation, origin: {ascii(str(error))[:200]}"
            ) from None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def __str__(self) -> str:
        crop = "none" if self.crop is None else f"{self.crop[0]}x{self.crop[1]} {self.origin}"
        numbers = "; ".join(
            f"{name} {' '.join(f'{value:.8g}' for value in values)}"
            for name, values in (("mean", self.mean), ("std", self.std))
        )
        resize = f"{self.resize} {self.size[0]}x{self.size[1]} {self.interpolation}"
        return f"rgb; resize {resize}; crop {crop}; {numbers}"

    @property
    def output_size(self) -> tuple[int, int]:
        """Height and width of the preprocessed image."""
        return self.crop or self.size

    @cached_property
    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        return mean[:, None, None], std[:, None, None]

    def apply(self, image: Any) -> np.ndarray:
        """Preprocess a Pillow image to (3, H, W) float32; other modes than RGB are converted first."""
        pillow = require("PIL.Image", "images", "preprocessing images")
        if image.mode != "RGB":
            image = image.convert("RGB")
        width, height = self._resized(*image.size)
        image = image.resize((width, height), pillow.Resampling(_RESAMPLING[self.interpolation]))
        if self.crop is not None:
            top, left = (self._margin(n - c) for n, c in zip((height, width), self.crop, strict=True))
            image = image.crop((left, top, left + self.crop[1], top + self.crop[0]))
        pixels = np.asarray(image, dtype=np.uint8).transpose(2, 0, 1).astype(np.float32, order="C")
        mean, std = self._scale
        pixels /= np.float32(255)
        pixels -= mean
        pixels /= std
        return pixels

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        if self.resize == "squash":
            return self.size[1], self.size[0]
        edge, short = self.size[0], min(width, height)
        long = int(edge * max(width, height) / short)
        if edge * long > MAX_PIXELS:
            raise ImageError(
                f"an image of {width}×{height} would become {edge}×{long} when its shorter edge is scaled to {edge}: "
                "it is too narrow for this model"
            )
        return (edge, long) if width <= height else (long, edge)

    def _margin(self, excess: int) -> int:
        return round(excess / 2) if self.origin == "even" else excess // 2


def read_json(path: Path, *, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Read a JSON object from a file of at most ``limit`` bytes; raise, with the file's name, if it is not one."""
    value = read_strict_json(path, EncoderError, limit=limit)
    if not isinstance(value, dict):
        raise EncoderError(f"{path} must hold a JSON object; got {type(value).__name__}")
    return value


def _triple(value: Any) -> tuple[float, float, float]:
    values = value if isinstance(value, (list, tuple)) else [value] * 3
    if len(values) != 3 or not all(map(is_number, values)):
        raise EncoderError(f"mean and std need one number per channel; got {value!r:.120}")
    return float(values[0]), float(values[1]), float(values[2])


def _pair(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(is_whole(edge) and 0 < edge <= MAX_IMAGE_EDGE for edge in value)
    )


def _shown(value: Any) -> str:
    """Return a setting as text for a message; of a nested or huge value, on which `repr` fails, only its type."""
    values = value if isinstance(value, list | tuple) else (value,)
    short = all(
        v.bit_length() <= 64 if isinstance(v, int) else isinstance(v, str | float | None) for v in values
    )
    return repr(value) if short else f"a {type(value).__name__}"


def _problem(p: Preprocessing) -> str | None:
    """Return what is wrong with the settings, or None; a field may hold any JSON value."""
    if p.resize not in ("shortest", "squash"):
        return "resize must be shortest or squash"
    if not _pair(p.size) or not (p.crop is None or _pair(p.crop)):
        return f"size and crop must be (height, width) from 1 to {MAX_IMAGE_EDGE}"
    if p.resize == "shortest" and (p.size[0] != p.size[1] or p.crop is None):
        return "shortest needs one edge and a crop"
    if p.crop is not None and (p.crop[0] > p.size[0] or p.crop[1] > p.size[1]):
        return "the crop is larger than the resized image"
    if p.interpolation not in tuple(_RESAMPLING) or p.origin not in ("even", "floor"):
        return f"interpolation must be one of {', '.join(_RESAMPLING)}, and origin even or floor"
    if not all(isinstance(v, tuple) and len(v) == 3 and all(map(is_number, v)) for v in (p.mean, p.std)):
        return "mean and std must be three finite numbers each"
    if not all(_SMALLEST_STD <= v for v in p.std) or not all(abs(v) <= _LARGEST for v in (*p.mean, *p.std)):
        return f"std must be at least {_SMALLEST_STD:g}, and mean and std at most {_LARGEST:g}"
    return None
