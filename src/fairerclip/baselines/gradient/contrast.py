"""Contrastive epochs of the Contrastive Adapter: the choice of anchors, positives and negatives, and the loss.

A batch is one anchor with its positives and neighbours, normalised together. The weights do not change within a group
of anchors, which saves most of the work without changing the gradients: the hidden layer is applied once to each row
of the group, statistics of batches are products of their counts with these hidden rows, and cosines of ``W₂a + b₂`` are
computed from the Gram matrix of ``[W₂ b₂]``. Gradients are written out: torch's own take more than twice as long.
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
            losses += accumulate(run, batches, float(pairs.sizes.contrastive_temperature), share)
            run.step()
    return Epoch(float(np.mean(losses)) if losses else None, len(losses))


def accumulate(run: Run, batches: list[Batch], temperature: float, share: float) -> list[float]:
    """Add the gradients of ``share`` times the loss of each anchor to the parameters, and return the losses."""
    net: AdapterNet = run.net
    numbers = [np.concatenate([[b.anchor], b.positives, b.neighbours]) for b in batches]
    used, places = np.unique(np.concatenate(numbers), return_inverse=True)
    split = np.split(places, np.cumsum([len(part) for part in numbers])[:-1])
    counts = np.array([np.bincount(place, minlength=len(used)) for place in split], dtype=np.float32)
    index = torch.as_tensor(used, device=run.device)
    output = torch.cat([net.w2, net.b2[:, None]], dim=1)
    with torch.no_grad():
        hidden = torch.cat([functional.linear(run.X[part], net.w1) for part in index.split(_BLOCK)])
        group = AnchorGroup(net, hidden, output.T @ output, torch.as_tensor(counts, device=run.device))
        losses = []
        for number, (batch, place) in enumerate(zip(batches, split, strict=True)):
            n_positives = len(batch.positives)
            compared = np.concatenate([place[: 1 + n_positives], place[1 + n_positives :][batch.is_negative]])
            rows = torch.as_tensor(compared, device=run.device)
            weight = run.weight[batch.anchor] * share
            losses.append(group.add(number, rows, n_positives, temperature, weight))
        of_hidden = group.hidden_gradient()
        parts = zip(of_hidden.split(_BLOCK), index.split(_BLOCK), strict=True)
        of_w1 = sum(gradient.T @ run.X[part] for gradient, part in parts)
    torch.autograd.backward(
        (output, net.w1, net.norm.weight, net.norm.bias),
        (2 * output.detach() @ group.of_gram, of_w1, group.of_weight, group.of_bias),
    )
    return losses


class AnchorGroup:
    """Gradients of the losses of anchors, whose batches are normalised each on its own.

    Parameters
    ----------
    net : AdapterNet
        Its running statistics are updated for each batch, as in training.
    hidden : Tensor of shape (u, h)
        Rows ``W₁x`` that occur in a batch.
    gram : Tensor of shape (h+1, h+1)
        ``[W₂ b₂]ᵀ[W₂ b₂]``.
    counts : Tensor of shape (b, u)
        How often each row is in each batch.

    Attributes
    ----------
    of_gram, of_weight, of_bias : Tensor
        Gradients in the symmetric Gram matrix and in the parameters of batch normalisation.

    Notes
    -----
    Rows that only take part in batch normalisation have the gradient of its mean and variance alone. That is linear in
    the hidden rows of each batch, so it is added for all batches at once, in `hidden_gradient`.
    """

    def __init__(self, net: AdapterNet, hidden: Tensor, gram: Tensor, counts: Tensor) -> None:
        self.net, self.gram, self.counts = net, gram, counts
        centre = hidden.mean(dim=0)
        self.hidden = hidden - centre  # so that the variance is no difference of large numbers
        self.sizes = counts.sum(dim=1, keepdim=True)
        self.means = counts @ self.hidden / self.sizes
        self.variances = (counts @ self.hidden**2 / self.sizes - self.means**2).clamp_(min=0)
        net.track(self.means + centre, self.variances, self.sizes[:, 0])
        self.deviations = (self.variances + net.norm.eps).sqrt()
        self.of_gram, self._of_hidden = torch.zeros_like(gram), torch.zeros_like(hidden)
        self.of_weight, self.of_bias = torch.zeros_like(centre), torch.zeros_like(centre)
        # Sums over each batch of the gradients in its normalised rows, and of these times the normalised rows.
        self._sums, self._products = torch.zeros_like(self.means), torch.zeros_like(self.means)

    def add(self, number: int, rows: Tensor, n_positives: int, temperature: float, weight: Tensor) -> float:
        """Add the gradients of ``weight`` times the loss of a batch, and return the loss.

        Parameters
        ----------
        number : int
            Number of the batch.
        rows : Tensor of shape (1 + P + N,)
            Places in ``hidden`` of the anchor, its positives and its negatives.
        n_positives : int
            Number P of positives.
        temperature : float
            τ.
        weight : Tensor
            Weight of the loss.
        """
        net, mean, deviation = self.net, self.means[number], self.deviations[number]
        gain = net.norm.weight / deviation
        taken = torch.index_select(self.hidden, 0, rows).sub_(mean)
        cosines = Cosines(torch.addcmul(net.norm.bias, taken, gain).relu_(), self.gram)
        loss, upstream = anchor_loss(cosines.values / temperature, n_positives)
        of_normalised, of_gram = cosines.gradients(upstream * (weight / temperature))
        sums, products = of_normalised.sum(dim=0), taken.mul_(of_normalised).sum(dim=0) / deviation
        self.of_gram += of_gram
        self.of_bias += sums
        self.of_weight += products
        self._sums[number], self._products[number] = sums, products
        self._of_hidden.index_add_(0, rows, of_normalised.mul_(gain))
        return float(loss)

    def hidden_gradient(self) -> Tensor:
        """Return the gradient in the hidden rows (u, h) of all losses that were added."""
        gain = self.net.norm.weight / self.deviations / self.sizes
        slopes = gain * self._products / self.deviations
        offsets = gain * self._sums - slopes * self.means
        return self._of_hidden - self.counts.T @ offsets - self.hidden * (self.counts.T @ slopes)


def anchor_loss(scaled_cosines: Tensor, n_positives: int) -> tuple[Tensor, Tensor]:
    """Compute ``mean_p −log[e^{s(z,p)/τ} / (e^{s(z,p)/τ} + Σ_n e^{s(z,n)/τ})]`` and its gradient.

    Parameters
    ----------
    scaled_cosines : Tensor of shape (P + N,)
        ``s/τ`` of an anchor z with its P positives and then its N negatives.
    n_positives : int
        Number P of positives.
    """
    with torch.enable_grad():
        cosines = scaled_cosines.detach().requires_grad_(True)
        negatives = torch.logsumexp(cosines[n_positives:], dim=0)
        loss = functional.softplus(negatives - cosines[:n_positives]).mean()
        return loss.detach(), torch.autograd.grad(loss, cosines)[0]


class Cosines:
    """Cosines of the first adapted row with the others, and their gradients.

    With hidden rows ``aᵢ ≥ 0``, each extended by a one, and the Gram matrix G, they are
    ``aᵢᵀGa₀ / (√(aᵢᵀGaᵢ)·√(a₀ᵀGa₀))``.

    Parameters
    ----------
    hidden : Tensor of shape (r, h)
        Rows after ReLU.
    gram : Tensor of shape (h+1, h+1)
        G.

    Attributes
    ----------
    values : Tensor of shape (r − 1,)
        The cosines.
    """

    def __init__(self, hidden: Tensor, gram: Tensor) -> None:
        inner, cross, corner = gram[:-1, :-1], gram[:-1, -1], gram[-1, -1]
        self.hidden, self.products = hidden, torch.addmm(cross, hidden, inner)
        squares = (self.products * hidden).sum(dim=1) + hidden @ cross + corner
        self.lengths = squares.clamp_(min=_SMALLEST_SQUARE).sqrt_()
        dots = hidden @ self.products[0] + (cross @ hidden[0] + corner)
        self.values = dots[1:] / (self.lengths[1:] * self.lengths[0])

    def gradients(self, upstream: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients in the rows before ReLU and in the symmetric Gram matrix; can be called once.

        They need the products ``Gaᵢ`` of the cosines and one product of matrices more.
        Rows and products are overwritten.
        """
        hidden, products, lengths = self.hidden, self.products, self.lengths
        first, first_product = hidden[0], products[0].clone()
        # Derivatives in the products aᵢᵀGa₀, and twice those in the squares aᵢᵀGaᵢ.
        of_dots = torch.zeros_like(lengths)
        of_dots[1:] = upstream / (lengths[1:] * lengths[0])
        shares = torch.empty_like(lengths)
        shares[1:] = upstream * self.values
        shares[0] = shares[1:].sum()
        of_squares = torch.where(lengths**2 > _SMALLEST_SQUARE, -shares / lengths**2, 0)

        anchor = of_dots @ products
        of_hidden = products.mul_(of_squares[:, None]).addr_(of_dots, first_product)
        of_hidden[0] += anchor
        drawn, total = of_dots @ hidden, of_dots.sum()
        of_gram = hidden.new_empty((len(first) + 1, len(first) + 1))
        weighted = hidden * of_squares[:, None]
        of_gram[:-1, :-1] = (hidden.T @ weighted).addr_(drawn, first).addr_(first, drawn)
        of_gram[:-1, -1] = of_gram[-1, :-1] = of_squares @ hidden + drawn + total * first
        of_gram[-1, -1] = of_squares.sum() + 2 * total
        return of_hidden.mul_(hidden.sign_()), of_gram / 2


def count_pairs(y: Ints, predicted: Ints) -> dict[str, Any]:
    """Count the rows of each class that can be anchors and positives."""
    classes = range(int(y.max()) + 1)
    return {
        "anchors": [int(np.sum((y == c) & (predicted != c))) for c in classes],
        "positives": [int(np.sum((y == c) & (predicted == c))) for c in classes],
    }
