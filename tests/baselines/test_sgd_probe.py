"""The linear probe by stochastic gradient descent."""

from dataclasses import replace

import numpy as np
import pytest
from gradient_inputs import split, spurious, training
from sklearn.linear_model import LogisticRegression

from fairerclip.baselines.gradient.sgd_probe import train_probe
from fairerclip.baselines.training_data import Validation

torch = pytest.importorskip("torch", reason="training by gradient needs the torch extra")


@pytest.mark.slow
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
