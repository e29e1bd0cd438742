"""Choice of a model before it is loaded: its name and the options of `load`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairerclip.encoders.encoder import Encoder
from fairerclip.errors import ParameterError

NOTHING = "-"
"""Option value for no weights, or no preprocessing, for one of several models."""


@dataclass(frozen=True)
class ModelChoice:
    """Arguments of `fairerclip.encoders.load` for one model.

    Attributes
    ----------
    name, weights, preprocessing, device, download : str, bool or None
        Parameters of `fairerclip.encoders.load`.
    """

    name: str
    weights: str | None = None
    preprocessing: str | None = None
    device: str = "cpu"
    download: bool = False

    def load(self) -> Encoder:
        """Load the model."""
        from fairerclip.encoders.loading import load

        return load(
            self.name,
            weights=self.weights,
            device=self.device,
            download=self.download,
            preprocessing=self.preprocessing,
        )

    @property
    def label(self) -> str:
        """Name and weights for display; of a path, only the last part.

        Examples
        --------
        >>> ModelChoice("open_clip:ViT-L-14", "/models/laion.safetensors").label
        'open_clip:ViT-L-14, laion.safetensors'
        """
        library, colon, rest = self.name.partition(":")
        name = f"{library}:{Path(rest).name}" if colon and os.path.isdir(rest) else self.name
        return name if self.weights is None else f"{name}, {Path(self.weights).name}"

    @property
    def file_name(self) -> str:
        """Label in a form that is valid as a file name.

        Examples
        --------
        >>> ModelChoice("ViT-L/14").file_name, ModelChoice("open_clip:ViT-B-32", "openai").file_name
        ('ViT-L-14', 'open_clip-ViT-B-32-openai')
        """
        library, _, rest = replace(self, weights=None).label.rpartition(":")
        if not _safe(rest):
            raise ParameterError(f"expected the name of a model, such as ViT-L/14, got {self.name!r}")
        weights = None if self.weights is None else Path(self.weights).name.removesuffix(".safetensors")
        return "-".join(_safe(part) for part in (library, rest, weights) if part)


def _safe(text: str) -> str:
    """Replace the characters of a text that are not valid in a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip(".-")


def model_choices(
    names: Sequence[str],
    weights: Sequence[str] = (),
    preprocessing: Sequence[str] = (),
    *,
    device: str = "cpu",
    download: bool = False,
) -> list[ModelChoice]:
    """Return one `ModelChoice` per name, with its weights and preprocessing.

    Weights and preprocessing are each empty, or hold one entry per model in the order of the models; ``-`` is the
    entry of a model that needs none.

    Raises
    ------
    ParameterError
        There are more or fewer weights than models, or two models are the same.

    Examples
    --------
    >>> [m.weights for m in model_choices(["ViT-L/14", "open_clip:ViT-B-32"], ["-", "openai"])]
    [None, 'openai']
    """
    for option, values in (("weights", weights), ("preprocessing", preprocessing)):
        if values and len(values) != len(names):
            raise ParameterError(
                f"--{option} is given {len(values)} times for {len(names)} models: give it once for each --model, in "
                f"their order, with {NOTHING} for a model that needs none"
            )
    choices = [
        ModelChoice(name, _entry(weights, k), _entry(preprocessing, k), device, download)
        for k, name in enumerate(names)
    ]
    files = sorted(choice.file_name for choice in choices)
    repeated = sorted({file for file in files if files.count(file) > 1})
    if repeated:
        raise ParameterError(
            f"expected models with different file names, got {', '.join(repeated)} twice; name each model once, or "
            "rename folders"
        )
    return choices


def _entry(values: Sequence[str], k: int) -> str | None:
    return None if not values or values[k] == NOTHING else values[k]
