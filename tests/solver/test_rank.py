"""Where a direction or an eigenvalue stops to count: RANK_TOLERANCE is 1e-10 of the largest."""

import numpy as np
import pytest

from fairerclip.solver.iterative import ConjugateGradientFactor
from fairerclip.solver.lowrank import CholeskyFactor, solve_reduced
from fairerclip.solver.rows import FeatureRows


class Identity:
    n_features = 3

    def transform(self, X):
        return X


@pytest.mark.parametrize("size", [1e-6, 1e6])
@pytest.mark.parametrize(("share", "kept"), [(1e-3, 3), (1.5e-10, 3), (0.7e-10, 2), (0.0, 2)])
def test_directions_of_the_labels_count_from_the_tolerance_on(share, kept, size):
    singular = size * np.array([1.0, 0.25, share])
    reduced = CholeskyFactor(np.zeros((3, 3)), gamma=1.0).reduce(np.diag(singular))
    assert reduced.basis.shape == (3, kept)
    np.testing.assert_allclose(np.linalg.norm(reduced.coordinates, axis=1), singular[:kept])


@pytest.mark.parametrize(("share", "positive"), [(1e-3, 2), (1.5e-10, 2), (0.7e-10, 1), (0.0, 1), (-1e-3, 1)])
@pytest.mark.parametrize("most_negative", [-1.0, -8.0])
def test_eigenvalues_count_from_the_tolerance_on(share, positive, most_negative):
    largest = max(4.0, -most_negative)
    solution = solve_reduced(np.diag([largest * share, most_negative, 4.0]), r=3)
    assert solution.n_positive == positive
    np.testing.assert_allclose(solution.eigenvalues, [4.0, largest * share][:positive])


@pytest.mark.parametrize(
    ("tolerance", "share", "kept"),
    [(1e-12, 1.5e-10, 3), (1e-12, 0.7e-10, 2), (1e-8, 1.5e-7, 3), (1e-8, 0.7e-7, 2)],
)
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_directions_below_the_tolerance_of_the_iteration_are_noise(tolerance, share, kept, size):
    # Rows ±e_i: C is a multiple of the identity, so that singular values are known.
    rows = FeatureRows(Identity(), np.vstack([np.eye(3), -np.eye(3)]), dtype="float64")
    random_state = np.random.RandomState(0)
    factor = ConjugateGradientFactor(rows, np.ones(6), np.zeros(3), 0.5, random_state, tolerance=tolerance)
    assert factor.reduce(size * np.diag([1.0, 0.25, share])).basis.shape == (3, kept)


def test_labels_that_no_feature_follows_have_no_direction():
    rows = FeatureRows(Identity(), np.vstack([np.eye(3), -np.eye(3)]), dtype="float64")
    iterative = ConjugateGradientFactor(rows, np.ones(6), np.zeros(3), 0.5, np.random.RandomState(0))
    for factor in (CholeskyFactor(np.eye(3), gamma=1.0), iterative):
        reduced = factor.reduce(np.zeros((3, 2)))
        assert (reduced.basis.shape, reduced.coordinates.shape) == ((3, 0), (0, 2))
