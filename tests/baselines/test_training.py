"""The loop that methods trained by gradient share."""

import importlib
import sys

import numpy as np
import pytest
from gradient_inputs import split, spurious, training
from scipy.special import softmax

from fairerclip.baselines.adapter import Adapter
from fairerclip.baselines.gradient.sgd_probe import train_probe, train_pseudo
from fairerclip.errors import MissingExtraError

torch = pytest.importorskip("torch", reason="training by gradient needs the torch extra")
loop = importlib.import_module("fairerclip.baselines.gradient.loop")


def test_the_weights_kept_are_those_of_the_best_recorded_epoch():
    (X, y, text), validation = split(2, noise=1.0)
    options = {"hidden": 6, "lr": 0.05, "random_state": 4, "device": "cpu"}
    best = Adapter(epochs=20, **options).fit(X, y, text=text, validation=validation)
    history = best.diagnostics_["history"]
    wanted = max(history, key=lambda r: (r["worst_group"], r["average"], -r["epoch"]))
    assert best.diagnostics_["epoch"] == wanted["epoch"] < 20
    stopped = Adapter(epochs=wanted["epoch"], **options).fit(X, y, text=text)
    assert stopped.diagnostics_["kept"] == loop.KEPT_LAST
    for name in Adapter.fitted:
        np.testing.assert_array_equal(getattr(best, name), getattr(stopped, name))


def test_weights_move_by_momentum_and_decay():
    X, y, _, _ = spurious(8)
    data = training(X, y)
    options = {
        "lr": 0.03,
        "momentum": 0.8,
        "weight_decay": 0.1,
        "batch_size": len(X),
        "scale": 1,
        "random_state": 2,
    }
    (first, _), (second, bias), (third, _) = (train_probe(data, epochs=k, **options)[:2] for k in (1, 2, 3))
    P = softmax(X @ second.T + bias, axis=1)
    gradient = (P - np.eye(2)[y]).T @ X / len(X) + 0.1 * second
    np.testing.assert_allclose((second - third) / 0.03, 0.8 * (first - second) / 0.03 + gradient, atol=1e-5)


def test_missing_torch_is_one_line_that_names_the_extra(monkeypatch):
    X, y, _, text = spurious(5)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="torch") as caught:
        Adapter(epochs=1).fit(X, y, text=text)
    assert "\n" not in str(caught.value)


def test_equal_seeds_give_equal_weights_and_leave_the_generator_and_threads_of_torch_alone():
    (X, y, text), validation = split(3)
    torch.manual_seed(99)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    for make in (
        lambda seed: Adapter(hidden=4, epochs=2, random_state=seed).fit(X, y, text=text).output_weight_,
        lambda seed: train_probe(training(X, y, validation=validation), epochs=2, random_state=seed)[0],
        lambda seed: train_pseudo(training(X, y, text=text), epochs=2, random_state=seed)[0],
    ):
        first, again, other = (make(seed) for seed in (5, 5, 6))
        np.testing.assert_array_equal(first, again)
        assert np.abs(first - other).max() > 1e-4
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads
