"""What every encoder offers, and what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fairerclip.errors import EncoderError, ShapeError

if TYPE_CHECKING:
    from fairerclip.data.provenance import Provenance
    from fairerclip.encoders.preprocess import Preprocessing

TEXT_BATCH = 128
"""Prompts that go through a text encoder at once; more only cost memory."""


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


class Towers(Protocol):
    """The two halves of a model, on batches that were checked; rows need not have unit length."""

    def image_rows(self, pixels: np.ndarray) -> np.ndarray:
        """Rows (b, p) of preprocessed images (b, 3, H, W) float32."""

    def text_rows(self, ids: np.ndarray) -> np.ndarray:
        """Rows (m, p) of token ids (m, context) int64."""


class Tokenizer(Protocol):
    """What makes token ids of prompts."""

    def ids(self, prompts: Sequence[str]) -> np.ndarray:
        """Rows (m, context) int64; a prompt that is too long for the model is an error."""


@dataclass(frozen=True)
class ClipEncoder:
    """An `Encoder` of two towers, the tokenizer and the preprocessing that belong to them."""

    name: str
    towers: Towers
    tokenizer: Tokenizer
    preprocessing: Preprocessing
    provenance: Provenance

    @property
    def width(self) -> int:
        """Columns of an embedding, p."""
        return self.provenance.width

    def preprocess(self, image: Any) -> np.ndarray:
        """A Pillow image as (3, H, W) float32."""
        return self.preprocessing.apply(image)

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Unit rows (b, p) of preprocessed images (b, 3, H, W)."""
        return unit_float32(self.towers.image_rows(check_pixels(pixels, self.preprocessing.output_size)))

    def encode_text(self, prompts: Sequence[str]) -> np.ndarray:
        """Unit rows (m, p) of prompts; one that is too long for the model is an error."""
        ids = self.tokenizer.ids(prompt_list(prompts))
        parts = [self.towers.text_rows(ids[i : i + TEXT_BATCH]) for i in range(0, len(ids), TEXT_BATCH)]
        return unit_float32(np.concatenate(parts)) if parts else np.zeros((0, self.width), np.float32)


def unit_float32(rows: np.ndarray) -> np.ndarray:
    """Rows of length one, float32; a row of zeros stays as it is.

    Lengths are float32, too: those of `unit_rows`, in float64, would change the last digit of a fifth of all rows, and
    with it every digest of embeddings that were made before.
    """
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


def one_line(error: BaseException) -> str:
    """What a library said, short enough for a message."""
    return " ".join(str(error).split())[:300]
