"""Sentences with extra word vectors in front of their words, through the frozen text tower of a torch encoder."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairerclip._util.extras import require
from fairerclip.encoders.encoder import TEXT_BATCH, ClipEncoder, prompt_list, unit_float32
from fairerclip.encoders.torch_encoder import TorchTowers
from fairerclip.errors import EncoderError, ShapeError

FILLER = "a"
"""Word whose id holds the place of an extra vector, and whose vector is its start value."""


@dataclass(frozen=True, eq=False)
class TokenTower:
    """Text tower that reads sentences with t extra word vectors, after the start token and before the words.

    The ids of a sentence get t fillers, and the word vectors of these are replaced by the extra ones; everything else
    is what the library of the model does. Weights stay frozen: gradients reach the extra vectors only.

    Attributes
    ----------
    encoder : ClipEncoder
        Encoder with a text tower of torch.
    towers : TorchTowers
        Its towers.
    words : torch.nn.Embedding
        Module of the tower that maps ids to word vectors.
    filler : int
        Id of `FILLER`.
    """

    encoder: ClipEncoder
    towers: TorchTowers
    words: Any
    filler: int

    @classmethod
    def of(cls, encoder: Any) -> TokenTower:
        """Return the tower of an encoder; raise if it has none through which gradients can go."""
        if not isinstance(encoder, ClipEncoder):
            raise EncoderError(
                "expected encoder= from fairerclip.encoders.load, an open_clip or transformers model; got "
                f"{type(encoder).__name__}"
            )
        if not isinstance(encoder.towers, TorchTowers):
            raise EncoderError(
                f"{encoder.name} has no gradients: tokens are learned through a text tower of torch; load the model as "
                "open_clip:… or transformers:…"
            )
        ids = encoder.tokenizer.ids([FILLER])
        return cls(encoder, encoder.towers, _words(encoder.towers, ids), int(ids[0, encoder.tokenizer.start]))

    @property
    def width(self) -> int:
        """Width w of a word vector."""
        return int(self.words.weight.shape[1])

    def fillers(self, n_tokens: int) -> np.ndarray:
        """Return the word vector of `FILLER`, n_tokens times (t, w)."""
        vector = self.words.weight[self.filler].detach().float().cpu().numpy()
        return np.tile(vector, (n_tokens, 1))

    def ids(self, sentences: Sequence[str], n_tokens: int) -> Any:
        """Return the ids of sentences with fillers, a tensor (m, context); raise if a sentence becomes too long."""
        torch = require("torch", "torch", "encoding prompts")
        tokenizer = self.encoder.tokenizer
        ids = tokenizer.ids(prompt_list(sentences), room=n_tokens)
        start, end = tokenizer.start, ids.shape[1] - n_tokens
        fillers = np.full((len(ids), n_tokens), self.filler, dtype=ids.dtype)
        whole = np.concatenate([ids[:, :start], fillers, ids[:, start:end]], axis=1)
        return torch.from_numpy(whole).to(self.towers.device)

    def rows(self, ids: Any, tokens: Any) -> Any:
        """Return rows (m, p), not normalised, of ids with fillers, with tokens (t, w) in the place of the fillers."""
        with self._replaced(tokens):
            return self.towers.text(ids).float()

    def embed(self, sentences: Sequence[str], tokens: np.ndarray) -> np.ndarray:
        """Return unit rows (m, p) float32 of sentences with tokens (t, w), without gradients."""
        torch = require("torch", "torch", "encoding prompts")
        tokens = np.asarray(tokens, dtype=np.float32)
        if tokens.ndim != 2 or tokens.shape[1] != self.width:
            raise ShapeError(
                f"tokens must have shape (t, {self.width}), as wide as the word vectors of {self.encoder.name}; got "
                f"{tokens.shape}: give the encoder that they were learned with"
            )
        if not len(sentences):
            return np.zeros((0, self.encoder.width), np.float32)
        given, ids = torch.tensor(tokens.copy()), self.ids(sentences, len(tokens))
        with torch.no_grad():
            parts = [self.rows(part, given).cpu().numpy() for part in ids.split(TEXT_BATCH)]
        return unit_float32(np.concatenate(parts))

    @contextmanager
    def _replaced(self, tokens: Any) -> Iterator[None]:
        """Replace word vectors of the fillers by tokens (t, w), for calls from this thread."""
        torch = require("torch", "torch", "encoding prompts")
        thread, start = threading.get_ident(), self.encoder.tokenizer.start

        def replace(_: Any, __: Any, vectors: Any) -> Any:
            if threading.get_ident() != thread:  # another thread embeds sentences as they are
                return vectors
            inserted = tokens.to(vectors).expand(len(vectors), -1, -1)
            return torch.cat([vectors[:, :start], inserted, vectors[:, start + len(tokens) :]], dim=1)

        handle = self.words.register_forward_hook(replace)
        try:
            yield
        finally:
            handle.remove()


def _words(towers: TorchTowers, ids: np.ndarray) -> Any:
    """Return the module of a text tower that maps ids to word vectors: the one that is called with the ids."""
    torch = require("torch", "torch", "encoding prompts")
    given = torch.from_numpy(ids).to(towers.device)
    found: list[Any] = []

    def note(module: Any, inputs: Any, _: Any) -> None:
        if inputs and inputs[0].shape == given.shape and torch.equal(inputs[0], given):
            found.append(module)

    modules = [module for module in towers.model.modules() if isinstance(module, torch.nn.Embedding)]
    handles = [module.register_forward_hook(note) for module in modules]
    try:
        with torch.no_grad():
            towers.text(given)
    finally:
        for handle in handles:
            handle.remove()
    if len(found) != 1:
        raise EncoderError(
            f"expected one module that maps ids to word vectors, found {len(found)}; use another model, or "
            "tokens=0 for an addition in embedding space"
        )
    return found[0]
