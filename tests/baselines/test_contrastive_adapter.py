"""The Contrastive Adapter: pairs, the loss of one anchor, whole training."""

import copy
import importlib
from dataclasses import replace

import numpy as np
import pytest
from gradient_inputs import split, spurious, training, worst_group

from fairerclip.baselines.adapter import Adapter
from fairerclip.baselines.contrastive_adapter import PUBLISHED, ContrastiveAdapter
from fairerclip.baselines.gradient.pseudo_groups import pseudo_groups
from fairerclip.baselines.gradient.recipes import Contrasts, Recipe
from fairerclip.errors import ParameterError, VanishedLabelWarning

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


def adapted(net, X):
    """Adapted unit rows by plain formulas in double precision, normalised with the statistics of these rows."""
    p = {name: value.detach().numpy().astype(float) for name, value in net.named_parameters()}
    H = X @ p["w1"].T
    H = (H - H.mean(axis=0)) / np.sqrt(H.var(axis=0) + 1e-5) * p["norm.weight"] + p["norm.bias"]
    Z = np.maximum(H, 0) @ p["w2"].T + p["b2"]
    return Z / np.linalg.norm(Z, axis=1, keepdims=True)


def naive_loss(net, X, batch, temperature):
    Z = adapted(net, X[np.concatenate([[batch.anchor], batch.positives, batch.neighbours])])
    z, positives, neighbours = Z[0], Z[1 : 1 + len(batch.positives)], Z[1 + len(batch.positives) :]
    losses = []
    for positive in positives:
        above = np.exp(z @ positive / temperature)
        below = sum(np.exp(z @ negative / temperature) for negative in neighbours[batch.is_negative])
        losses.append(-np.log(above / (above + below)))
    return np.mean(losses)


def test_the_loss_of_an_anchor_is_the_published_formula():
    run, pairs = world()
    net, rng = run.net, np.random.default_rng(5)
    batches = list(pairs.batches(pairs.anchors(rng)[:3], rng))
    assert len(batches) == 3
    found = contrast.accumulate(run, batches, 0.1, 1.0)
    assert found == pytest.approx([naive_loss(net, run.X.numpy(), batch, 0.1) for batch in batches], rel=2e-5)


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_accumulated_gradients_are_those_of_the_loss_of_the_plain_network(share):
    run, pairs = world()
    net, rng = run.net, np.random.default_rng(6)
    batches = list(pairs.batches(pairs.anchors(rng)[:5], rng))
    run.weight[batches[0].anchor] = 3.0
    before = copy.deepcopy(net.state_dict())
    losses = contrast.accumulate(run, batches, 0.1, share)
    ours = {name: value.grad.clone() for name, value in net.named_parameters()}
    statistics = net.norm.running_mean.clone(), net.norm.running_var.clone()
    net.zero_grad()
    net.load_state_dict(before)
    total = 0
    for batch in batches:
        order = np.concatenate([[batch.anchor], batch.positives, batch.neighbours])
        Z = torch.nn.functional.normalize(net.adapt(run.X[order]), dim=1)
        similar = Z[1:] @ Z[0] / 0.1
        k = len(batch.positives)
        below = similar[k:][torch.as_tensor(batch.is_negative)].exp().sum()
        above = similar[:k].exp()
        total = total - run.weight[batch.anchor] * torch.log(above / (above + below)).mean()
    (total * share).backward()
    assert len(losses) == 5
    for name, value in net.named_parameters():
        torch.testing.assert_close(ours[name], value.grad, rtol=1e-3, atol=1e-6)
    # The statistics of the plain network are those of the same batches, one after the other.
    torch.testing.assert_close(
        statistics, (net.norm.running_mean, net.norm.running_var), rtol=1e-5, atol=1e-7
    )


def test_gradients_stand_beside_those_that_are_there():
    run, pairs = world()
    rng = np.random.default_rng(6)
    batches = list(pairs.batches(pairs.anchors(rng)[:2], rng))
    once = {}
    for times in (1, 2):
        contrast.accumulate(run, batches, 0.1, 1.0)
        for name, value in run.net.named_parameters():
            if times == 1:
                once[name] = value.grad.clone()
            torch.testing.assert_close(value.grad, times * once[name], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_the_variance_of_a_batch_is_no_difference_of_large_numbers(offset):
    run, _ = world()
    rng = np.random.default_rng(7)
    hidden = torch.tensor(rng.normal(offset, 1, size=(30, 8)), dtype=torch.float32)
    counts = torch.tensor(rng.integers(0, 3, size=(4, 30)), dtype=torch.float32)
    group = contrast.AnchorGroup(run.net, hidden, torch.eye(9), counts)
    repeated = [np.repeat(hidden.numpy().astype(float), row.int(), axis=0) for row in counts]
    np.testing.assert_allclose(group.variances, [rows.var(axis=0) for rows in repeated], rtol=1e-4)


@pytest.mark.parametrize(("rows", "width", "seed"), [(2, 1, 0), (7, 4, 1), (30, 6, 2)])
def test_gradients_of_scaled_cosines_are_those_of_the_plain_formula(rows, width, seed):
    rng = np.random.default_rng(seed)
    before = torch.tensor(rng.normal(size=(rows, width)), requires_grad=True)
    output = torch.tensor(rng.normal(size=(9, width + 1)), requires_grad=True)
    Z = torch.nn.functional.normalize(torch.relu(before) @ output[:, :-1].T + output[:, -1], dim=1)
    plain = Z[1:] @ Z[0]
    upstream = torch.tensor(rng.normal(size=rows - 1))
    of_rows, of_output = torch.autograd.grad(plain, (before, output), upstream)
    with torch.no_grad():
        cosines = contrast.Cosines(torch.relu(before), output.T @ output)
        torch.testing.assert_close(cosines.values, plain, rtol=1e-9, atol=1e-10)
        found, of_gram = cosines.gradients(upstream)
    torch.testing.assert_close(found, of_rows, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(2 * output @ of_gram, of_output, rtol=1e-9, atol=1e-10)


def test_rows_of_length_zero_have_finite_cosines_and_gradients():
    hidden = torch.tensor([[0.0], [1.0], [2.0]])
    gram = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])  # the second row is mapped to zero
    cosines = contrast.Cosines(hidden, gram)
    torch.testing.assert_close(cosines.values, torch.tensor([0.0, -1.0]))
    for gradient in cosines.gradients(torch.ones(2)):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_anchors_are_wrong_positives_right_and_negatives_near_and_of_another_class(n_classes):
    run, pairs = world(n_classes=n_classes)
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


def test_neighbours_are_those_of_the_anchor_whatever_its_place():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(50, 6))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    anchors = np.array([41, 3, 17])
    found = contrast.nearest(torch.tensor(X), anchors, 5)
    expected = np.argsort(-(X[anchors] @ X.T), axis=1)[:, :5]
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))
    assert contrast.nearest(torch.tensor(X), anchors, 80).shape == (3, 50)


def test_a_share_of_the_anchors_balances_what_they_are_taken_for():
    y = np.zeros(1100, dtype=int)
    predicted = np.repeat([0, 1, 2], [100, 950, 50])
    pairs = contrast.Pairs(y, predicted, torch.zeros((1100, 2)), Contrasts(anchor_share=0.5))
    drawn = pairs.anchors(np.random.default_rng(9))
    assert len(drawn) == 500
    assert 200 < np.sum(predicted[drawn] == 2) < 300


def test_contrastive_epochs_pull_anchors_to_positives_and_away_from_negatives():
    run, pairs = world(n=300, hidden=32, lr=0.05)
    X = run.X.numpy()
    rng = np.random.default_rng(10)
    batches = list(pairs.batches(pairs.anchors(rng), rng))

    def cosines():
        near, far = [], []
        for batch in batches:
            Z = adapted(run.net, X[np.concatenate([[batch.anchor], batch.positives, batch.neighbours])])
            k = 1 + len(batch.positives)
            near.append((Z[1:k] @ Z[0]).mean())
            far.append((Z[k:][batch.is_negative] @ Z[0]).mean())
        return np.mean(near), np.mean(far)

    near, far = cosines()
    losses = [contrast.contrastive_epoch(run, pairs, rng).loss for _ in range(40)]
    near_after, far_after = cosines()
    assert near_after > near + 0.4
    assert far_after < far - 0.4
    assert losses[-1] < 0.1 * losses[0]


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


def test_it_does_better_for_the_worst_group_than_the_plain_adapter_where_zero_shot_reads_the_group():
    X, y, s, text = spurious(12, n=1200, correlation=0.95, lean=2.0, noise=0.5)

    def worst(model):
        return worst_group(model.fit(X, y, text=text).predict(X) == y, y, s)

    small = {**SMALL, "hidden": 16, "cell_rows": 300}
    plain = worst(Adapter(hidden=16, epochs=10, random_state=0))
    assert worst(ContrastiveAdapter(epochs=10, random_state=0, **small)) > plain + 0.2


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    (X, y, text), validation = split(5, n_classes=3)
    first, again, other = (
        ContrastiveAdapter(epochs=4, random_state=seed, **SMALL).fit(X, y, text=text, validation=validation)
        for seed in (5, 5, 6)
    )
    for name in ContrastiveAdapter.fitted:
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert np.abs(first.output_weight_ - other.output_weight_).max() > 1e-3


@pytest.mark.parametrize("groups", ["zero-shot", "kmeans"])
def test_several_classes_with_either_kind_of_pseudo_group(groups):
    X, y, _, text = spurious(2, n_classes=4)
    model = ContrastiveAdapter(epochs=4, groups=groups, random_state=0, **SMALL).fit(X, y, text=text)
    found = model.diagnostics_
    predicted = pseudo_groups(training(X, y, text=text), groups, 0)
    assert found["agreement"] == np.mean(predicted == y)
    assert sum(found["anchors"]) == np.sum(predicted != y)
    assert sum(found["positives"]) == np.sum(predicted == y)
    assert model.scores(X).shape == (len(X), 4)
    assert np.mean(model.predict(X) == y) > 0.5


def test_without_anchors_a_warning_says_so_and_even_epochs_still_train():
    X = np.repeat(np.eye(2, 6), 10, axis=0) + 0.01 * np.random.default_rng(3).normal(size=(20, 6))
    y = np.repeat([0, 1], 10)
    with pytest.warns(VanishedLabelWarning, match="no row is an anchor and odd epochs do nothing"):
        model = ContrastiveAdapter(epochs=4, random_state=0, **SMALL).fit(X, y, text=np.eye(2, 6))
    losses = [record["loss"] for record in model.diagnostics_["history"]]
    assert losses[0] is losses[2] is None
    assert losses[3] < losses[1]


@pytest.mark.parametrize("n", [4, 9])
def test_a_handful_of_rows(n):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, 5)), np.arange(n) % 2
    text = rng.normal(size=(2, 5))
    wrong = (X @ text.T / np.linalg.norm(text, axis=1)).argmax(axis=1)
    y[0], y[1] = wrong[0], 1 - wrong[1]
    model = ContrastiveAdapter(epochs=3, batch_size=1, random_state=0, groups="kmeans", **SMALL)
    assert np.isfinite(model.fit(X, y, text=text).scores(X)).all()


def test_published_recipes_are_complete_and_the_defaults_are_those_for_waterbirds():
    birds, faces = (ContrastiveAdapter(**PUBLISHED[name]).get_params() for name in ("waterbirds", "celeba"))
    assert birds == {**ContrastiveAdapter().get_params(), "anchor_reduction": "sum"}
    expected = {"epochs": 100, "lr": 1e-3, "batch_size": 128, "anchor_share": 1.0, "resample": "cells"}
    assert {name: birds[name] for name in expected} == expected
    assert birds["cell_rows"] == 500
    others = {name: faces[name] for name in faces if faces[name] != birds[name]}
    assert others == {"epochs": 50, "anchor_share": 0.1, "resample": "upsample"}


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


def test_wrong_parameters_say_what_is_accepted():
    X, y, _, text = spurious(8, n=20)
    for option, message in (
        ({"groups": "umap"}, "groups must be one of 'zero-shot', 'kmeans'; got 'umap'"),
        ({"resample": "all"}, "resample must be one of 'cells', 'upsample'; got 'all'"),
        ({"cell_rows": 0}, "cell_rows must be a whole number from 1 .*got 0"),
        ({"negatives": -3}, "negatives must be a whole number from 1 .*got -3"),
        ({"anchor_share": 1.5}, r"anchor_share, if not 1, must be a number in \(0, 1\); got 1.5"),
        ({"contrastive_temperature": 0}, "contrastive_temperature must be"),
        ({"anchor_reduction": "max"}, "anchor_reduction must be one of 'mean', 'sum'; got 'max'"),
    ):
        with pytest.raises(ParameterError, match=message):
            ContrastiveAdapter(epochs=1, **option).fit(X, y, text=text)


@pytest.mark.real
def test_on_real_faces_the_worst_group_gains_over_the_plain_adapter(real_data):
    from fairerclip.data import load_task
    from fairerclip.experiment import Experiment

    task = load_task(real_data / "celeba_blond.npz")
    experiment = Experiment.of(task)
    y, validation = experiment.target(task.train), (task.val.X, *experiment.labels(task.val))
    common = {"text": experiment.text, "classes": experiment.classes, "validation": validation}
    fewer = {"positives": 256, "neighbours": 1024, "negatives": 256}
    reports = [
        experiment.report(task.test, model.fit(task.train.X, y, **common).predict(task.test.X))
        for model in (
            Adapter(epochs=10, random_state=0),
            ContrastiveAdapter(epochs=10, random_state=0, **fewer),
        )
    ]
    # The worst group is blond men, 23 test rows: each is 4 points.
    assert reports[1].worst.accuracy > reports[0].worst.accuracy
