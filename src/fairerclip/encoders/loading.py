"""From a model's name to an encoder, with files of this machine only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairerclip.encoders.encoder import Encoder
from fairerclip.encoders.preprocess import Preprocessing
from fairerclip.errors import EncoderError

PAPER_NAMES = {
    "RN50": "RN50-quickgelu",
    "ViT-B/32": "ViT-B-32-quickgelu",
    "ViT-B/16": "ViT-B-16-quickgelu",
    "ViT-L/14": "ViT-L-14-quickgelu",
}
"""The paper's names: OpenAI's weights, which were trained with QuickGELU, in open_clip's architectures."""


def load(
    name: str,
    *,
    weights: str | Path | None = None,
    device: str = "cpu",
    download: bool = False,
    preprocessing: Preprocessing | Mapping[str, Any] | str | Path | None = None,
) -> Encoder:
    """Open a CLIP-like model. Nothing is fetched unless ``download=True``.

    Parameters
    ----------
    name : str
        ``"open_clip:ViT-L-14"`` (an architecture, with ``weights``), ``"open_clip:FOLDER"`` (with
        ``open_clip_config.json``), ``"transformers:FOLDER"`` (CLIP or SigLIP), ``"onnx:FOLDER"`` (see
        `export_onnx`), or OpenAI's models as the paper names them: ``"RN50"``, ``"ViT-B/32"``,
        ``"ViT-B/16"``, ``"ViT-L/14"``.
    weights : str or Path, optional
        For open_clip: a ``.safetensors`` file, a folder with one and ``open_clip_config.json``, or a
        pretrained tag in the local cache. Default for the paper's names: the tag ``"openai"``.
    device : str
        Where torch computes; ONNX models run on the CPU.
    download : bool
        Allow the hub to be asked for what is not on this machine.
    preprocessing : Preprocessing, mapping, or str, optional
        Only for weights that do not say it: the settings, a JSON file with them, or the pretrained tag
        whose preprocessing it is. A model that has its own is given this instead.

    Returns
    -------
    Encoder

    Raises
    ------
    EncoderError
        The name or the weights cannot be used, or the preprocessing cannot be known.
    MissingExtraError
        The library is not installed.

    Examples
    --------
    >>> load("ViT-B-32")
    Traceback (most recent call last):
    ...
    fairerclip.errors.EncoderError: model 'ViT-B-32' is none of RN50, ViT-B/32, ViT-B/16, ViT-L/14, ...
    """
    library, colon, rest = name.partition(":")
    if name in PAPER_NAMES:
        from fairerclip.encoders import open_clip

        return open_clip.load(
            name, PAPER_NAMES[name], weights or "openai", device, download, preprocessing or "openai"
        )
    if not colon or not rest or library not in ("open_clip", "transformers", "onnx"):
        raise EncoderError(
            f"model {name!r} is none of {', '.join(PAPER_NAMES)}, open_clip:ARCHITECTURE, open_clip:FOLDER, "
            "transformers:FOLDER, onnx:FOLDER"
        )
    if library == "open_clip":
        from fairerclip.encoders import open_clip

        return open_clip.load(name, rest, weights, device, download, preprocessing)
    if weights is not None:
        raise EncoderError(f"{library}:FOLDER names the weights already; leave weights={str(weights)!r} out")
    settings = settings_of(preprocessing)
    if library == "onnx":
        from fairerclip.encoders import onnx

        return onnx.load(name, Path(rest), device, settings)
    from fairerclip.encoders import transformers

    return transformers.load(name, rest, device, download, settings)


def settings_of(value: Preprocessing | Mapping[str, Any] | str | Path | None) -> Preprocessing | None:
    """Preprocessing that was passed as settings or as a JSON file."""
    if value is None or isinstance(value, Preprocessing):
        return value
    if isinstance(value, Mapping):
        return Preprocessing.from_dict(value)
    if not os.path.isfile(value):
        raise EncoderError(f"preprocessing must be settings or a JSON file with them; got {str(value)!r}")
    return Preprocessing.from_json(Path(value))
