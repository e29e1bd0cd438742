"""Interface of encoders, and the parts that all of them use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from fairerclip.errors import EncoderError, ShapeError

if TYPE_CHECKING:
    from fairerclip.data.provenance import Provenance
    from fairerclip.encoders.preprocess import Preprocessing

TEXT_BATCH = 128
"""Prompts per batch of a text encoder; larger batches take more memory and are not faster."""


class Encoder(Protocol):
    """A CLIP-like model that maps images and prompts to unit vectors of one space.

    Attributes
    ----------
    name : str
        Name by which it was loaded.
    width : int
        Width p of an embedding.
    provenance : Provenance
        Model, SHA-256 of the weights, preprocessing and library; embeddings are comparable if these agree.
    """

    @property
    def name(self) -> str:
        """Name by which it was loaded."""

    @property
    def width(self) -> int:
        """Width p of an embedding."""

    @property
    def provenance(self) -> Provenance:
        """Provenance of the embeddings of this encoder."""

    def preprocess(self, image: Any) -> np.ndarray:
        """Prepare a Pillow image for the model, as (3, H, W) float32. Safe to call from several threads."""

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Return unit rows (b, p) float32 of preprocessed images (b, 3, H, W); a zero row stays zero."""

    def encode_text(self, prompts: Sequence[str]) -> np.ndarray:
        """Return unit rows (m, p) float32 of m prompts."""


class Towers(Protocol):
    """Image model and text model, for checked batches; rows need not have unit length."""

    def image_rows(self, pixels: np.ndarray) -> np.ndarray:
        """Return rows (b, p) of preprocessed images (b, 3, H, W) float32."""

    def text_rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows (m, p) of token ids (m, context) int64."""


class Tokenizer(Protocol):
    """Conversion of prompts to token ids."""

    @property
    def start(self) -> int:
        """Number of ids before the words of a prompt: 1 for a start token, else 0."""

    def ids(self, prompts: Sequence[str], *, room: int = 0) -> np.ndarray:
        """Return token ids (m, context) int64, the last ``room`` of them padding; raise if a prompt is too long."""


@dataclass(frozen=True)
class ClipEncoder:
    """An `Encoder` made of two towers, a tokenizer and a preprocessing."""

    name: str
    towers: Towers = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    preprocessing: Preprocessing = field(repr=False)
    provenance: Provenance

    def __sklearn_clone__(self) -> Self:
        """Return the encoder itself for the clone of a model that has it: it is large and never changed."""
        return self

    @property
    def width(self) -> int:
        """Width p of an embedding."""
        return self.provenance.width

    def preprocess(self, image: Any) -> np.ndarray:
        """Prepare a Pillow image for the model, as (3, H, W) float32."""
        return self.preprocessing.apply(image)

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        """Return unit rows (b, p) of preprocessed images (b, 3, H, W)."""
        return unit_float32(self.towers.image_rows(check_pixels(pixels, self.preprocessing.output_size)))

    def encode_text(self, prompts: Sequence[str]) -> np.ndarray:
        """Return unit rows (m, p) of prompts; raise if one is too long for the model."""
        ids = self.tokenizer.ids(prompt_list(prompts))
        parts = [self.towers.text_rows(ids[i : i + TEXT_BATCH]) for i in range(0, len(ids), TEXT_BATCH)]
        return unit_float32(np.concatenate(parts)) if parts else np.zeros((0, self.width), np.float32)


def unit_float32(rows: np.ndarray) -> np.ndarray:
    """Return the rows scaled to unit length in float32; a zero row stays zero.

    Lengths are computed in float32: in float64, as in `unit_rows`, the last digit of a fifth of all rows would change.
    """
    rows = np.asarray(rows, dtype=np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.ascontiguousarray(rows / np.where(norms > 0, norms, np.float32(1)))


def check_pixels(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return a contiguous batch of images; raise unless it is (b, 3, H, W) float32."""
    pixels = np.asarray(pixels)
    if pixels.ndim != 4 or pixels.shape[1:] != (3, *size) or pixels.dtype != np.float32:
        raise ShapeError(
            f"encode_images expects preprocessed images (b, 3, {size[0]}, {size[1]}) of float32; got "
            f"{pixels.shape} of {pixels.dtype}: call encoder.preprocess on each image first"
        )
    return np.ascontiguousarray(pixels)


def check_prompts(prompts: Sequence[str], lengths: Iterable[int], context: int) -> None:
    """Raise if a prompt has more tokens than the model reads, which would otherwise be cut off silently.

    Lengths are asked for one after another, so that nothing is tokenized after a prompt that is too long.
    """
    for prompt, length in zip(prompts, lengths, strict=True):
        if length > context:
            raise EncoderError(
                f"expected prompts of at most {context} tokens, got one of {length}: shorten {prompt[:80]!r}…"
            )


def prompt_list(prompts: Sequence[str]) -> list[str]:
    """Return the prompts as a list; raise unless they are a sequence of non-empty strings, not one string."""
    if isinstance(prompts, str) or not all(isinstance(prompt, str) and prompt.strip() for prompt in prompts):
        raise EncoderError(f"encode_text expects a list of non-empty strings; got {prompts!r:.120}")
    return list(prompts)


def one_line(error: BaseException) -> str:
    """Return the text of an error on one line, shortened for a message."""
    return " ".join(str(error).split())[:300]
