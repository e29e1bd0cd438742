import numpy as np
import pytest

from fairerclip.features import FourierFeatures
from fairerclip.solver.preconditioner import SampledPreconditioner, draw_rows, sampled_rows
from fairerclip.solver.rows import FeatureRows


def test_sampled_weights_estimate_sums_without_bias():
    rng = np.random.default_rng(0)
    weight = rng.exponential(size=400) * (rng.random(400) < 0.7)
    weight[7] = 500.0
    weight /= weight.sum()
    value = rng.normal(size=400)
    random_state = np.random.RandomState(0)
    sums = []
    for _ in range(800):
        chosen, w = draw_rows(weight, 60, random_state)
        assert np.all(np.diff(chosen) > 0)
        assert abs(len(chosen) - 60) <= 1
        assert np.all(weight[chosen] > 0)
        assert w[chosen == 7] == weight[7]  # too heavy to leave out: taken once, with its own weight
        sums.append(w @ value[chosen])
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - weight @ value) < 4 * error
    assert error > 0


@pytest.mark.parametrize("kept", [True, False])
def test_sampled_features_are_those_of_the_rows(monkeypatch, kept):
    X = np.random.default_rng(0).normal(size=(2000, 4))
    features = FourierFeatures.fit(X, n_features=30, random_state=0)
    rows = FeatureRows(features, X, dtype="float64", block_rows=300, budget=1 << 40 if kept else 0)
    weight, mean = np.full(2000, 1 / 2000), features.transform(X).mean(axis=0)
    assert sum(len(Phi) for _, Phi in rows.blocks()) == 2000
    monkeypatch.setattr(rows, "raw", None if kept else rows.raw)  # kept features are not computed again
    sample, complete = sampled_rows(rows, weight, mean, np.random.RandomState(1))
    chosen, w = draw_rows(weight, 512, np.random.RandomState(1))
    np.testing.assert_allclose(
        sample, np.sqrt(w)[:, None] * (features.transform(X[chosen]) - mean), atol=1e-14
    )
    assert not complete


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(40, 70), (70, 40)])
@pytest.mark.parametrize("gamma", [1e-2, 1e-300, 1e60])
def test_both_forms_invert_the_sample_with_its_raised_ridge(shape, dtype, gamma):
    sample = np.random.default_rng(0).normal(size=shape).astype(dtype) / 8
    exact = sample.astype(np.float64)
    R = np.random.default_rng(1).normal(size=(shape[1], 3)) * [1.0, 1e-60, 0.0]
    found = SampledPreconditioner(sample, 1.0).at(gamma).solve(R)
    ridge = gamma + np.sum(exact**2) / sum(shape)
    expected = np.linalg.solve(exact.T @ exact + ridge * np.eye(shape[1]), R)
    scale = np.abs(expected).max(axis=0) + 1e-300
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-4 if dtype == np.float32 else 1e-12)


def test_a_complete_sample_is_inverted_as_it_is():
    sample = np.random.default_rng(0).normal(size=(20, 50))
    R = np.random.default_rng(1).normal(size=(50, 2))
    found = SampledPreconditioner(sample, 1e-6, complete=True).solve(R)
    C = sample.T @ sample + 1e-6 * np.eye(50)
    np.testing.assert_allclose(C @ found, R, atol=1e-6)


def test_the_condition_is_bounded_by_the_largest_eigenvalue_over_the_ridge():
    sample = np.random.default_rng(0).normal(size=(30, 50)) + 2
    top = np.linalg.norm(sample, 2) ** 2
    made = SampledPreconditioner(sample, 0.1)
    assert made.condition == pytest.approx(top / 0.1, rel=0.06)
    assert SampledPreconditioner(np.zeros((3, 5)), 0.1).condition == 1.0
