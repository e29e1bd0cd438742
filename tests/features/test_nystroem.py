"""Nyström features, and the kernel they are made of."""

import numpy as np
import pytest
from feature_inputs import unit_rows
from sklearn.kernel_approximation import Nystroem

from fairerclip.errors import NonFiniteError, ParameterError, ShapeError
from fairerclip.features import NystroemFeatures, rbf_kernel


def gram(phi, X):
    Phi = phi.transform(X)
    return Phi @ Phi.T


def test_kernel_is_its_definition():
    X, Y = unit_rows(7, 5), unit_rows(4, 5, seed=1)
    expected = [[np.exp(-np.sum((x - y) ** 2) / (2 * 0.7**2)) for y in Y] for x in X]
    assert np.abs(rbf_kernel(X, Y, 0.7) - expected).max() <= 1e-14


def test_kernel_of_near_identical_float32_rows_is_not_cancellation_error():
    base = (100 + unit_rows(1, 512)).astype(np.float32)
    X = np.repeat(base, 3, axis=0)
    X[1, 0] = np.nextafter(X[1, 0], np.float32(np.inf))
    X[2, :4] += np.float32(1e-3)
    d2 = ((X[:, None].astype(np.float64) - X[None]) ** 2).sum(axis=2)
    sigma = 1e-3
    assert np.abs(rbf_kernel(X, X, sigma) - np.exp(-d2 / (2 * sigma**2))).max() <= 1e-8


def test_kernel_approximation_is_that_of_scikit_learn_with_the_same_landmarks():
    X = unit_rows(120, 6)
    ours = NystroemFeatures.fit(X, n_features=25, bandwidth=0.5, random_state=0)
    peer = Nystroem(gamma=1 / (2 * 0.5**2), n_components=25, random_state=0).fit(ours.landmarks)
    Phi = peer.transform(X)
    approximate = gram(ours, X)
    assert np.abs(approximate - Phi @ Phi.T).max() <= 1e-9
    assert np.abs(approximate - rbf_kernel(X, X, 0.5)).max() > 1e-3  # or the comparison would say little


@pytest.mark.parametrize("bandwidth", ["median", "3*median", 0.1])
def test_every_row_as_landmark_gives_the_exact_kernel(bandwidth):
    X = unit_rows(80, 6)
    phi = NystroemFeatures.fit(X, n_features=80, bandwidth=bandwidth, random_state=0)
    assert np.abs(gram(phi, X) - rbf_kernel(X, X, phi.bandwidth)).max() <= 1e-8


def test_landmarks_are_distinct_rows_of_positive_weight():
    distinct = unit_rows(12, 3)
    X = np.repeat(distinct, [50] + [1] * 11, axis=0)
    w = np.ones(len(X))
    w[-1] = 0
    landmarks = NystroemFeatures.fit(X, n_features=11, sample_weight=w, random_state=0).landmarks
    assert len(np.unique(landmarks, axis=0)) == 11
    assert not (landmarks == distinct[-1]).all(axis=1).any()


def test_fewer_distinct_rows_than_asked_for_are_all_landmarks():
    X = np.repeat(unit_rows(4, 3), 25, axis=0)
    phi = NystroemFeatures.fit(X, n_features=50, random_state=0)
    assert phi.landmarks.shape == (4, 3)
    assert phi.n_features == 4
    assert np.abs(gram(phi, X) - rbf_kernel(X, X, phi.bandwidth)).max() <= 1e-12


def test_eigenvalues_of_rounding_noise_are_dropped():
    X = np.linspace(0, 1, 60)[:, None]
    phi = NystroemFeatures.fit(X, n_features=60, bandwidth=1.0, random_state=0)
    eigenvalues = np.linalg.eigvalsh(rbf_kernel(X, X, 1.0))
    assert phi.n_features == np.sum(eigenvalues > 1e-12 * eigenvalues[-1]) < 20
    assert np.abs(gram(phi, X) - rbf_kernel(X, X, 1.0)).max() <= 1e-10


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_float32_agrees_with_float64_where_the_kernel_matrix_is_all_but_singular(dtype):
    X = unit_rows(400, 4).astype(dtype)
    phi = NystroemFeatures.fit(X, n_features=200, bandwidth="3*median", random_state=0)
    single, double = phi.transform(X), phi.transform(X.astype(np.float64))
    assert single.dtype == np.float32
    assert double.dtype == np.float64
    assert np.abs(single - double).max() <= 1e-7


def test_blocks_of_rows_do_not_show(monkeypatch):
    X = unit_rows(50, 4)
    phi = NystroemFeatures.fit(X, n_features=10, random_state=0)
    whole = phi.transform(X)
    monkeypatch.setattr("fairerclip.features.landmarks._BLOCK", 70)
    assert np.abs(phi.transform(X) - whole).max() <= 1e-12


def test_kernel_values_of_many_rows_are_not_held_at_once(tracemalloc_peak):
    X = np.linspace(0, 1, 10_000)[:, None]
    phi = NystroemFeatures.fit(X[::25], n_features=400, bandwidth=1.0, random_state=0)
    Phi, peak = tracemalloc_peak(lambda: phi.transform(X))  # of 4 million kernel values, 32 MB
    assert peak <= Phi.nbytes + (20 << 20)


def test_a_saved_map_of_fewer_features_than_landmarks_is_taken_back():
    X = np.linspace(0, 1, 60)[:, None]
    phi = NystroemFeatures.fit(X, n_features=60, bandwidth=1.0, random_state=0)
    assert phi.n_features < 60
    np.testing.assert_array_equal(
        NystroemFeatures.from_arrays(phi.to_arrays()).transform(X), phi.transform(X)
    )


def test_landmarks_that_are_not_finite_are_refused():
    with pytest.raises(NonFiniteError):
        NystroemFeatures.fit([[1.0], [np.nan]], n_features=2, bandwidth=1.0, random_state=0)


@pytest.mark.parametrize(
    ("width", "bandwidth", "error"),
    [(2, 0.0, ParameterError), (2, "median", ParameterError), (3, 1.0, ShapeError)],
)
def test_kernel_refuses_what_is_no_bandwidth_and_rows_of_two_widths(width, bandwidth, error):
    with pytest.raises(error):
        rbf_kernel(np.ones((2, 2)), np.ones((2, width)), bandwidth)


def test_landmarks_far_apart_are_orthonormal_features():
    # Rows a billion bandwidths long: the distance of a row to itself is all rounding, and must not enter.
    X = 1e6 * unit_rows(12, 3)
    phi = NystroemFeatures.fit(X, n_features=12, bandwidth=1e-3, random_state=0)
    np.testing.assert_allclose(phi.projection.T @ phi.projection, np.eye(12), atol=1e-12)
