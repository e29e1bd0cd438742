"""The linear kernel."""

import numpy as np
import pytest

from fairerclip.errors import NonFiniteError
from fairerclip.features import LinearFeatures


def rows(n=30, p=4, seed=0):
    return np.random.RandomState(seed).normal(size=(n, p)) + 0.5


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_mean_squared_norm_is_one_at_any_scale_of_the_rows(scale):
    X = scale * rows()
    Phi = LinearFeatures.fit(X).transform(X)
    assert np.mean(np.sum(Phi**2, axis=1)) == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(Phi, LinearFeatures.fit(rows()).transform(rows()), rtol=1e-12)


def test_repeating_rows_equals_weighting_them():
    X = rows()
    times = np.random.RandomState(0).randint(0, 4, size=30)
    weighted = LinearFeatures.fit(X, sample_weight=times).scale
    assert weighted == pytest.approx(LinearFeatures.fit(np.repeat(X, times, axis=0)).scale, rel=1e-12)
    assert weighted == pytest.approx(LinearFeatures.fit(X, sample_weight=7.3 * times).scale, rel=1e-12)
    assert weighted != pytest.approx(LinearFeatures.fit(X).scale, rel=1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_scale_is_summed_in_float64(dtype):
    X = (100 * rows(5000, 8)).astype(dtype)  # a float16 sum of squares would overflow
    assert LinearFeatures.fit(X).scale == pytest.approx(
        LinearFeatures.fit(X.astype(np.float64)).scale, rel=1e-14
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_count_only_where_they_have_weight(bad):
    X = rows()
    X[0, 0] = bad
    w = np.ones(30)
    with pytest.raises(NonFiniteError):
        LinearFeatures.fit(X, sample_weight=w)
    w[0] = 0
    assert LinearFeatures.fit(X, sample_weight=w).scale == pytest.approx(LinearFeatures.fit(X[1:]).scale)
