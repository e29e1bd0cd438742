"""JTT: the second probe is a probe on rows in which the errors of the first are repeated."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairerclip.baselines import JTT, LinearProbe
from fairerclip.baselines.class_folds import class_folds

TIGHT = {"tol": 1e-9}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_the_probe_on_rows_whose_errors_are_repeated(embeddings, n_classes):
    e = embeddings(seed=1, n_classes=n_classes)
    first = LinearProbe(C=1e-3, **TIGHT).fit(e.X, e.y)
    wrong = first.predict(e.X) != e.y
    assert 0 < wrong.sum() < len(e.y) / 2
    model = JTT(4.0, C=0.3, **TIGHT).fit(e.X, e.y)
    rows = np.repeat(np.arange(len(e.y)), np.where(wrong, 4, 1))
    repeated = LinearProbe(C=0.3 * len(e.y) / len(rows), **TIGHT).fit(e.X[rows], e.y[rows])
    assert_allclose(model.coef_, repeated.coef_, atol=1e-6)
    assert_allclose(model.intercept_, repeated.intercept_, atol=1e-6)
    assert model.diagnostics_["errors"] == wrong.sum()


def test_without_errors_it_is_the_probe_and_says_so(embeddings):
    e = embeddings(seed=3, n=40, p=100)
    model = JTT(50.0, first_C=100.0).fit(e.X, e.y)
    assert model.diagnostics_["errors"] == 0
    assert_allclose(model.coef_, LinearProbe().fit(e.X, e.y).coef_, atol=1e-12)


def test_folds_spread_every_class():
    y = np.repeat([0, 1, 2], [11, 4, 1])
    fold = class_folds(y, 3, 0)
    for k in range(3):
        counts = np.bincount(fold[y == k], minlength=3)
        assert counts.max() - counts.min() <= 1
