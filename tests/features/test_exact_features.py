"""The exact kernel factor."""

import numpy as np
import pytest
from feature_inputs import unit_rows

from fairerclip.errors import ParameterError
from fairerclip.features import ExactFeatures, rbf_kernel


@pytest.mark.parametrize("bandwidth", ["median", "3*median", "0.3*median", 0.05, 50.0])
@pytest.mark.parametrize("p", [1, 3, 40])
def test_gram_matrix_is_the_kernel_matrix(p, bandwidth):
    X = np.random.RandomState(0).normal(size=(150, p))
    phi = ExactFeatures.fit(X, bandwidth=bandwidth)
    Phi = phi.transform(X)
    assert Phi.shape == (150, phi.n_features)
    assert np.abs(Phi @ Phi.T - rbf_kernel(X, X, phi.bandwidth)).max() <= 1e-10


def test_kernel_with_new_rows_is_exact_too():
    X, new = unit_rows(60, 5), unit_rows(20, 5, seed=1)
    phi = ExactFeatures.fit(X)
    cross = phi.transform(new) @ phi.transform(X).T
    assert np.abs(cross - rbf_kernel(new, X, phi.bandwidth)).max() <= 1e-9


def test_repeated_rows_are_one_landmark():
    X = unit_rows(9, 4)
    repeated = np.repeat(X, np.arange(1, 10), axis=0)
    phi = ExactFeatures.fit(repeated, bandwidth=0.7)
    np.testing.assert_array_equal(phi.landmarks, X)
    np.testing.assert_array_equal(phi.transform(X), ExactFeatures.fit(X, bandwidth=0.7).transform(X))


def test_rows_of_weight_zero_are_no_landmarks():
    X = unit_rows(9, 4)
    w = np.arange(9.0)
    phi = ExactFeatures.fit(X, sample_weight=w)
    np.testing.assert_array_equal(phi.landmarks, X[1:])
    assert phi.bandwidth == pytest.approx(
        ExactFeatures.fit(np.repeat(X, np.arange(9), axis=0)).bandwidth, rel=1e-12
    )


def test_constant_rows_have_one_feature():
    phi = ExactFeatures.fit(np.full((5, 3), 2.0))
    np.testing.assert_allclose(phi.transform(np.full((2, 3), 2.0)), np.ones((2, 1)))


def test_the_limit_itself_is_taken(monkeypatch):
    monkeypatch.setattr("fairerclip.features.exact.MAX_DISTINCT_ROWS", 20)
    assert ExactFeatures.fit(unit_rows(20, 3)).landmarks.shape == (20, 3)
    with pytest.raises(ParameterError):
        ExactFeatures.fit(unit_rows(21, 3))
