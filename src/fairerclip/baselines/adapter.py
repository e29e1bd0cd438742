"""Adapters: a small network on image embeddings, trained so that frozen class prompts fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fairerclip._util.checks import check_choice, check_count, check_number, check_positive
from fairerclip._util.extras import require
from fairerclip.baselines.base import F64, Baseline, Needs, Training
from fairerclip.baselines.sgd_probe import shuffled
from fairerclip.baselines.training import (
    Epoch,
    Momentum,
    Recipe,
    Rows,
    Tensor,
    array,
    counted,
    cross_entropy_epoch,
    device_of,
    parameter,
    seed_of,
    tensor,
    train,
    uniform,
)
from fairerclip.errors import PromptError
from fairerclip.inputs.image_rows import unit_rows

VARIANTS = ("batchnorm", "clip-adapter")
BN_EPS = 1e-5
BN_MOMENTUM = 0.1


class Adapted(Baseline):
    """What adapters share once they are fitted: embeddings through the network, cosines with the prompts.

    Batch normalisation with its running statistics is an affine map, folded into the hidden layer, so that a fitted
    adapter is four arrays and needs no torch.
    """

    fitted: ClassVar[tuple[str, ...]] = (
        "hidden_weight_",
        "hidden_bias_",
        "output_weight_",
        "output_bias_",
        "text_",
    )
    shapes: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "hidden_weight_": ("h", "p"),
        "hidden_bias_": ("h",),
        "output_weight_": ("p", "h"),
        "output_bias_": ("p",),
        "text_": ("c", "p"),
    }
    added: ClassVar[Mapping[str, Any]] = {"max_steps": None}
    temperature: float

    def scores(self, X: Any) -> F64:
        """Cosines of adapted rows with the class prompts (n, c), times the temperature. O(n·p·(h + c))."""
        return np.asarray(self.temperature * unit_rows(self.transform(X)) @ self.text_.T)

    def transform(self, X: Any) -> F64:
        """Adapted embeddings (n, p), not normalised. O(n·p·h)."""
        return self._adapt(self._rows(X))

    def _adapt(self, X: F64) -> F64:
        hidden = np.maximum(X @ self.hidden_weight_.T + self.hidden_bias_, 0.0)
        return np.asarray(hidden @ self.output_weight_.T + self.output_bias_)


class Adapter(Adapted):
    """An adapter trained by plain cross-entropy over all rows: ``f(x) = W₂·ReLU(BN(W₁x)) + b₂``.

    Logits are 100 times the cosine of f(x) and the class prompts, which stay as they are.

    Parameters
    ----------
    hidden : int or None
        Width of the hidden layer; None for a quarter of the embedding's, as in CLIP-Adapter.
    variant : "batchnorm" or "clip-adapter"
        The adapter of Zhang & Ré (2022) above, or that of Gao et al. (2021):
        ``f(x) = ratio·ReLU(W₂·ReLU(W₁x)) + (1 − ratio)·x``, trained by the same recipe.
    ratio : float
        Share of the network in "clip-adapter"; "batchnorm" has no residual and does not use it.
    temperature : float
        What cosines are multiplied with.
    epochs, lr, momentum, weight_decay, batch_size, max_steps, device, progress
        As in `fairerclip.baselines.training.Recipe`. The tables have 100 epochs for Waterbirds, 50 for CelebA.
    random_state : int, RandomState or None

    Attributes
    ----------
    hidden_weight_ (h, p), hidden_bias_ (h,), output_weight_ (p, h), output_bias_ (p,), text_ (c, p)
    diagnostics_ : dict
        Which epoch was kept and why, and the history of all.

    Notes
    -----
    Training needs torch; predicting does not. With validation rows the epoch with the best worst-group accuracy on
    them is kept, as published.

    References
    ----------
    Zhang & Ré, "Contrastive adapters for foundation model group robustness", NeurIPS 2022.
    Gao et al., "CLIP-Adapter: better vision-language models with feature adapters", 2021.
    """

    needs: ClassVar[Needs] = Needs(
        labels="target",
        text=True,
        sensitive=False,
        validation=False,
        paper="Gao et al. 2021, as in Zhang & Ré 2022",
    )

    def __init__(
        self,
        *,
        hidden: int | None = 128,
        variant: str = "batchnorm",
        ratio: float = 0.2,
        temperature: float = 100.0,
        epochs: int = 100,
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 5e-5,
        batch_size: int = 128,
        max_steps: int | None = None,
        device: str = "auto",
        random_state: Any = None,
        progress: Any = None,
    ) -> None:
        self.hidden = hidden
        self.variant = variant
        self.ratio = ratio
        self.temperature = temperature
        self.epochs = epochs
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def _learn(self, data: Training) -> None:
        torch = require("torch", "torch", "training an adapter")
        recipe = recipe_of(self)
        check_choice("variant", self.variant, VARIANTS)
        check_number("ratio", self.ratio, 0, 1, open_below=True)
        data, text = counted(data), text_of(data)
        device = torch.device(device_of(recipe))
        weights = start_weights(hidden_width(self.hidden, data.X.shape[1]), data.X.shape[1], recipe.seed)
        net: AdapterNet | ClipAdapterNet
        if self.variant == "batchnorm":
            net = AdapterNet(weights, text, self.temperature, device)
        else:
            net = ClipAdapterNet(weights, text, self.temperature, self.ratio, device)
        rows = Rows.of(data, device)
        sgd = Momentum(net.parameters, recipe)

        def run_epoch(epoch: int) -> Epoch:
            order = shuffled(len(data.X), recipe.seed, epoch)
            return cross_entropy_epoch(net, sgd, rows, order, recipe.batch_size)

        self.diagnostics_ = train(net, run_epoch, recipe, data.validation)
        self.text_ = text
        self.__dict__.update(net.fitted())

    def _adapt(self, X: F64) -> F64:
        if self.variant == "batchnorm":
            return super()._adapt(X)
        return np.asarray(self.ratio * np.maximum(super()._adapt(X), 0.0) + (1 - self.ratio) * X)


class AdapterNet:
    """``W₂·ReLU(BN(W₁x)) + b₂`` and cosines with frozen prompts, in torch."""

    def __init__(self, weights: tuple[F64, F64, F64], text: F64, temperature: float, device: Any) -> None:
        w1, w2, b2 = weights
        width = len(w1)
        self.parameters = {
            "w1": parameter(w1, device),
            "gain": parameter(np.ones(width), device),
            "shift": parameter(np.zeros(width), device),
            "w2": parameter(w2, device),
            "b2": parameter(b2, device),
        }
        self.buffers = {"mean": tensor(np.zeros(width), device), "var": tensor(np.ones(width), device)}
        self.text, self.temperature = tensor(text, device), temperature

    def normalise(self, H: Tensor, *, training: bool) -> Tensor:
        """ReLU(BN(H)) of hidden rows; one row alone has no variance, so it takes the running one."""
        torch = require("torch", "torch", "training an adapter")
        p, b = self.parameters, self.buffers
        batch = torch.nn.functional.batch_norm(
            H,
            b["mean"],
            b["var"],
            p["gain"],
            p["shift"],
            training=training and len(H) > 1,
            momentum=BN_MOMENTUM,
            eps=BN_EPS,
        )
        return torch.relu(batch)

    def adapt(self, X: Tensor, *, training: bool) -> Tensor:
        """Adapted rows (n, p)."""
        hidden = self.normalise(X @ self.parameters["w1"].T, training=training)
        return hidden @ self.parameters["w2"].T + self.parameters["b2"]

    def logits(self, X: Tensor, *, training: bool) -> Tensor:
        """Cosines with the prompts (n, c), times the temperature."""
        return _cosine_logits(self.adapt(X, training=training), self.text, self.temperature)

    def fitted(self) -> dict[str, F64]:
        """Weights and biases of the two layers, with batch normalisation folded into the first."""
        values = {name: array(value) for name, value in {**self.parameters, **self.buffers}.items()}
        gain = values["gain"] / np.sqrt(values["var"] + BN_EPS)
        bias = values["shift"] - gain * values["mean"]
        return _layers(gain[:, None] * values["w1"], bias, values["w2"], values["b2"])


class ClipAdapterNet:
    """``ratio·ReLU(W₂·ReLU(W₁x)) + (1 − ratio)·x`` and cosines with frozen prompts, in torch."""

    def __init__(
        self, weights: tuple[F64, F64, F64], text: F64, temperature: float, ratio: float, device: Any
    ) -> None:
        w1, w2, _ = weights
        self.parameters = {"w1": parameter(w1, device), "w2": parameter(w2, device)}
        self.buffers: dict[str, Tensor] = {}
        self.text, self.temperature, self.ratio = tensor(text, device), temperature, ratio

    def logits(self, X: Tensor, *, training: bool) -> Tensor:
        """Cosines with the prompts (n, c), times the temperature."""
        torch = require("torch", "torch", "training an adapter")
        inner = torch.relu(X @ self.parameters["w1"].T)
        outer = torch.relu(inner @ self.parameters["w2"].T)
        mixed = self.ratio * outer + (1 - self.ratio) * X
        return _cosine_logits(mixed, self.text, self.temperature)

    def fitted(self) -> dict[str, F64]:
        """Weights of the two layers, and biases of zero."""
        w1, w2 = array(self.parameters["w1"]), array(self.parameters["w2"])
        return _layers(w1, np.zeros(len(w1)), w2, np.zeros(len(w2)))


def _layers(*arrays: F64) -> dict[str, F64]:
    return dict(zip(Adapted.fitted, arrays, strict=False))  # the prompts, last of them, are not learned


def _cosine_logits(adapted: Tensor, text: Tensor, temperature: float) -> Tensor:
    torch = require("torch", "torch", "training an adapter")
    return float(temperature) * torch.nn.functional.normalize(adapted, dim=1) @ text.T


def start_weights(hidden: int, width: int, seed: int) -> tuple[F64, F64, F64]:
    """W₁ (h, p), W₂ (p, h) and b₂ (p,) before training."""
    rng = np.random.default_rng(seed)
    return (
        uniform(rng, (hidden, width), width),
        uniform(rng, (width, hidden), hidden),
        uniform(rng, (width,), hidden),
    )


MAX_HIDDEN = 65_536
"""Wider layers would take gigabytes for any embedding."""


def hidden_width(hidden: int | None, width: int) -> int:
    """Width of the hidden layer."""
    if hidden is None:
        return max(1, width // 4)
    check_count("hidden", hidden, MAX_HIDDEN)
    return int(hidden)


def text_of(data: Training) -> F64:
    """Class prompts (c, p), or an error where there are none."""
    if data.text is None:
        raise PromptError("an adapter is trained against class prompts: give text")
    return data.text


def recipe_of(model: Any) -> Recipe:
    """The recipe that an estimator's parameters describe; its temperature is checked, too."""
    check_positive("temperature", model.temperature)
    return Recipe(
        epochs=model.epochs,
        lr=model.lr,
        momentum=model.momentum,
        weight_decay=model.weight_decay,
        batch_size=model.batch_size,
        max_steps=model.max_steps,
        device=model.device,
        seed=seed_of(model.random_state),
        progress=model.progress,
    )
