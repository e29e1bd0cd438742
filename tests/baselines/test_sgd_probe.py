"""The linear probe by stochastic gradient descent."""

from dataclasses import replace

import numpy as np
import pytest
from gradient_inputs import split, spurious, training
from sklearn.linear_model import LogisticRegression

from fairerclip.baselines.gradient.recipes import shuffled
from fairerclip.baselines.gradient.sgd_probe import row_scale, train_probe
from fairerclip.baselines.training_data import Validation
from fairerclip.errors import ParameterError

torch = pytest.importorskip("torch", reason="training by gradient needs the torch extra")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_run_long_it_is_the_regularised_logistic_optimum(n_classes):
    X, y, _, _ = spurious(1, n=90, p=6, n_classes=n_classes, noise=1.5)
    X = 2 * X
    decay = 0.05
    coef, intercept, _ = train_probe(
        replace(training(X, y), X=X),
        epochs=400,
        lr=0.05,
        weight_decay=decay,
        batch_size=len(X),
        scale=1,
        random_state=3,
    )
    # The decay acts on the intercept, too: a constant column. Two classes halve the norm between them.
    with_one = np.column_stack([X, np.ones(len(X))])
    C = (2 if n_classes == 2 else 1) / (len(X) * decay)
    reference = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=5000).fit(with_one, y)
    found = np.column_stack([coef, intercept])
    found = found[1:] - found[:1] if n_classes == 2 else found - found.mean(axis=0)
    np.testing.assert_allclose(found, reference.coef_, atol=2e-4)


def test_small_batches_come_near_the_same_optimum():
    X, y, _, _ = spurious(1, n=90, p=6, noise=1.5)
    options = {"weight_decay": 0.1, "scale": 2, "random_state": 3}
    whole, _, _ = train_probe(training(X, y), epochs=400, lr=0.05, batch_size=90, **options)
    small, _, _ = train_probe(training(X, y), epochs=300, lr=0.002, batch_size=16, **options)
    assert np.abs(whole - small).max() < 0.05 * np.abs(whole).max()


def test_weights_act_as_repeated_rows_in_whole_batches():
    X, y, _, _ = spurious(2, n=60)
    weight = np.where(y == 1, 3.0, 1.0)
    rows = np.repeat(np.arange(60), weight.astype(int))
    options = {"epochs": 40, "batch_size": 500, "lr": 0.05, "scale": 1, "random_state": 0}
    weighted = train_probe(training(X, y, sample_weight=weight), **options)
    repeated = train_probe(training(X[rows], y[rows]), **options)
    np.testing.assert_allclose(weighted[0], repeated[0], atol=1e-5)


def test_coefficients_fit_the_rows_whatever_their_scale():
    (X, y, _), validation = split(3)
    data = training(X, y, validation=validation)
    one, bias, found = train_probe(data, epochs=5, scale="auto", random_state=1)
    assert found["scale"] == 10
    held = data.validation
    longer = replace(data, X=10 * data.X, validation=Validation(10 * held.X, held.y, held.s))
    ten, bias_ten, found_ten = train_probe(longer, epochs=5, random_state=1)
    assert found_ten["scale"] == 1
    np.testing.assert_allclose(X @ one.T + bias, (10 * X) @ ten.T + bias_ten, atol=1e-5)
    assert [r["worst_group"] for r in found["history"]] == [r["worst_group"] for r in found_ten["history"]]


@pytest.mark.parametrize("scale", [0, -1, "ten", True, float("nan")])
def test_bad_scales_are_refused(scale):
    with pytest.raises(ParameterError, match="scale, if not 'auto', must be a positive number"):
        row_scale(np.eye(2), scale)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others():
    X, y, _, _ = spurious(4)
    first, again, other = (train_probe(training(X, y), epochs=3, random_state=s)[0] for s in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_every_epoch_sees_every_row_once_in_another_order():
    first, second = shuffled(50, 3, 1), shuffled(50, 3, 2)
    assert sorted(first) == sorted(second) == list(range(50))
    assert (first != second).any()


def test_a_class_without_rows_and_one_row_batches_are_no_trouble():
    X, y, _, text = spurious(4, n=9, n_classes=3)
    keep = y < 2
    with pytest.warns(UserWarning, match="have no rows"):
        data = training(X[keep], y[keep], text=text)
    coef, intercept, _ = train_probe(data, epochs=2, batch_size=1, random_state=0)
    assert coef.shape == (3, X.shape[1])
    assert np.isfinite(coef).all()
    assert intercept.shape == (3,)


@pytest.mark.real
def test_on_real_faces_the_probe_beats_zero_shot_on_average(real_data):
    from fairerclip.data import load_task
    from fairerclip.experiment import Experiment

    task = load_task(real_data / "celeba_blond.npz")
    experiment = Experiment.of(task)
    data = training(task.train.X, experiment.target(task.train), classes=experiment.classes)
    coef, intercept, _ = train_probe(data, epochs=10, random_state=0)
    predicted = np.array(experiment.classes)[(task.test.X @ coef.T + intercept).argmax(axis=1)]
    before = experiment.report(task.test, experiment.zero_shot(task.test))
    assert experiment.report(task.test, predicted).average > before.average + 0.03
