"""The Contrastive Adapter: pairs, the loss of one anchor, whole training."""

import copy
import importlib
from dataclasses import replace

import numpy as np
import pytest
from gradient_inputs import spurious, training

from fairerclip.baselines.contrastive_adapter import ContrastiveAdapter
from fairerclip.baselines.gradient.pseudo_groups import pseudo_groups
from fairerclip.baselines.gradient.recipes import Contrasts, Recipe

torch = pytest.importorskip("torch", reason="training by gradient needs the torch extra")
contrast, loop, nets = (
    importlib.import_module(f"fairerclip.baselines.gradient.{name}") for name in ("contrast", "loop", "nets")
)

SMALL = {"hidden": 8, "positives": 20, "neighbours": 60, "negatives": 30, "cell_rows": 40, "device": "cpu"}


def world(seed=1, n_classes=2, hidden=8, lr=1e-3, **options):
    """A run of a net, and its pairs."""
    X, y, _, text = spurious(seed, n_classes=n_classes, **options)
    data = training(X, y, text=text)
    net = nets.AdapterNet(nets.start_weights(hidden, X.shape[1], 3), text, 100.0)
    predicted = pseudo_groups(data, "zero-shot", 0)
    sizes = Contrasts(positives=20, neighbours=60, negatives=30, anchors_per_step=16)
    run = loop.Run(net, data, Recipe(lr=lr, device="cpu"))
    return run, contrast.Pairs(y, predicted, run.X, sizes)


def test_gradients_of_scaled_cosines_are_those_of_the_plain_formula():
    rng = np.random.default_rng(1)
    before = torch.tensor(rng.normal(size=(7, 4)), requires_grad=True)
    output = torch.tensor(rng.normal(size=(9, 5)), requires_grad=True)
    Z = torch.nn.functional.normalize(torch.relu(before) @ output[:, :-1].T + output[:, -1], dim=1)
    plain = Z[1:] @ Z[0]
    upstream = torch.tensor(rng.normal(size=6))
    of_rows, of_output = torch.autograd.grad(plain, (before, output), upstream)
    with torch.no_grad():
        cosines = contrast.Cosines(torch.relu(before), output.T @ output)
        torch.testing.assert_close(cosines.values, plain, rtol=1e-9, atol=1e-10)
        found, of_gram = cosines.gradients(upstream)
    torch.testing.assert_close(found, of_rows, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(2 * output @ of_gram, of_output, rtol=1e-9, atol=1e-10)


def test_anchors_are_wrong_positives_right_and_negatives_near_and_of_another_class():
    run, pairs = world(n_classes=4)
    X = run.X.numpy()
    rng = np.random.default_rng(7)
    anchors = pairs.anchors(rng)
    has_positives = np.isin(pairs.y, np.unique(pairs.y[pairs.predicted == pairs.y]))
    assert sorted(anchors) == np.flatnonzero((pairs.y != pairs.predicted) & has_positives).tolist()
    batches = list(pairs.batches(anchors, rng))
    assert len(batches) > 5
    for batch in batches:
        y = pairs.y[batch.anchor]
        assert (pairs.y[batch.positives] == y).all()
        assert (pairs.predicted[batch.positives] == y).all()
        assert len(set(batch.positives)) == len(batch.positives) <= 20
        assert len(set(batch.neighbours)) == len(batch.neighbours) == 30
        nearest_60 = np.argsort(-(X @ X[batch.anchor]))[:60]
        assert set(batch.neighbours) <= set(nearest_60)
        np.testing.assert_array_equal(batch.is_negative, pairs.y[batch.neighbours] != y)


def test_a_share_of_the_anchors_balances_what_they_are_taken_for():
    y = np.zeros(1100, dtype=int)
    predicted = np.repeat([0, 1, 2], [100, 950, 50])
    pairs = contrast.Pairs(y, predicted, torch.zeros((1100, 2)), Contrasts(anchor_share=0.5))
    drawn = pairs.anchors(np.random.default_rng(9))
    assert len(drawn) == 500
    assert 200 < np.sum(predicted[drawn] == 2) < 300


@pytest.mark.parametrize("resample", ["cells", "upsample"])
def test_even_epochs_see_cells_of_a_class_equally_often(resample):
    rng = np.random.default_rng(11)
    y, predicted = rng.choice(3, size=500, p=[0.7, 0.2, 0.1]), rng.choice(3, size=500, p=[0.2, 0.3, 0.5])
    rows = ContrastiveAdapter(resample=resample, cell_rows=70)._draw(y, predicted, rng)
    counts = np.array([[np.sum((y[rows] == a) & (predicted[rows] == b)) for b in range(3)] for a in range(3)])
    assert (counts == counts[:, :1]).all()
    if resample == "cells":
        assert (counts == 70).all()
    else:
        assert counts.min() >= np.bincount(y).max() / 3
        assert set(rows) == set(range(500))


def test_odd_epochs_are_contrastive_and_even_ones_cross_entropy(monkeypatch):
    calls = []
    for owner, name in ((contrast, "contrastive_epoch"), (loop.Run, "cross_entropy")):
        monkeypatch.setattr(owner, name, lambda *a, name=name: calls.append(name) or loop.Epoch(1.0, 1))
    X, y, _, text = spurious(1)
    ContrastiveAdapter(epochs=4, **SMALL).fit(X, y, text=text)
    assert calls == ["contrastive_epoch", "cross_entropy"] * 2


@pytest.mark.parametrize(("reduction", "times"), [("mean", 1), ("sum", 4)])
def test_a_step_adds_the_gradients_of_its_anchors_or_averages_them(reduction, times):
    run, pairs = world()
    sizes = replace(pairs.sizes, anchors_per_step=4, anchor_reduction=reduction)
    pairs = replace(pairs, sizes=sizes)
    steps, w2 = [], run.net.w2
    run.sgd.step = lambda: steps.append(w2.grad.clone())
    contrast.contrastive_epoch(run, pairs, np.random.default_rng(7))
    rng = np.random.default_rng(7)
    batches = list(pairs.batches(pairs.anchors(rng)[:4], rng))
    assert len(batches) == 4
    contrast.accumulate(run, batches, sizes.contrastive_temperature, times / 4)
    torch.testing.assert_close(steps[0], w2.grad, rtol=1e-3, atol=1e-6)


def test_accumulated_gradients_are_those_of_the_published_loss_of_the_plain_network():
    run, pairs = world()
    net, rng = run.net, np.random.default_rng(6)
    batches = list(pairs.batches(pairs.anchors(rng)[:5], rng))
    run.weight[batches[0].anchor] = 3.0
    before = copy.deepcopy(net.state_dict())
    found = contrast.accumulate(run, batches, 0.1, 0.2)
    ours = {name: value.grad.clone() for name, value in net.named_parameters()}
    statistics = net.norm.running_mean.clone(), net.norm.running_var.clone()
    net.zero_grad()
    net.load_state_dict(before)
    losses = []
    for batch in batches:
        order = np.concatenate([[batch.anchor], batch.positives, batch.neighbours])
        Z = torch.nn.functional.normalize(net.adapt(run.X[order]), dim=1)
        similar = Z[1:] @ Z[0] / 0.1
        k = len(batch.positives)
        below = similar[k:][torch.as_tensor(batch.is_negative)].exp().sum()
        above = similar[:k].exp()
        losses.append(-torch.log(above / (above + below)).mean())
    assert found == pytest.approx([float(loss.detach()) for loss in losses], rel=2e-5)
    weights = [run.weight[batch.anchor] for batch in batches]
    (sum(w * loss for w, loss in zip(weights, losses, strict=True)) * 0.2).backward()
    for name, value in net.named_parameters():
        torch.testing.assert_close(ours[name], value.grad, rtol=1e-3, atol=1e-6)
    # The statistics of the plain network are those of the same batches, one after the other.
    torch.testing.assert_close(
        statistics, (net.norm.running_mean, net.norm.running_var), rtol=1e-5, atol=1e-7
    )
