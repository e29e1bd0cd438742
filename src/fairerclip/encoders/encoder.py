"""What every encoder offers, and what they share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairerclip._util.extras import require
from fairerclip.errors import EncoderError, ShapeError

if TYPE_CHECKING:
    from fairerclip.data.provenance import Provenance

TEXT_BATCH = 128
"""Prompts that go through a text encoder at once; more only cost memory."""

_hub_switch = threading.RLock()


class Encoder(Protocol):
    """A CLIP-like model: images and prompts become unit vectors of one space.

    Attributes
    ----------
    name : str
        The name it was loaded by.
    width : int
        Columns of an embedding, p.
    provenance : Provenance
        Model, SHA-256 of the weights, preprocessing and library: what must agree for two embeddings to
        be comparable.
    """

    @property
    def name(self) -> str:
        """The name it was loaded by."""

    @property
    def width(self) -> int:
        """Columns of an embedding, p."""

    @property
    def provenance(self) -> Provenance:
        """Where embeddings of this encoder come from."""

    def preprocess(self, image: Any) -> np.ndarray:
        """A Pillow image as the model wants it: (3, H, W) float32. Safe to call from several threads."""

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Unit rows (b, p) float32 of preprocessed images (b, 3, H, W); a row of length zero stays zero."""

    def encode_text(self, prompts: Sequence[str]) -> np.ndarray:
        """Unit rows (m, p) float32 of m prompts."""


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows of length one, float32; a row of zeros stays as it is."""
    rows = np.asarray(rows, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.ascontiguousarray(rows / np.where(norms > 0, norms, np.float32(1)))


def check_pixels(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """A batch (b, 3, H, W) of float32, or an error that says what came."""
    pixels = np.asarray(pixels)
    if pixels.ndim != 4 or pixels.shape[1:] != (3, *size) or pixels.dtype != np.float32:
        raise ShapeError(
            f"encode_images expects preprocessed images (b, 3, {size[0]}, {size[1]}) of float32; got "
            f"{pixels.shape} of {pixels.dtype}: call encoder.preprocess on each image first"
        )
    return np.ascontiguousarray(pixels)


def check_prompts(prompts: Sequence[str], lengths: Sequence[int], context: int) -> None:
    """Refuse prompts that the model would cut off: what is cut is never read, and nothing would say so."""
    for prompt, length in zip(prompts, lengths, strict=True):
        if length > context:
            raise EncoderError(
                f"a prompt has {length} tokens and the model reads {context}: shorten {prompt[:80]!r}…"
            )


def prompt_list(prompts: Sequence[str]) -> list[str]:
    """The prompts as a list of non-empty strings; a lone string is a mistake, not m letters."""
    if isinstance(prompts, str) or not all(isinstance(prompt, str) and prompt.strip() for prompt in prompts):
        raise EncoderError(f"encode_text expects a list of non-empty strings; got {prompts!r:.120}")
    return list(prompts)


def in_batches(ids: np.ndarray, width: int, encode: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """``encode`` over slices of the rows of token ids, stacked: (m, p) unit rows."""
    parts = [encode(ids[i : i + TEXT_BATCH]) for i in range(0, len(ids), TEXT_BATCH)]
    return unit_rows(np.concatenate(parts)) if parts else np.zeros((0, width), np.float32)


def check_towers(images: np.ndarray, texts: np.ndarray) -> None:
    """Refuse a model whose towers do not make rows of one length, seen from an image and a prompt."""
    if images.ndim != 2 or images.shape != texts.shape:
        raise EncoderError(
            f"expected an image and a prompt to become rows of one length, got {images.shape} and {texts.shape}"
        )


def one_line(error: BaseException) -> str:
    """What a library said, short enough for a message."""
    return " ".join(str(error).split())[:300]


def check_device(device: str) -> None:
    """Refuse a device that torch cannot compute on here."""
    torch = require("torch", "torch", "encoding images")
    try:
        torch.empty(1, device=device)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        raise EncoderError(
            f"torch cannot compute on device {device!r} here: {str(error)[:120]}; use device='cpu'"
        ) from None


@contextmanager
def hub_access(allowed: bool) -> Iterator[None]:
    """While open, the Hugging Face libraries read their cache only, unless a download is ``allowed``.

    Their switch is one constant for the whole process; it is put back afterwards.
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
