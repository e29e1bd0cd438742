"""Training by gradient: the recipe of Zhang & Ré (2022), one loop for all methods, the best epoch kept.

Every random number comes from numpy generators made of the seed, so that weights start the same on every
device and torch's own generators are neither used nor changed.
"""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from fairerclip._util.checks import (
    LARGEST,
    check_choice,
    check_count,
    check_number,
    check_positive,
    check_within,
)
from fairerclip._util.extras import require
from fairerclip.baselines.base import F64, Ints, Training, Validation
from fairerclip.errors import LabelError, NonFiniteError, ParameterError
from fairerclip.metrics.groups.cells import cell_accuracies, shrunken_worst_group

Tensor = Any
Progress = Callable[[dict[str, Any]], None]

KEPT_BEST = "best validation worst group"
KEPT_LAST = "last epoch: there are no validation rows"


@dataclass(frozen=True)
class Recipe:
    """How to train; defaults are those of Zhang & Ré.

    Attributes
    ----------
    epochs, batch_size : int
    lr, momentum, weight_decay : of stochastic gradient descent.
    max_steps : stop after the epoch in which so many batches have been learned from; None for no cap. An anchor of the
        Contrastive Adapter with its rows is a batch.
    device : "auto" (a GPU where there is one), "cpu" or "cuda".
    seed : int; weights, order of rows and draws come from it.
    progress : called with a record of each epoch, or None; ``record["fitted"]()`` gives the fitted arrays, by name, as
        they are after it.
    """

    epochs: int = 100
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-5
    batch_size: int = 128
    max_steps: int | None = None
    device: str = "auto"
    seed: int = 0
    progress: Progress | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            check_count(name, getattr(self, name))
        check_positive("lr", self.lr)
        check_number("momentum", self.momentum, 0, 1)
        check_within("weight_decay", self.weight_decay, 0, LARGEST)
        if self.max_steps is not None:
            check_count("max_steps", self.max_steps)
        check_choice("device", self.device, ("auto", "cpu", "cuda"))
        if self.progress is not None and not callable(self.progress):
            raise ParameterError(f"progress must be callable or None; got {self.progress!r}")


class Epoch(NamedTuple):
    """What an epoch did."""

    loss: float | None
    """Mean over its rows; None if it had nothing to do."""
    steps: int
    """Batches that it learned from."""


class Net(Protocol):
    """What the loop needs of a model."""

    parameters: dict[str, Tensor]
    """Learned by gradient."""
    buffers: dict[str, Tensor]
    """Kept beside them: running means and variances."""

    def logits(self, X: Tensor, *, training: bool) -> Tensor:
        """Logits (n, c) of rows (n, p)."""
        ...

    def fitted(self) -> dict[str, F64]:
        """Arrays of the fitted model, by name, as the weights are now."""
        ...


class Momentum:
    """Gradient descent with momentum and weight decay: ``v ← μv + g + λw, w ← w − ηv``.

    Equals ``torch.optim.SGD``, without the seconds that its first import takes.
    """

    def __init__(self, parameters: dict[str, Tensor], recipe: Recipe) -> None:
        self._torch = require("torch", "torch", "training by gradient")
        self._parameters = list(parameters.values())
        self._velocities = [self._torch.zeros_like(w) for w in self._parameters]
        self._recipe = recipe

    def step(self) -> None:
        """Move the parameters against their gradients, and forget the gradients."""
        recipe = self._recipe
        with self._torch.no_grad():
            for w, v in zip(self._parameters, self._velocities, strict=True):
                v.mul_(float(recipe.momentum)).add_(w, alpha=float(recipe.weight_decay))
                if w.grad is not None:
                    v.add_(w.grad)
                w.sub_(v, alpha=float(recipe.lr))
                w.grad = None


def train(
    net: Net, run_epoch: Callable[[int], Epoch], recipe: Recipe, validation: Validation | None
) -> dict[str, Any]:
    """Run epochs, leave ``net`` as it was after the kept one, and return diagnostics.

    Kept is the epoch with the best worst-group accuracy on the validation rows, so their group labels are used;
    among equals the better average, then the earlier epoch. Without validation rows it is the last epoch.

    Parameters
    ----------
    net : changed in place.
    run_epoch : takes the number of the epoch, from 1.
    recipe : how long, and on which device.
    validation : rows with class and group, or None.

    Returns
    -------
    dict with ``epoch`` (the one kept), ``epochs`` and ``steps`` (run), ``kept`` and ``stopped`` (why), ``seconds``,
    ``device`` and ``history`` (one record per epoch).
    """
    torch = require("torch", "torch", "training by gradient")
    device = torch.device(device_of(recipe))
    rows = None if validation is None else tensor(validation.X, device)
    history: list[dict[str, Any]] = []
    best, kept, stopped = (-1.0, -1.0), 0, "epochs"
    snapshot: dict[str, Tensor] = {}
    start, steps = time.monotonic(), 0
    for epoch in range(1, recipe.epochs + 1):
        with torch.enable_grad(), one_thread():
            loss, taken = run_epoch(epoch)
        steps += taken
        if loss is not None and not math.isfinite(loss):
            raise NonFiniteError(f"training diverged in epoch {epoch} (loss {loss}); lower lr={recipe.lr}")
        record: dict[str, Any] = {"epoch": epoch, "loss": loss}
        if validation is not None:
            found = _validate(net, rows, validation)
            record.update(worst_group=found[0], average=found[1])
            if found > best:
                best, kept, snapshot = found, epoch, _copy(net)
        history.append(record)
        if recipe.progress is not None:
            recipe.progress({**record, "epochs": recipe.epochs, "fitted": net.fitted})
        if recipe.max_steps is not None and steps >= recipe.max_steps:
            stopped = "max_steps" if epoch < recipe.epochs else stopped
            break
    if validation is not None:
        _restore(net, snapshot)
    return {
        "epoch": kept if validation is not None else len(history),
        "epochs": len(history),
        "steps": steps,
        "kept": KEPT_LAST if validation is None else KEPT_BEST,
        "stopped": stopped,
        "seconds": time.monotonic() - start,
        "device": str(device),
        "history": history,
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread inside, as many as before afterwards.

    The matrices are small: on a busy machine two threads that wait for each other took ten times as long as one. It
    also makes results independent of the number of cores.
    """
    torch = require("torch", "torch", "training by gradient")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cross_entropy_epoch(
    net: Net, sgd: Momentum, rows: Rows, order: NDArray[np.integer[Any]], batch_size: int
) -> Epoch:
    """One pass of weighted cross-entropy over the rows named by ``order``."""
    torch = require("torch", "torch", "training by gradient")
    total, steps = 0.0, 0
    for batch in chunks(order, batch_size):
        index = torch.as_tensor(batch, device=rows.X.device)
        losses = torch.nn.functional.cross_entropy(
            net.logits(rows.X[index], training=True), rows.y[index], reduction="none"
        )
        loss = (losses * rows.weight[index]).mean()
        loss.backward()
        sgd.step()
        total += float(loss.detach()) * len(batch)
        steps += 1
    return Epoch(total / len(order), steps)


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows on the device: X (n, p), y (n,), weight (n,) of mean one."""

    X: Tensor
    y: Tensor
    weight: Tensor

    @classmethod
    def of(cls, data: Training, device: Any, scale: float = 1.0) -> Rows:
        """Copy rows to the device in single precision, times ``scale``."""
        torch = require("torch", "torch", "training by gradient")
        y = torch.as_tensor(labels_of(data), dtype=torch.int64, device=device)
        return cls(tensor(data.X * scale, device), y, tensor(data.weight / data.weight.mean(), device))


def counted(data: Training) -> Training:
    """The rows that count: those of positive weight."""
    labels = labels_of(data)
    used = data.weight > 0
    if not used.any():
        raise LabelError("every row has weight zero: there is nothing to learn from")
    groups = None if data.s is None else data.s[used]
    return replace(data, X=data.X[used], y=labels[used], s=groups, weight=data.weight[used])


def labels_of(data: Training) -> Ints:
    """Class codes, or an error where there are none."""
    if data.y is None:
        raise LabelError("training by gradient learns from labels: give y")
    return data.y


def tensor(values: NDArray[Any], device: Any) -> Tensor:
    """A single-precision copy on the device."""
    torch = require("torch", "torch", "training by gradient")
    return torch.tensor(np.asarray(values, dtype=np.float32), dtype=torch.float32, device=device)


def parameter(values: NDArray[Any], device: Any) -> Tensor:
    """A tensor that gradients are wanted of."""
    return tensor(values, device).requires_grad_(True)


def array(values: Tensor) -> F64:
    """A double-precision array, detached from the device and the graph."""
    return np.asarray(values.detach().cpu().numpy(), dtype=np.float64)


def device_of(recipe: Recipe) -> str:
    """The device to use: "cpu" or "cuda"."""
    torch = require("torch", "torch", "training by gradient")
    if recipe.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise ParameterError("device='cuda' was asked for, but torch sees no GPU; use 'auto' or 'cpu'")
    return recipe.device


def seed_of(random_state: Any) -> int:
    """A seed: the integer itself, or one drawn from what scikit-learn accepts."""
    if isinstance(random_state, numbers.Integral) and 0 <= int(random_state) < 2**63:
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise ParameterError(
            f"random_state must be None, an integer from 0 on or a RandomState; got {random_state!r}"
        ) from None


def chunks(rows: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """Consecutive pieces of at most ``size``."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def uniform(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> F64:
    """Start weights within ±1/√fan_in, as torch's linear layers start."""
    bound = 1 / math.sqrt(fan_in)
    return rng.uniform(-bound, bound, size=shape)


def _validate(net: Net, rows: Tensor, validation: Validation) -> tuple[float, float]:
    """Worst-group and average accuracy."""
    torch = require("torch", "torch", "training by gradient")
    with torch.no_grad(), one_thread():
        logits = net.logits(rows, training=False)
    predicted = logits.argmax(dim=1).cpu().numpy()
    hits, counts = cell_accuracies(
        validation.y, predicted, validation.s, logits.shape[1], int(validation.s.max()) + 1
    )
    return float(shrunken_worst_group(hits, counts, prior=0)[0]), float(hits.sum() / counts.sum())


def _copy(net: Net) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in {**net.parameters, **net.buffers}.items()}


def _restore(net: Net, snapshot: dict[str, Tensor]) -> None:
    torch = require("torch", "torch", "training by gradient")
    with torch.no_grad():
        for name, value in {**net.parameters, **net.buffers}.items():
            value.copy_(snapshot[name])
