"""Random Fourier features, plain and orthogonal."""

import tracemalloc

import numpy as np
import pytest
from feature_inputs import unit_rows
from scipy import stats
from sklearn.kernel_approximation import RBFSampler

from fairerclip.features import FourierFeatures, rbf_kernel


def kernel_error(X, n_features, seed, *, bandwidth="median", orthogonal=False):
    phi = FourierFeatures.fit(
        X, n_features=n_features, bandwidth=bandwidth, orthogonal=orthogonal, random_state=seed
    )
    Phi = phi.transform(X)
    return Phi @ Phi.T - rbf_kernel(X, X, phi.bandwidth)


def test_features_are_those_of_rbf_sampler_with_the_same_weights():
    X = unit_rows(50, 7)
    peer = RBFSampler(gamma=1 / (2 * 0.6**2), n_components=33, random_state=5).fit(X)
    ours = FourierFeatures(peer.random_weights_, peer.random_offset_, 0.6)
    assert np.abs(ours.transform(X) - peer.transform(X)).max() <= 1e-12


def test_one_seed_draws_what_rbf_sampler_draws():
    X = unit_rows(50, 7)
    peer = RBFSampler(gamma=1 / (2 * 0.6**2), n_components=33, random_state=5).fit(X)
    ours = FourierFeatures.fit(X, n_features=33, bandwidth=0.6, random_state=5)
    assert np.abs(ours.transform(X) - peer.transform(X)).max() <= 1e-12


@pytest.mark.parametrize("orthogonal", [False, True])
def test_kernel_is_approximated_within_the_stated_bounds(orthogonal):
    X = unit_rows(40, 32)
    errors = np.array([kernel_error(X, 1000, seed, orthogonal=orthogonal) for seed in range(12)])
    assert abs(errors.mean()) <= 0.01
    assert np.abs(errors).mean(axis=(1, 2)).max() <= 0.05
    assert np.abs(errors).max(axis=(1, 2)).mean() <= 0.1
    assert np.abs(errors).max() <= 0.15


@pytest.mark.parametrize("orthogonal", [False, True])
def test_error_falls_as_one_over_the_root_of_the_number_of_features(orthogonal):
    X = unit_rows(30, 16)
    sizes = np.array([50, 100, 200, 400, 800, 1600])
    squares = [
        [np.mean(kernel_error(X, int(D), seed, orthogonal=orthogonal) ** 2) for seed in range(10)]
        for D in sizes
    ]
    error = np.sqrt(squares).mean(axis=1)
    slope = np.polyfit(np.log(sizes), np.log(error), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.1)


@pytest.mark.parametrize("n_features", [64, 100])
def test_orthogonal_frequencies_have_the_smaller_error(n_features):
    X = unit_rows(30, 32)
    mse = {
        orthogonal: np.mean([kernel_error(X, n_features, s, orthogonal=orthogonal) ** 2 for s in range(30)])
        for orthogonal in (False, True)
    }
    assert mse[True] <= 0.9 * mse[False]


@pytest.mark.parametrize("n_features", [3, 8, 20])
def test_orthogonal_frequencies_are_orthogonal_within_blocks(n_features):
    omega = FourierFeatures.fit(
        unit_rows(5, 8), n_features=n_features, orthogonal=True, bandwidth=0.5, random_state=0
    ).omega
    assert omega.shape == (8, n_features)
    for start in range(0, n_features, 8):
        gram = omega[:, start : start + 8].T @ omega[:, start : start + 8]
        assert np.abs(gram - np.diag(np.diag(gram))).max() <= 1e-12 * np.abs(gram).max()


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("p", [2, 40])
def test_lengths_of_frequencies_are_those_of_gaussian_vectors(p, orthogonal):
    omega = FourierFeatures.fit(
        unit_rows(5, p), n_features=4000, orthogonal=orthogonal, bandwidth=0.5, random_state=0
    ).omega
    lengths = np.linalg.norm(0.5 * omega, axis=0)
    assert stats.kstest(lengths, stats.chi(p).cdf).pvalue >= 0.01


@pytest.mark.parametrize("orthogonal", [False, True])
@pytest.mark.parametrize("p", [1, 6])
def test_frequencies_have_the_covariance_of_the_kernel(p, orthogonal):
    omega = FourierFeatures.fit(
        unit_rows(5, p), n_features=30_000, orthogonal=orthogonal, bandwidth=0.5, random_state=0
    ).omega
    assert np.abs(omega @ omega.T / 30_000 - 4.0 * np.eye(p)).max() <= 0.15
    # The fourth moment tells a Gaussian from, say, frequencies of one length.
    assert np.mean(omega**4) / np.mean(omega**2) ** 2 == pytest.approx(3.0, abs=0.15)
    assert abs(omega.mean()) <= 0.05


@pytest.mark.parametrize("orthogonal", [False, True])
def test_float32_agrees_with_float64(orthogonal):
    X = unit_rows(200, 64).astype(np.float32)
    phi = FourierFeatures.fit(X, n_features=300, orthogonal=orthogonal, random_state=0)
    single, double = phi.transform(X), phi.transform(X.astype(np.float64))
    assert single.dtype == np.float32
    assert double.dtype == np.float64
    assert np.abs(single - double).max() <= 1e-6


def test_float16_is_computed_in_float32():
    X = unit_rows(20, 64).astype(np.float16)
    phi = FourierFeatures.fit(X, n_features=50, random_state=0)
    Phi = phi.transform(X)
    assert Phi.dtype == np.float32
    np.testing.assert_array_equal(Phi, phi.transform(X.astype(np.float32)))


def test_transform_leaves_the_rows_alone():
    X = unit_rows(6, 4)
    before = X.copy()
    FourierFeatures.fit(X, n_features=4, random_state=0).transform(X)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transform_needs_no_memory_beyond_its_output(dtype):
    X = unit_rows(2000, 8).astype(dtype)
    phi = FourierFeatures.fit(X, n_features=1000, bandwidth=1.0, random_state=0)
    phi.transform(X[:1])  # the float32 copies are made here
    tracemalloc.start()
    Phi = phi.transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 1.1 * Phi.nbytes


def test_float32_copies_are_made_once():
    phi = FourierFeatures.fit(unit_rows(5, 3), n_features=4, random_state=0)
    X = unit_rows(2, 3).astype(np.float32)
    assert phi._placed.beside(X)[0] is phi._placed.beside(X[:1])[0]


def test_draw_is_the_same_at_every_bandwidth():
    X = unit_rows(1200, 3)
    median = FourierFeatures.fit(X, n_features=9, bandwidth="median", random_state=1)
    fixed = FourierFeatures.fit(X, n_features=9, bandwidth=2.0, random_state=1)
    np.testing.assert_allclose(median.omega * median.bandwidth, fixed.omega * 2.0, rtol=1e-14)
    np.testing.assert_array_equal(median.offset, fixed.offset)


def test_constant_rows_have_constant_features():
    X = np.full((6, 3), 0.3)
    phi = FourierFeatures.fit(X, n_features=500, random_state=0)
    Phi = phi.transform(X)
    assert phi.bandwidth == 1.0
    assert np.ptp(Phi, axis=0).max() <= 1e-15
    assert Phi[0] @ Phi[0] == pytest.approx(1.0, abs=0.15)


def test_one_row_and_one_column_are_enough():
    phi = FourierFeatures.fit([[0.5]], n_features=3, orthogonal=True, random_state=0)
    assert phi.transform([[0.5], [1.0]]).shape == (2, 3)


def test_no_rows_have_no_features():
    phi = FourierFeatures.fit(unit_rows(4, 3), n_features=7, random_state=0)
    assert phi.transform(np.empty((0, 3))).shape == (0, 7)
