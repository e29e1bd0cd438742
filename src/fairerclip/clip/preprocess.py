"""What happens to an image before a CLIP model sees it, with Pillow and numpy alone.

Resize, centre crop, scale to [0, 1], normalise: the numbers belong to the model and are read from its
own configuration. Equal to torchvision's transforms bit for bit (`origin` "even") and to transformers'
Pillow processors to rounding (`origin` "floor"); the two differ in how an odd margin is halved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip.data.strict_json import MAX_JSON_BYTES, strict_loads
from fairerclip.errors import EncoderError, ImageError
from fairerclip.extras import require
from fairerclip.images import MAX_PIXELS

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)
_RESAMPLING = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop and normalise: what one model expects.

    Parameters
    ----------
    size : tuple of int
        Height and width after resizing; for ``resize="shortest"`` both are the shorter edge.
    resize : {"shortest", "squash"}
        Keep the shape of the image and fit its shorter edge, or stretch it to ``size``.
    crop : tuple of int or None
        Height and width of the centre crop; None keeps everything (``"squash"`` only).
    mean, std : tuple of float
        Per channel, for values in [0, 1].
    interpolation : str
        Pillow's filter: bicubic, bilinear, lanczos, …
    origin : {"even", "floor"}
        How half a pixel of margin is rounded: torchvision's way or transformers'.

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
            raise EncoderError(f"preprocessing cannot be used: {problem}; got {asdict(self)}")

    @classmethod
    def openai(cls, size: int) -> Preprocessing:
        """OpenAI's for all its CLIP models: bicubic, centre crop, its own mean and deviation."""
        return cls((size, size), "shortest", (size, size), OPENAI_MEAN, OPENAI_STD)

    @classmethod
    def from_open_clip(cls, config: Mapping[str, Any], size: int | tuple[int, int]) -> Preprocessing:
        """From open_clip's ``preprocess_cfg``; ``size`` is the image size of the model itself."""
        height, width = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
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
        """From the settings of transformers' CLIP or SigLIP image processor."""
        steps = [step for step in ("do_resize", "do_rescale", "do_normalize") if not config.get(step)]
        if steps or config.get("do_pad"):
            raise EncoderError(f"the image processor has {', '.join(steps) or 'do_pad'} other than CLIP's")
        if abs(float(config.get("rescale_factor", 1 / 255)) * 255 - 1) > 1e-6:
            raise EncoderError(f"rescale_factor must be 1/255; got {config['rescale_factor']}")
        size, crop = dict(config["size"]), config.get("crop_size") if config.get("do_center_crop") else None
        edge = size.get("shortest_edge")
        filters = {number: name for name, number in _RESAMPLING.items()}
        return cls(
            size=(int(edge), int(edge)) if edge else (int(size["height"]), int(size["width"])),
            resize="shortest" if edge else "squash",
            crop=None if crop is None else (int(crop["height"]), int(crop["width"])),
            mean=_triple(config["image_mean"]),
            std=_triple(config["image_std"]),
            interpolation=filters.get(int(config["resample"]), str(config["resample"])),
            origin="floor",
        )

    @classmethod
    def from_json(cls, path: Path) -> Preprocessing:
        """From a file with this class's fields as a JSON object."""
        return cls.from_dict(read_json(path), str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "preprocessing") -> Preprocessing:
        """From the fields as a mapping; lists stand for tuples."""
        try:
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
            return cls(**fields)
        except TypeError as error:
            raise EncoderError(
                f"{where} must hold size, resize, crop, mean, std, interpolation, origin: {error}"
            ) from None

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
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
        """Height and width of what comes out."""
        return self.crop or self.size

    @cached_property
    def _scale(self) -> tuple[np.ndarray, np.ndarray]:
        mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
        return mean[:, None, None], std[:, None, None]

    def apply(self, image: Any) -> np.ndarray:
        """A Pillow image as (3, H, W) float32; colours other than RGB are converted first."""
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
                f"an image of {width}×{height} would become {edge}×{long} when its shorter edge is fitted: "
                "it is too narrow for this model"
            )
        return (edge, long) if width <= height else (long, edge)

    def _margin(self, excess: int) -> int:
        return round(excess / 2) if self.origin == "even" else excess // 2


def read_json(path: Path) -> dict[str, Any]:
    """A small JSON object from a file, or an error that names the file."""
    try:
        with path.open("rb") as handle:
            raw = handle.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise EncoderError(f"{path} cannot be read: {error.strerror or error}") from None
    value = strict_loads(raw, str(path), EncoderError)
    if not isinstance(value, dict):
        raise EncoderError(f"{path} must hold a JSON object; got {type(value).__name__}")
    return value


def _triple(value: Any) -> tuple[float, float, float]:
    values = [float(v) for v in (value if isinstance(value, (list, tuple)) else [value] * 3)]
    if len(values) != 3:
        raise EncoderError(f"mean and std need one number per channel; got {value!r}")
    return values[0], values[1], values[2]


def _problem(p: Preprocessing) -> str | None:
    """What is wrong with the settings, if anything."""

    def pair(value: Any) -> bool:
        return (
            isinstance(value, tuple)
            and len(value) == 2
            and all(isinstance(v, int) and 0 < v <= 4096 for v in value)
        )

    if p.resize not in ("shortest", "squash"):
        return f"resize must be shortest or squash, not {p.resize!r}"
    if not pair(p.size) or not (p.crop is None or pair(p.crop)):
        return "size and crop must be (height, width) from 1 to 4096"
    if p.resize == "shortest" and (p.size[0] != p.size[1] or p.crop is None):
        return "shortest needs one edge and a crop"
    if p.crop is not None and (p.crop[0] > p.size[0] or p.crop[1] > p.size[1]):
        return "the crop is larger than the resized image"
    if p.interpolation not in _RESAMPLING or p.origin not in ("even", "floor"):
        return f"interpolation must be one of {', '.join(_RESAMPLING)}, and origin even or floor"
    numbers = (*p.mean, *p.std) if isinstance(p.mean, tuple) and isinstance(p.std, tuple) else ()
    if len(numbers) != 6 or not np.isfinite(numbers).all() or min(p.std) <= 0:
        return "mean and std must be three finite numbers each, std positive"
    return None
