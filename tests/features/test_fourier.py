"""Random Fourier features, plain and orthogonal."""

import tracemalloc

import numpy as np
import pytest
from feature_inputs import unit_rows
from sklearn.kernel_approximation import RBFSampler

from fairerclip.features import FourierFeatures, rbf_kernel


def kernel_error(X, n_features, seed, *, bandwidth="median", orthogonal=False):
    phi = FourierFeatures.fit(
        X, n_features=n_features, bandwidth=bandwidth, orthogonal=orthogonal, random_state=seed
    )
    Phi = phi.transform(X)
    return Phi @ Phi.T - rbf_kernel(X, X, phi.bandwidth)


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
@pytest.mark.parametrize("p", [2, 6])
def test_frequencies_have_the_covariance_of_the_kernel(p, orthogonal):
    omega = FourierFeatures.fit(
        unit_rows(5, p), n_features=10_000, orthogonal=orthogonal, bandwidth=0.5, random_state=0
    ).omega
    assert np.abs(omega @ omega.T / 10_000 - 4.0 * np.eye(p)).max() <= 0.15
    # The fourth moment tells a Gaussian from, say, frequencies of one length.
    assert np.mean(omega**4) / np.mean(omega**2) ** 2 == pytest.approx(3.0, abs=0.2)
    assert abs(omega.mean()) <= 0.05


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
