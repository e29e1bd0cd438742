"""Training loop of all methods that are trained by gradient descent; the best epoch is kept."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fairerclip.baselines.gradient.nets import Tensor, floats
from fairerclip.baselines.gradient.recipes import Recipe, labels_of
from fairerclip.baselines.training_data import Training, Validation
from fairerclip.errors import NonFiniteError, ParameterError
from fairerclip.metrics.groups.cells import cell_accuracies, shrunken_worst_group

KEPT_BEST = "best validation worst group"
KEPT_LAST = "last epoch: there are no validation rows"


class Epoch(NamedTuple):
    """Result of one epoch."""

    loss: float | None
    """Mean loss over its rows; None if there were none."""
    steps: int
    """Number of batches that it learned from."""


class Run:
    """Network, optimiser and training rows on one device.

    Attributes
    ----------
    net : torch.nn.Module
        Maps rows (n, p) to logits (n, c); its ``fitted()`` returns the current weights as arrays by name.
    recipe : Recipe
        Parameters of the training.
    sgd : torch.optim.SGD
        Gradient descent with momentum and weight decay.
    X, y, weight : Tensor of shape (n, p), (n,) and (n,)
        Rows times ``scale``, classes, and weights of mean one.
    """

    def __init__(self, net: Any, data: Training, recipe: Recipe, scale: float = 1.0) -> None:
        self.device = torch.device(_device(recipe))
        self.net, self.recipe = net.to(self.device), recipe
        self.sgd = torch.optim.SGD(
            net.parameters(),
            lr=float(recipe.lr),
            momentum=float(recipe.momentum),
            weight_decay=float(recipe.weight_decay),
        )
        self.X = floats(data.X * scale).to(self.device)
        self.y = torch.as_tensor(labels_of(data), dtype=torch.int64, device=self.device)
        self.weight = floats(data.weight / data.weight.mean()).to(self.device)

    def step(self) -> None:
        """Take one optimiser step, and reset the gradients."""
        self.sgd.step()
        self.sgd.zero_grad()

    def cross_entropy(self, order: NDArray[np.integer[Any]]) -> Epoch:
        """Run one epoch of weighted cross-entropy over the row numbers in ``order``."""

        def losses(rows: Tensor) -> Tensor:
            return functional.cross_entropy(self.net(self.X[rows]), self.y[rows], reduction="none")

        return self.minimise(order, losses)

    def minimise(self, order: NDArray[np.integer[Any]], losses: Callable[[Tensor], Tensor]) -> Epoch:
        """Run one epoch of any loss over the row numbers in ``order``; ``losses`` takes rows (b,) to losses (b,)."""
        total, steps = 0.0, 0
        for batch in chunks(order, self.recipe.batch_size):
            index = torch.as_tensor(batch, device=self.device)
            loss = (losses(index) * self.weight[index]).mean()
            loss.backward()
            self.step()
            total += float(loss.detach()) * len(batch)
            steps += 1
        return Epoch(total / len(order), steps)

    def train(self, run_epoch: Callable[[int], Epoch], validation: Validation | None) -> dict[str, Any]:
        """Run the epochs, restore the network of the kept epoch, and return diagnostics.

        The kept epoch has the best worst-group accuracy on the validation rows, so their group labels are used; ties
        go to the better average, then to the earlier epoch. Without validation rows the last epoch is kept.

        Parameters
        ----------
        run_epoch : callable
            Takes the number of the epoch, from 1.
        validation : Validation or None
            Rows with class and group.

        Returns
        -------
        dict
            ``epoch`` (the kept one), ``epochs`` and ``steps`` (numbers run), ``kept`` and ``stopped`` (reasons),
            ``seconds``, ``device`` and ``history`` (one record per epoch).
        """
        net, recipe = self.net, self.recipe
        rows = None if validation is None else floats(validation.X).to(self.device)
        history: list[dict[str, Any]] = []
        best, kept, stopped = (-1.0, -1.0), 0, "epochs"
        snapshot: dict[str, Tensor] = {}
        start, steps = time.monotonic(), 0
        for epoch in range(1, recipe.epochs + 1):
            net.train()
            with torch.enable_grad(), one_thread():
                loss, epoch_steps = run_epoch(epoch)
            steps += epoch_steps
            if loss is not None and not math.isfinite(loss):
                raise NonFiniteError(
                    f"training diverged in epoch {epoch} (loss {loss}); lower lr={recipe.lr}"
                )
            record: dict[str, Any] = {"epoch": epoch, "loss": loss}
            if validation is not None:
                accuracies = _validate(net, rows, validation)
                record.update(worst_group=accuracies[0], average=accuracies[1])
                if accuracies > best:
                    best, kept, snapshot = accuracies, epoch, copy.deepcopy(net.state_dict())
            history.append(record)
            if recipe.progress is not None:
                recipe.progress({**record, "epochs": recipe.epochs, "fitted": net.fitted})
            if recipe.max_steps is not None and steps >= recipe.max_steps:
                stopped = "max_steps" if epoch < recipe.epochs else stopped
                break
        if validation is not None:
            net.load_state_dict(snapshot)
        return {
            "epoch": kept if validation is not None else len(history),
            "epochs": len(history),
            "steps": steps,
            "kept": KEPT_LAST if validation is None else KEPT_BEST,
            "stopped": stopped,
            "seconds": time.monotonic() - start,
            "device": str(self.device),
            "history": history,
        }


def chunks(rows: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """Yield consecutive pieces of at most ``size`` rows."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread inside this context.

    The matrices are small: on a busy machine two threads that wait for each other took ten times as long as one. It
    also makes results independent of the number of cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _device(recipe: Recipe) -> str:
    """Return the device to use, "cpu" or "cuda"."""
    if recipe.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if recipe.device == "cuda" and not torch.cuda.is_available():
        raise ParameterError("device='cuda' was asked for, but torch sees no GPU; use 'auto' or 'cpu'")
    return recipe.device


def _validate(net: Any, rows: Tensor, validation: Validation) -> tuple[float, float]:
    """Compute the worst-group and average accuracy on validation rows."""
    net.eval()
    with torch.no_grad(), one_thread():
        logits = net(rows)
    predicted = logits.argmax(dim=1).cpu().numpy()
    hits, counts = cell_accuracies(
        validation.y, predicted, validation.s, logits.shape[1], int(validation.s.max()) + 1
    )
    return float(shrunken_worst_group(hits, counts, prior=0)[0]), float(hits.sum() / counts.sum())
