"""Loading of an encoder by its name, from local files."""

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
"""open_clip architectures of the paper's names; OpenAI's weights were trained with QuickGELU."""


def load(
    name: str,
    *,
    weights: str | Path | None = None,
    device: str = "cpu",
    download: bool = False,
    preprocessing: Preprocessing | Mapping[str, Any] | str | Path | None = None,
) -> Encoder:
    """Load a CLIP-like model; nothing is downloaded unless ``download=True``.

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
        Device of torch; ONNX models run on the CPU.
    download : bool
        Allow files that are not on this machine to be downloaded from the Hugging Face hub.
    preprocessing : Preprocessing, mapping, or str, optional
        Settings, a JSON file with them, or the pretrained tag whose preprocessing to use. Needed only for
        weights that do not come with settings; replaces the settings of the model otherwise.

    Returns
    -------
    Encoder
        The model, ready to use.

    Raises
    ------
    EncoderError
        The name or the weights cannot be used, or the preprocessing is unknown.
    MissingExtraError
        The library is not installed.

    Examples
    --------
    >>> load("ViT-B-32")
    Traceback (most recent call last):
    ...
    fairerclip.errors.EncoderError: model 'ViT-B-32' is none of RN50, ViT-B/32, ViT-B/16, ViT-L/14, ...
    """
    from fairerclip.encoders import onnx, open_clip, transformers

    if name in PAPER_NAMES:
        paper_name, weights, preprocessing = PAPER_NAMES[name], weights or "openai", preprocessing or "openai"
        return open_clip.load(name, paper_name, weights, device, download, preprocessing)
    library, place = _library_and_place(name)
    if library == "open_clip":
        return open_clip.load(name, place, weights, device, download, preprocessing)
    if weights is not None:
        raise EncoderError(f"{library}:FOLDER has its own weights; leave weights={str(weights)!r} out")
    if library == "onnx":
        return onnx.load(name, Path(place), device, settings_of(preprocessing))
    return transformers.load(name, place, device, download, settings_of(preprocessing))


def _library_and_place(name: str) -> tuple[str, str]:
    """Split ``LIBRARY:PLACE``; raise if the name has another form."""
    library, _, place = name.partition(":")
    if not place or library not in ("open_clip", "transformers", "onnx"):
        raise EncoderError(
            f"model {name!r} is none of {', '.join(PAPER_NAMES)}, open_clip:ARCHITECTURE, open_clip:FOLDER, "
            "transformers:FOLDER, onnx:FOLDER"
        )
    return library, place


def settings_of(value: Preprocessing | Mapping[str, Any] | str | Path | None) -> Preprocessing | None:
    """Return the preprocessing that was given as settings or as a JSON file."""
    if value is None or isinstance(value, Preprocessing):
        return value
    if isinstance(value, Mapping):
        return Preprocessing.from_dict(value)
    if not os.path.isfile(value):
        raise EncoderError(f"preprocessing must be settings or a JSON file with them; got {str(value)!r}")
    return Preprocessing.from_json(Path(value))
