"""Contrastive epochs of the Contrastive Adapter: the choice of anchors, positives and negatives, and the loss.

A batch is one anchor with its positives and neighbours, normalised together. The weights do not change within a group
of anchors, which saves most of the work without changing the gradients: the hidden layer is applied once to each row
of the group, and cosines of ``W₂a + b₂`` are computed from the Gram matrix of ``[W₂ b₂]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fairerclip._util.types import Ints
from fairerclip.baselines.gradient.loop import Epoch, Run, chunks
from fairerclip.baselines.gradient.nets import AdapterNet, Tensor
from fairerclip.baselines.gradient.recipes import Contrasts

_BLOCK = 16384
"""Number of rows that the hidden layer takes at a time."""
_SMALLEST_SQUARE = 1e-12
"""Squared lengths of adapted rows are at least this."""


class Batch(NamedTuple):
    """One anchor and the rows it is compared with, as row numbers."""

    anchor: int
    positives: Ints
    neighbours: Ints
    is_negative: NDArray[np.bool_]
    """(m,) whether a neighbour is of another class; the others only take part in batch normalisation."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Anchors, positives and negatives of labelled rows.

    Attributes
    ----------
    y, predicted : array of shape (n,)
        Classes, and the predictions of a simple classifier.
    unit : Tensor of shape (n, p)
        Unit rows on the device, to find neighbours.
    sizes : Contrasts
        Numbers of rows that are drawn, and the parameters of the loss.
    """

    y: Ints
    predicted: Ints
    unit: Tensor
    sizes: Contrasts

    def anchors(self, rng: np.random.Generator) -> Ints:
        """Draw the anchors, shuffled: wrongly predicted rows of classes that have correctly predicted rows.

        With ``anchor_share`` below one, this share of each class is drawn with replacement, with equal probability
        for each wrong class.
        """
        drawn = [self._anchors_of(code, rng) for code in np.unique(self.y)]
        return rng.permutation(np.concatenate(drawn))

    def _anchors_of(self, code: int, rng: np.random.Generator) -> Ints:
        rows = np.flatnonzero((self.y == code) & (self.predicted != code))
        if not len(rows) or not len(self.positives_of(code)):
            return rows[:0]
        share = self.sizes.anchor_share
        if share == 1:
            return rows
        counts = np.bincount(self.predicted[rows])
        chance = 1 / counts[self.predicted[rows]]
        return rng.choice(rows, max(1, round(share * len(rows))), p=chance / chance.sum())

    def positives_of(self, code: int) -> Ints:
        """Return the rows of a class that are predicted as it."""
        return np.flatnonzero((self.y == code) & (self.predicted == code))

    def batches(self, anchors: Ints, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield a batch per anchor that has a negative among the drawn neighbours. O(a·n·p) time, O(a·n) memory."""
        positives = {code: self.positives_of(code) for code in np.unique(self.y[anchors])}
        for anchor, near in zip(anchors, nearest(self.unit, anchors, self.sizes.neighbours), strict=True):
            code = self.y[anchor]
            same_class = _draw(positives[code], self.sizes.positives, rng)
            near = _draw(near, self.sizes.negatives, rng)
            is_negative = self.y[near] != code
            if is_negative.any():
                yield Batch(int(anchor), same_class, near, is_negative)


def nearest(unit: Tensor, anchors: Ints, k: int) -> Ints:
    """Return the k rows with the largest cosine to each anchor (a, k), unordered; all rows if there are at most k."""
    n = len(unit)
    if k >= n:
        return np.broadcast_to(np.arange(n), (len(anchors), n))
    index = torch.as_tensor(anchors, device=unit.device)
    with torch.no_grad():
        rows = torch.topk(unit[index] @ unit.T, k, dim=1, sorted=False).indices
    return np.asarray(rows.cpu().numpy(), dtype=np.int64)


def _draw(rows: Ints, size: int, rng: np.random.Generator) -> Ints:
    return rows if len(rows) <= size else rng.choice(rows, size, replace=False, shuffle=False)


def contrastive_epoch(run: Run, pairs: Pairs, rng: np.random.Generator) -> Epoch:
    """Run one pass over the anchors, with one step of the weights per group of anchors."""
    losses: list[float] = []
    for group in chunks(pairs.anchors(rng), pairs.sizes.anchors_per_step):
        batches = list(pairs.batches(group, rng))
        if batches:
            share = 1.0 if pairs.sizes.anchor_reduction == "sum" else 1 / len(batches)
            losses += accumulate(run, batches, pairs.sizes.contrastive_temperature, share)
            run.step()
    return Epoch(float(np.mean(losses)) if losses else None, len(losses))


def accumulate(run: Run, batches: list[Batch], temperature: float, share: float) -> list[float]:
    """Add the gradients of ``share`` times the loss of each anchor to the parameters, and return the losses."""
    net: AdapterNet = run.net
    numbers = [np.concatenate([[b.anchor], b.positives, b.neighbours]) for b in batches]
    used, places = np.unique(np.concatenate(numbers), return_inverse=True)
    split = np.split(places, np.cumsum([len(part) for part in numbers])[:-1])
    index = torch.as_tensor(used, device=run.device)
    with torch.no_grad():
        hidden = torch.cat([functional.linear(run.X[part], net.w1) for part in index.split(_BLOCK)])
    hidden.requires_grad_(True)
    gram = output_gram(net)
    gram_leaf = gram.detach().requires_grad_(True)
    losses = []
    for batch, place in zip(batches, split, strict=True):
        H = torch.index_select(hidden, 0, torch.as_tensor(place, device=run.device))
        loss = anchor_loss(net, H, gram_leaf, len(batch.positives), batch.is_negative, temperature)
        (loss * (run.weight[batch.anchor] * share)).backward()
        losses.append(float(loss.detach()))
    gram.backward(gram_leaf.grad)
    with torch.no_grad():  # gradient of the hidden layer by the chain rule, once for all anchors
        parts = zip(hidden.grad.split(_BLOCK), index.split(_BLOCK), strict=True)
        net.w1.grad = sum(gradient.T @ run.X[part] for gradient, part in parts)
    return losses


def output_gram(net: AdapterNet) -> Tensor:
    """Return ``[W₂ b₂]ᵀ[W₂ b₂]`` (h+1, h+1)."""
    output = torch.cat([net.w2, net.b2[:, None]], dim=1)
    return output.T @ output


def anchor_loss(
    net: AdapterNet,
    H: Tensor,
    gram: Tensor,
    n_positives: int,
    is_negative: NDArray[np.bool_],
    temperature: float,
) -> Tensor:
    """Compute ``mean_p −log[e^{s(z,p)/τ} / (e^{s(z,p)/τ} + Σ_n e^{s(z,n)/τ})]`` with cosines s of adapted rows.

    Parameters
    ----------
    net : AdapterNet
        In training mode, so that batch normalisation uses the statistics of this batch.
    H : Tensor of shape (1 + P + N, h)
        Rows ``W₁x`` of the anchor z, its positives and its neighbours.
    gram : Tensor of shape (h+1, h+1)
        Result of `output_gram`.
    n_positives : int
        Number P of positives.
    is_negative : bool array of shape (N,)
        Neighbours that count in the loss.
    temperature : float
        τ.
    """
    scaled_cosines = ScaledCosines.apply(net.normalise(H), gram, float(temperature))
    mask = torch.as_tensor(is_negative, device=H.device)
    negatives = torch.logsumexp(scaled_cosines[n_positives:].masked_fill(~mask, -torch.inf), dim=0)
    return functional.softplus(negatives - scaled_cosines[:n_positives]).mean()


class ScaledCosines(torch.autograd.Function):
    """Cosines of the first adapted row with the others, divided by the temperature.

    With hidden rows ``aᵢ``, each extended by a one, and the Gram matrix G, they are
    ``aᵢᵀGa₀ / (τ·√(aᵢᵀGaᵢ)·√(a₀ᵀGa₀))``. The gradients are written out since they need the products ``Gaᵢ`` of the
    forward pass only, and one product of matrices more; torch's own take two, and copies of all rows.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, gram: Tensor, temperature: float) -> Tensor:
        """Return the scaled cosines (r−1,) of hidden rows (r, h) with the Gram matrix (h+1, h+1)."""
        inner, cross, corner = gram[:-1, :-1], gram[:-1, -1], gram[-1, -1]
        products = torch.addmm(cross, hidden, inner)
        squares = ((products + cross) * hidden).sum(dim=1) + corner
        lengths = squares.clamp_(min=_SMALLEST_SQUARE).sqrt_()
        dots = hidden @ products[0] + (cross @ hidden[0] + corner)
        scaled = dots[1:] / (lengths[1:] * lengths[0] * temperature)
        ctx.save_for_backward(hidden, products, lengths, scaled)
        ctx.temperature = temperature
        return scaled

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients in the hidden rows and in the symmetric Gram matrix."""
        hidden, products, lengths, scaled = ctx.saved_tensors
        first = hidden[0]
        # Derivatives in the products aᵢᵀGa₀, and twice those in the squares aᵢᵀGaᵢ.
        of_dots = torch.zeros_like(lengths)
        of_dots[1:] = upstream / (lengths[1:] * lengths[0] * ctx.temperature)
        shares = torch.empty_like(lengths)
        shares[1:] = upstream * scaled
        shares[0] = shares[1:].sum()
        of_squares = torch.where(lengths**2 > _SMALLEST_SQUARE, -shares / lengths**2, 0)[:, None]

        of_hidden = (products * of_squares).addr_(of_dots, products[0])
        of_hidden[0] += of_dots @ products
        weighted, drawn, total = hidden * of_squares, of_dots @ hidden, of_dots.sum()
        of_gram = hidden.new_empty((len(first) + 1, len(first) + 1))
        of_gram[:-1, :-1] = (hidden.T @ weighted).addr_(drawn, first).addr_(first, drawn)
        of_gram[:-1, -1] = of_gram[-1, :-1] = weighted.sum(dim=0) + drawn + total * first
        of_gram[-1, -1] = of_squares.sum() + 2 * total
        return of_hidden, of_gram / 2, None


def count_pairs(y: Ints, predicted: Ints) -> dict[str, Any]:
    """Count the rows of each class that can be anchors and positives."""
    classes = range(int(y.max()) + 1)
    return {
        "anchors": [int(np.sum((y == c) & (predicted != c))) for c in classes],
        "positives": [int(np.sum((y == c) & (predicted == c))) for c in classes],
    }
