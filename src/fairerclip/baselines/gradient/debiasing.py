"""Networks of the methods that hide S from a classifier by gradient: `DeAR` and `PromptDebiasing`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fairerclip._util.types import F64
from fairerclip.baselines.gradient.loop import Epoch, Run, chunks, one_thread
from fairerclip.baselines.gradient.nets import CosineNet, Tensor, array, floats, parameter, uniform
from fairerclip.baselines.gradient.recipes import Recipe, shuffled
from fairerclip.baselines.prompt_debiasing import moved
from fairerclip.baselines.training_data import Training
from fairerclip.encoders.prompt_tokens import TokenTower
from fairerclip.inputs.prompts import prototypes

Rows = NDArray[np.integer[Any]]
ADVERSARY_STEPS = 5
"""Steps of the adversary for each step of the prompts."""
ROW_SCALE = 10.0
"""Factor of unit rows as the attribute classifier sees them, as for linear probes by gradient."""


class AttributeNet(torch.nn.Module):
    """Classifier of S with one hidden layer, ``W₂·ReLU(W₁x + b₁) + b₂``; linear if the layer has no units."""

    def __init__(self, width: int, hidden: int, n_values: int, seed: int) -> None:
        super().__init__()
        rng = np.random.default_rng([seed, 1])
        self.hidden = hidden
        if hidden:
            self.w1, self.b1 = parameter(uniform(rng, (hidden, width), width)), parameter(np.zeros(hidden))
        inner = hidden or width
        self.w2, self.b2 = parameter(uniform(rng, (n_values, inner), inner)), parameter(np.zeros(n_values))

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits (n, v)."""
        inner = torch.relu(functional.linear(X, self.w1, self.b1)) if self.hidden else X
        return functional.linear(inner, self.w2, self.b2)


def trained_classifier(data: Training, hidden: int, recipe: Recipe, seed: int) -> AttributeNet:
    """Return a classifier of the codes ``data.y`` from unit rows times `ROW_SCALE`, trained and frozen."""
    net = AttributeNet(data.X.shape[1], hidden, data.n_groups, seed)
    run = Run(net, data, recipe, ROW_SCALE)
    with torch.enable_grad(), one_thread():
        for epoch in range(1, recipe.epochs + 1):
            run.cross_entropy(shuffled(len(data.X), seed, epoch))
    net.requires_grad_(False)
    return net


def unevenness(logits: Tensor) -> Tensor:
    """Return the divergence KL(uniform, softmax) of each row (n,): zero if all values are equally probable."""
    even = -functional.log_softmax(logits, dim=1).mean(dim=1)
    return even - float(np.log(logits.shape[1]))


class ResidualNet(CosineNet):
    """Image embeddings with a linear residual, ``x + Wx + b``, that starts at zero."""

    def __init__(self, text: F64, temperature: float) -> None:
        super().__init__(text, temperature)
        width = text.shape[1]
        self.weight, self.bias = parameter(np.zeros((width, width))), parameter(np.zeros(width))

    def adapt(self, X: Tensor) -> Tensor:
        """Return the changed rows (n, p)."""
        return X + functional.linear(X, self.weight, self.bias)

    def fitted(self) -> dict[str, F64]:
        """Return weight and bias of the residual."""
        return {"residual_weight_": array(self.weight), "residual_bias_": array(self.bias)}


def residual_epoch(run: Run, classifier: AttributeNet, strength: float, order: Rows) -> Epoch:
    """Run one epoch of ``‖φ(x) − x‖² + strength·KL(uniform, p(S | φ(x)))``."""

    def losses(rows: Tensor) -> Tensor:
        x = run.X[rows]
        changed = run.net.adapt(x)
        hidden = unevenness(classifier(ROW_SCALE * functional.normalize(changed, dim=1)))
        return ((changed - x) ** 2).sum(dim=1) + strength * hidden

    return run.minimise(order, losses)


class PromptsNet(CosineNet):
    """Network whose logits (n, c) are cosines of images as they are with changed prompts, times a temperature."""

    def prompts(self) -> Tensor:
        """Return the changed prompts (c, p) at unit length."""
        raise NotImplementedError

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits (n, c)."""
        return self.temperature * functional.normalize(X, dim=1) @ self.prompts().T


class PromptNet(PromptsNet):
    """Prompts ``t + offset + left·(right·t)``, normalised, compared with images as they are."""

    def __init__(self, text: F64, temperature: float, rank: int, seed: int) -> None:
        super().__init__(text, temperature)
        width, rng = text.shape[1], np.random.default_rng(seed)
        self.offset = parameter(np.zeros(width))
        self.left = parameter(np.zeros((width, rank)))
        self.right = parameter(uniform(rng, (rank, width), 1) / np.sqrt(max(1, rank)))
        self.start = text

    def prompts(self) -> Tensor:
        """Return the changed prompts (c, p) at unit length."""
        change = functional.linear(functional.linear(self.text, self.right), self.left)
        return functional.normalize(self.text + self.offset + change, dim=1)

    def fitted(self) -> dict[str, F64]:
        """Return the change and the class prompts after it."""
        offset, left, right = array(self.offset), array(self.left), array(self.right)
        text = moved(self.start, offset, left, right)
        lengths = np.linalg.norm(text, axis=1, keepdims=True)
        return {"offset_": offset, "left_": left, "right_": right, "text_": text / lengths}


class TokenNet(PromptsNet):
    """Class prompts whose sentences have learned word vectors in front, compared with images as they are.

    The text tower is no part of the network: its weights are neither trained nor copied.
    """

    def __init__(
        self, text: F64, temperature: float, tower: TokenTower, words: list[list[str]], n_tokens: int
    ) -> None:
        super().__init__(text, temperature)
        self.tower, self.words = tower, words
        self.ids = tower.ids([sentence for group in words for sentence in group], n_tokens)
        owner = np.repeat(np.arange(len(words)), [len(group) for group in words])
        shares = (owner == np.arange(len(words))[:, None]) / np.bincount(owner)[:, None]
        self.register_buffer("shares", floats(shares), persistent=False)  # (c, m)
        self.tokens = parameter(tower.fillers(n_tokens))

    def prompts(self) -> Tensor:
        """Return the class prompts (c, p) with tokens at unit length: the mean of the unit rows of their sentences."""
        rows = self.tower.rows(self.ids, self.tokens).to(self.tokens.device)
        return functional.normalize(self.shares @ functional.normalize(rows, dim=1), dim=1)

    def unchanged(self, X: Tensor) -> Tensor:
        """Return the logits (n, c) of the prompts without tokens."""
        return self.temperature * functional.normalize(X, dim=1) @ self.text.T

    def fitted(self) -> dict[str, F64]:
        """Return the tokens and the class prompts with them."""
        tokens = array(self.tokens)
        groups = [self.tower.embed(group, tokens) for group in self.words]
        return {"tokens_": tokens, "text_": prototypes(groups)}


class Adversary:
    """Classifier of S from similarities with the prompts, trained alongside the prompts.

    Similarities are standardised in every batch, so that prompts cannot mislead it by a shift or a scale. The
    similarities to keep are those of ``unchanged``, a function of rows to logits: by default of the prompts at the
    start.
    """

    def __init__(
        self,
        run: Run,
        data: Training,
        hidden: int,
        lr: float,
        seed: int,
        unchanged: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.run = run
        with torch.no_grad(), one_thread():
            self.unchanged = (unchanged or run.net)(run.X)
        shares = np.bincount(run.y.cpu().numpy(), weights=array(run.weight))
        shares = shares[shares > 0] / shares.sum()
        self.entropy = float(-np.sum(shares * np.log(shares)))
        self.net = AttributeNet(self.unchanged.shape[1], hidden, data.n_groups, seed).to(run.device)
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=float(run.recipe.momentum))

    def loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return the mean cross-entropy of its guesses from similarities (b, c) of some rows (b,)."""
        spread = logits.std(dim=0, unbiased=False).clamp_min(1e-6)
        guess = self.net((logits - logits.mean(dim=0)) / spread)
        losses = functional.cross_entropy(guess, self.run.y[rows], reduction="none")
        return (losses * self.run.weight[rows]).sum() / self.run.weight[rows].sum()

    def learn(self, rows: Tensor, steps: int) -> None:
        """Take steps on the present similarities of some rows."""
        with torch.no_grad():
            logits = self.run.net(self.run.X[rows])
        for _ in range(steps):
            self.sgd.zero_grad()
            self.loss(logits, rows).backward()
            self.sgd.step()

    def warm_up(self, epochs: int, seed: int) -> None:
        """Run epochs in which the adversary learns and the prompts stay as they are."""
        with torch.enable_grad(), one_thread():
            for epoch in range(epochs):
                order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.run.X))
                for batch in chunks(order, self.run.recipe.batch_size):
                    self.learn(torch.as_tensor(batch, device=self.run.device), 1)

    def epoch(self, order: Rows, strength: float) -> Epoch:
        """Run one epoch: steps of the adversary, then a step of the prompts, for every batch.

        The loss of the prompts is the contrastive loss, and ``strength`` times what the adversary knows of S: the
        entropy of S less its cross-entropy, if that is positive.
        """

        def losses(rows: Tensor) -> Tensor:
            self.learn(rows, ADVERSARY_STEPS)
            logits = self.run.net(self.run.X[rows])
            kept = contrastive(logits, self.unchanged[rows], self.run.weight[rows])
            return kept + strength * torch.relu(self.entropy - self.loss(logits, rows))

        return self.run.minimise(order, losses)


def contrastive(logits: Tensor, unchanged: Tensor, weight: Tensor) -> Tensor:
    """Return the contrastive loss of similarities (b, c) of images and prompts, with those of unchanged prompts, (b,).

    As in CLIP it has two directions: half the cross-entropy of the classes of each image, which does not see what is
    added to all similarities of an image, and half that of the images of the batch for each class, which does and so
    keeps the order of images. Row weights (b,), which are positive, are the prior probabilities of images.
    """
    to_classes = functional.cross_entropy(logits, torch.softmax(unchanged, dim=1), reduction="none")
    prior = weight.log()
    to_images = functional.cross_entropy(logits.T + prior, torch.softmax(unchanged.T + prior, dim=1))
    return (to_classes + to_images) / 2
