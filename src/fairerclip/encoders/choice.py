"""A model as it is asked for: its name and what it takes to load it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairerclip.encoders.encoder import Encoder
from fairerclip.errors import ParameterError

NOTHING = "-"
"""Stands for no weights, or no preprocessing, where one of several models needs none."""


@dataclass(frozen=True)
class ModelChoice:
    """What `fairerclip.encoders.load` is to be given.

    Attributes
    ----------
    name, weights, preprocessing, device, download : those of `fairerclip.encoders.load`.
    """

    name: str
    weights: str | None = None
    preprocessing: str | None = None
    device: str = "cpu"
    download: bool = False

    def load(self) -> Encoder:
        """Open the model."""
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
        """Name and weights for people to read; of a path the last part.

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
        """The label as the name of a file.

        Examples
        --------
        >>> ModelChoice("ViT-L/14").file_name, ModelChoice("open_clip:ViT-B-32", "openai").file_name
        ('ViT-L-14', 'open_clip-ViT-B-32-openai')
        """
        library, _, rest = replace(self, weights=None).label.rpartition(":")
        if not _kept(rest):
            raise ParameterError(f"{self.name!r} is not the name of a model")
        weights = None if self.weights is None else Path(self.weights).name.removesuffix(".safetensors")
        return "-".join(_kept(part) for part in (library, rest, weights) if part)


def _kept(text: str) -> str:
    """The text with nothing that the name of a file may not have."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text).strip(".-")


def model_choices(
    names: Sequence[str],
    weights: Sequence[str] = (),
    preprocessing: Sequence[str] = (),
    *,
    device: str = "cpu",
    download: bool = False,
) -> list[ModelChoice]:
    """Models with the weights and the preprocessing of each.

    Weights, and preprocessing, are given for no model or once for each, in the order of the models; ``-`` stands for a
    model that needs none.

    Raises
    ------
    ParameterError
        There are more or fewer weights than models, or two models are the same.

    Examples
    --------
    >>> [m.weights for m in model_choices(["ViT-L/14", "open_clip:ViT-B-32"], ["-", "openai"])]
    [None, 'openai']
    """
    for what, given in (("weights", weights), ("preprocessing", preprocessing)):
        if given and len(given) != len(names):
            raise ParameterError(
                f"--{what} is given {len(given)} times for {len(names)} models: give it once for each --model, in "
                f"their order, with {NOTHING} for a model that needs none"
            )
    choices = [
        ModelChoice(name, _given(weights, k), _given(preprocessing, k), device, download)
        for k, name in enumerate(names)
    ]
    files = sorted(choice.file_name for choice in choices)
    twice = sorted({file for file in files if files.count(file) > 1})
    if twice:
        raise ParameterError(
            f"the models would share a file: {', '.join(twice)}; name each once, or rename folders"
        )
    return choices


def _given(values: Sequence[str], k: int) -> str | None:
    return None if not values or values[k] == NOTHING else values[k]
