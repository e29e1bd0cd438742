"""Common parts of the encoders that torch runs, those of open_clip and of transformers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.extras import require
from fairerclip.data.provenance import Provenance
from fairerclip.encoders.encoder import ClipEncoder, Tokenizer, one_line
from fairerclip.encoders.preprocess import Preprocessing
from fairerclip.encoders.weight_files import sha256_of
from fairerclip.errors import EncoderError, FairerClipError

_hub_switch = threading.RLock()


@dataclass(frozen=True)
class TorchTowers:
    """Image and text tower of a torch model.

    Attributes
    ----------
    model : torch.nn.Module
        Model in float32 and evaluation mode.
    image, text : callable
        Functions that map one tensor, of images or of token ids, to rows.
    device : str
        Device of the model.
    """

    model: Any
    image: Callable[[Any], Any]
    text: Callable[[Any], Any]
    device: str

    def image_rows(self, pixels: np.ndarray) -> np.ndarray:
        """Return rows (b, p) of preprocessed images (b, 3, H, W) float32."""
        return self._rows(self.image, pixels)

    def text_rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows (m, p) of token ids (m, context) int64."""
        return self._rows(self.text, ids)

    def _rows(self, tower: Callable[[Any], Any], values: np.ndarray) -> np.ndarray:
        torch = require("torch", "torch", "encoding images and prompts")
        with torch.inference_mode():
            rows: np.ndarray = tower(torch.from_numpy(values).to(self.device)).float().cpu().numpy()
        return rows


def torch_encoder(
    name: str,
    towers: TorchTowers,
    tokenizer: Tokenizer,
    settings: Preprocessing,
    *,
    label: str,
    files: Sequence[Path],
    library: str,
) -> ClipEncoder:
    """Test the towers on an image and a prompt, and return an encoder.

    Parameters
    ----------
    name : str
        Name by which the model is loaded.
    towers : TorchTowers
        Image and text tower of the model.
    tokenizer : Tokenizer
        Tokenizer of the model.
    settings : Preprocessing
        Preprocessing of the model.
    label : str
        Architecture, for the provenance.
    files : sequence of Path
        Files of the weights.
    library : str
        Library and version.
    """
    images = towers.image_rows(np.zeros((1, 3, *settings.output_size), np.float32))
    texts = towers.text_rows(tokenizer.ids(["a"]))
    if images.ndim != 2 or images.shape != texts.shape:
        raise EncoderError(
            f"expected embeddings of one width for an image and a prompt, got {images.shape} and {texts.shape}"
        )
    provenance = Provenance(label, sha256_of(files), str(settings), library, True, images.shape[1])
    return ClipEncoder(name, towers, tokenizer, settings, provenance)


@contextmanager
def loading(place: Path, kind: str) -> Iterator[None]:
    """Turn any error of a library into an `EncoderError` that ``place`` cannot be loaded as ``kind``."""
    try:
        yield
    except FairerClipError:
        raise
    except Exception as error:  # torch may raise any exception on a wrong configuration
        raise EncoderError(
            f"{place} cannot be loaded as {kind}: {type(error).__name__}: {one_line(error)}"
        ) from error


def check_device(device: str) -> None:
    """Raise if torch cannot compute on a device of this machine."""
    torch = require("torch", "torch", "encoding images")
    try:
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        raise EncoderError(
            f"torch cannot compute on device {device!r} here: {str(error)[:120]}; use device='cpu'"
        ) from None


@contextmanager
def hub_access(allowed: bool) -> Iterator[None]:
    """Make the Hugging Face libraries read only their cache, unless a download is ``allowed``.

    The setting is one constant for the whole process; it is restored afterwards.
    """
    if allowed:
        yield
        return
    constants = require("huggingface_hub.constants", "open-clip", "loading a CLIP model")
    with _hub_switch:
        before = constants.HF_HUB_OFFLINE
        constants.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = before


@contextmanager
def fetching(missing: str) -> Iterator[Any]:
    """Yield the hub library; if a file is not there, raise with the message ``missing`` and how to allow a download."""
    hub = require("huggingface_hub", "open-clip", "finding a model in the cache")
    try:
        yield hub
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"{missing}, or allow the download: download=True (--download). ({type(error).__name__})"
        ) from None
