"""Networks that are trained: two adapters and a linear probe.

Starting weights are drawn by numpy from the seed, so they are the same on every device, and torch's generators are
neither used nor changed. ``fitted()`` returns the arrays with which to predict without torch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fairerclip._util.types import F64

Tensor = Any


class CosineNet(torch.nn.Module):
    """Network whose logits (n, c) are cosines of adapted rows with frozen prompts, times a temperature."""

    def __init__(self, text: F64, temperature: float) -> None:
        super().__init__()
        self.register_buffer("text", floats(text), persistent=False)
        self.temperature = float(temperature)

    def adapt(self, X: Tensor) -> Tensor:
        """Return the adapted rows (n, p)."""
        raise NotImplementedError

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits (n, c)."""
        return self.temperature * functional.normalize(self.adapt(X), dim=1) @ self.text.T


class AdapterNet(CosineNet):
    """Adapter ``W₂·ReLU(BN(W₁x)) + b₂``."""

    def __init__(self, start: tuple[F64, F64, F64], text: F64, temperature: float) -> None:
        super().__init__(text, temperature)
        self.w1, self.w2, self.b2 = map(parameter, start)
        self.norm = torch.nn.BatchNorm1d(len(self.w1))

    def normalise(self, H: Tensor) -> Tensor:
        """Return ReLU(BN(H)) of hidden rows; a single row has no variance, so it uses the running statistics."""
        self.norm.train(self.training and len(H) > 1)
        return torch.relu(self.norm(H))

    def track(self, means: Tensor, variances: Tensor, sizes: Tensor) -> None:
        """Update the running statistics by batches with these means and variances (b, h) and numbers of rows (b,)."""
        for mean, variance, size in zip(means, variances, sizes, strict=True):
            self.norm.running_mean.lerp_(mean, self.norm.momentum)
            self.norm.running_var.lerp_(variance * (size / (size - 1)), self.norm.momentum)

    def adapt(self, X: Tensor) -> Tensor:
        """Return the adapted rows (n, p)."""
        return functional.linear(self.normalise(functional.linear(X, self.w1)), self.w2, self.b2)

    def fitted(self) -> dict[str, F64]:
        """Return weights and biases of the two layers, with batch normalisation folded into the first."""
        norm = self.norm
        gain = array(norm.weight) / np.sqrt(array(norm.running_var) + norm.eps)
        return {
            "hidden_weight_": gain[:, None] * array(self.w1),
            "hidden_bias_": array(norm.bias) - gain * array(norm.running_mean),
            "output_weight_": array(self.w2),
            "output_bias_": array(self.b2),
        }


class ClipAdapterNet(CosineNet):
    """Adapter ``ratio·ReLU(W₂·ReLU(W₁x)) + (1 − ratio)·x``."""

    def __init__(self, start: tuple[F64, F64, F64], text: F64, temperature: float, ratio: float) -> None:
        super().__init__(text, temperature)
        self.w1, self.w2 = map(parameter, start[:2])
        self.ratio = ratio

    def adapt(self, X: Tensor) -> Tensor:
        """Return the adapted rows (n, p)."""
        inner = torch.relu(functional.linear(X, self.w1))
        return self.ratio * torch.relu(functional.linear(inner, self.w2)) + (1 - self.ratio) * X

    def fitted(self) -> dict[str, F64]:
        """Return weights of the two layers, and biases of zero."""
        return {
            "hidden_weight_": array(self.w1),
            "hidden_bias_": np.zeros(len(self.w1)),
            "output_weight_": array(self.w2),
            "output_bias_": np.zeros(len(self.w2)),
        }


class LinearNet(torch.nn.Module):
    """Linear probe ``Wx + b`` of rows that are multiplied by ``factor``."""

    def __init__(self, width: int, n_classes: int, seed: int, factor: float) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.weight = parameter(uniform(rng, (n_classes, width), width))
        self.bias = parameter(uniform(rng, (n_classes,), width))
        self.factor = factor

    def forward(self, X: Tensor) -> Tensor:
        """Return the logits (n, c)."""
        return functional.linear(X, self.weight, self.bias)

    def fitted(self) -> dict[str, F64]:
        """Return coefficients and intercepts for the rows before multiplication."""
        return {"coef_": array(self.weight) * self.factor, "intercept_": array(self.bias)}


def start_weights(hidden: int, width: int, seed: int) -> tuple[F64, F64, F64]:
    """Draw W₁ (h, p), W₂ (p, h) and b₂ (p,) before training."""
    rng = np.random.default_rng(seed)
    return (
        uniform(rng, (hidden, width), width),
        uniform(rng, (width, hidden), hidden),
        uniform(rng, (width,), hidden),
    )


def uniform(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> F64:
    """Draw uniform weights within ±1/√fan_in, as torch does for linear layers."""
    bound = 1 / math.sqrt(fan_in)
    return rng.uniform(-bound, bound, size=shape)


def floats(values: NDArray[Any]) -> Tensor:
    """Return a single-precision tensor with a copy of the values."""
    return torch.tensor(np.asarray(values, dtype=np.float32))


def parameter(values: NDArray[Any]) -> Tensor:
    """Return a single-precision copy as a trainable parameter."""
    return torch.nn.Parameter(floats(values))


def array(values: Tensor) -> F64:
    """Return a tensor as a double-precision array, detached from the device and the graph."""
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float64)
