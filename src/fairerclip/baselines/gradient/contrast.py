"""Contrastive epochs of the Contrastive Adapter: who is compared with whom, and the loss of one anchor.

A batch is one anchor with its positives and neighbours, normalised together. Within a group of anchors the weights
stand still, which saves most of the work without changing the sums: the hidden layer is applied once to each row
of the group, and cosines of ``W₂a + b₂`` are taken through the Gram matrix of ``[W₂ b₂]``.
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
"""Rows that the hidden layer takes at a time."""


class Batch(NamedTuple):
    """One anchor and the rows it is compared with, as row numbers."""

    anchor: int
    positives: Ints
    neighbours: Ints
    is_negative: NDArray[np.bool_]
    """(m,) which of the neighbours are of another class; the others are only normalised with them."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Anchors, positives and negatives of labelled rows.

    Attributes
    ----------
    y, predicted : (n,) classes, and what a simple classifier takes the rows for.
    unit : (n, p) unit rows on the device, for neighbours.
    sizes : how many of each are drawn, and how they are compared.
    """

    y: Ints
    predicted: Ints
    unit: Tensor
    sizes: Contrasts

    def anchors(self, rng: np.random.Generator) -> Ints:
        """Rows taken for another class, whose class has rows taken for it; shuffled.

        With ``anchor_share`` below one, so many of each class are drawn with replacement, each wrong prediction
        equally likely.
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
        """Rows of a class that are taken for it."""
        return np.flatnonzero((self.y == code) & (self.predicted == code))

    def batches(self, anchors: Ints, rng: np.random.Generator) -> Iterator[Batch]:
        """A batch for each anchor that has a negative among the neighbours drawn. O(a·n·p) time, O(a·n) memory."""
        positives = {code: self.positives_of(code) for code in np.unique(self.y[anchors])}
        for anchor, near in zip(anchors, nearest(self.unit, anchors, self.sizes.neighbours), strict=True):
            code = self.y[anchor]
            similar = _draw(positives[code], self.sizes.positives, rng)
            near = _draw(near, self.sizes.negatives, rng)
            is_negative = self.y[near] != code
            if is_negative.any():
                yield Batch(int(anchor), similar, near, is_negative)


def nearest(unit: Tensor, anchors: Ints, k: int) -> Ints:
    """The k rows of largest cosine with each anchor (a, k), in no order; all rows where there are no more."""
    n = len(unit)
    if k >= n:
        return np.broadcast_to(np.arange(n), (len(anchors), n))
    index = torch.as_tensor(anchors, device=unit.device)
    with torch.no_grad():
        found = torch.topk(unit[index] @ unit.T, k, dim=1, sorted=False).indices
    return np.asarray(found.cpu().numpy(), dtype=np.int64)


def _draw(rows: Ints, size: int, rng: np.random.Generator) -> Ints:
    return rows if len(rows) <= size else rng.choice(rows, size, replace=False, shuffle=False)


def contrastive_epoch(run: Run, pairs: Pairs, rng: np.random.Generator) -> Epoch:
    """One pass over the anchors, the weights moved once per group of them."""
    losses: list[float] = []
    for group in chunks(pairs.anchors(rng), pairs.sizes.anchors_per_step):
        batches = list(pairs.batches(group, rng))
        if batches:
            share = 1.0 if pairs.sizes.anchor_reduction == "sum" else 1 / len(batches)
            losses += accumulate(run, batches, pairs.sizes.contrastive_temperature, share)
            run.step()
    return Epoch(float(np.mean(losses)) if losses else None, len(losses))


def accumulate(run: Run, batches: list[Batch], temperature: float, share: float) -> list[float]:
    """Gradients of ``share`` times the loss of each anchor, left in the parameters; returns the losses."""
    net: AdapterNet = run.net
    numbers = [np.concatenate([[b.anchor], b.positives, b.neighbours]) for b in batches]
    used, places = np.unique(np.concatenate(numbers), return_inverse=True)
    split = np.split(places, np.cumsum([len(part) for part in numbers])[:-1])
    index = torch.as_tensor(used, device=run.device)
    with torch.no_grad():
        hidden = torch.cat([functional.linear(run.X[part], net.w1) for part in index.split(_BLOCK)])
    hidden.requires_grad_(True)
    gram = output_gram(net)
    held = gram.detach().requires_grad_(True)
    losses = []
    for batch, place in zip(batches, split, strict=True):
        H = torch.index_select(hidden, 0, torch.as_tensor(place, device=run.device))
        loss = anchor_loss(net, H, held, len(batch.positives), batch.is_negative, temperature)
        (loss * (run.weight[batch.anchor] * share)).backward()
        losses.append(float(loss.detach()))
    gram.backward(held.grad)
    with torch.no_grad():  # the hidden layer's share of the chain rule, once for all anchors
        parts = zip(hidden.grad.split(_BLOCK), index.split(_BLOCK), strict=True)
        net.w1.grad = sum(gradient.T @ run.X[part] for gradient, part in parts)
    return losses


def output_gram(net: AdapterNet) -> Tensor:
    """``[W₂ b₂]ᵀ[W₂ b₂]`` (h+1, h+1)."""
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
    """``mean_p −log[e^{s(z,p)/τ} / (e^{s(z,p)/τ} + Σ_n e^{s(z,n)/τ})]`` with cosines s of adapted rows.

    Parameters
    ----------
    net : in training, so that its batch normalisation takes the statistics of this batch.
    H : (1 + P + N, h) rows ``W₁x`` of the anchor z, its positives and its neighbours.
    gram : from `output_gram`.
    n_positives : P.
    is_negative : (N,) neighbours that count.
    temperature : τ.
    """
    hidden = net.normalise(H)
    lifted = torch.cat([hidden, hidden.new_ones((len(hidden), 1))], dim=1)
    products = lifted @ gram
    lengths = (products * lifted).sum(dim=1).clamp(min=1e-12).sqrt()
    similar = (lifted[1:] @ products[0]) / (lengths[1:] * lengths[0] * float(temperature))
    mask = torch.as_tensor(is_negative, device=H.device)
    against = torch.logsumexp(similar[n_positives:].masked_fill(~mask, -torch.inf), dim=0)
    return functional.softplus(against - similar[:n_positives]).mean()


def count_pairs(y: Ints, predicted: Ints) -> dict[str, Any]:
    """How many rows of each class may be anchors and positives."""
    classes = range(int(y.max()) + 1)
    return {
        "anchors": [int(np.sum((y == c) & (predicted != c))) for c in classes],
        "positives": [int(np.sum((y == c) & (predicted == c))) for c in classes],
    }
