"""The bandwidth rules."""

import numpy as np
import pytest

from fairerclip.errors import NonFiniteError, ParameterError, ShapeError
from fairerclip.features import median_bandwidth, resolve_bandwidth


def rows(n=41, p=5, seed=0):
    return np.random.RandomState(seed).normal(size=(n, p))


def naive_median(X):
    """The lower median of nonzero squared distances, pair by pair."""
    d2 = [np.sum((X[i] - X[j]) ** 2) for i in range(len(X)) for j in range(i)]
    d2 = np.sort([d for d in d2 if d > 0])
    return d2[(len(d2) - 1) // 2]


@pytest.mark.parametrize("n", [2, 3, 4, 5, 41, 42])
def test_kernel_is_one_over_e_at_the_median_distance(n):
    X = rows(n)
    sigma = median_bandwidth(X)
    assert 2 * sigma**2 == pytest.approx(naive_median(X), rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_repeating_rows_equals_weighting_them(seed):
    rng = np.random.RandomState(seed)
    X = rows(int(rng.randint(2, 12)), 2, seed)
    if seed % 2:
        X = np.round(X)  # tied distances
    times = rng.randint(0, 4, size=len(X))
    times[0] = 1
    repeated = median_bandwidth(np.repeat(X, times, axis=0))
    assert median_bandwidth(X, times) == pytest.approx(repeated, rel=1e-12)
    assert median_bandwidth(X, 0.1 * times) == pytest.approx(repeated, rel=1e-12)


def test_rounding_of_weights_does_not_decide_where_half_is_reached():
    X = 2.0 ** np.arange(6)[:, None]
    times = [3, 1, 2, 3, 1, 2]  # half of the weight lies at or below d² = 49 exactly, and thirds are inexact
    assert 2 * median_bandwidth(np.repeat(X, times, axis=0)) ** 2 == pytest.approx(49.0)
    assert 2 * median_bandwidth(X, times) ** 2 == pytest.approx(49.0)


def test_rows_of_weight_zero_take_no_part():
    X = rows()
    with_outliers = np.vstack([X, 1e6 * rows(30), np.full((1, 5), np.nan)])
    w = np.r_[np.ones(41), np.zeros(31)]
    assert median_bandwidth(with_outliers, w) == median_bandwidth(X)
    assert median_bandwidth(with_outliers, w, max_rows=41, random_state=0) == median_bandwidth(X)


def test_rounding_noise_between_identical_rows_does_not_count():
    prompts = rows(2, 512).astype(np.float32)
    X = np.repeat(prompts, 200, axis=0)
    X *= 1 + np.float32(1e-7) * np.random.RandomState(0).randint(-1, 2, size=X.shape).astype(np.float32)
    assert median_bandwidth(X) == pytest.approx(median_bandwidth(prompts), rel=1e-5)


@pytest.mark.parametrize(("share", "median"), [(0.7e-12, 1.0), (1.5e-12, 1.5e-12 * 4)])
def test_distances_above_the_noise_of_the_largest_count(share, median):
    # The largest d² is 4; the two first rows, which have nearly all the weight, are as far apart as the share says.
    X = [[0.0], [np.sqrt(4 * share)], [1.0], [-1.0]]
    assert 2 * median_bandwidth(X, [100, 100, 1, 1]) ** 2 == pytest.approx(median, rel=1e-3)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_common_offset_does_not_cost_digits(offset):
    X = np.round(rows(), 3)
    assert median_bandwidth(X + offset) == pytest.approx(median_bandwidth(X), rel=1e-8)


@pytest.mark.parametrize("scale", [1e-180, 1e-6, 1e6, 1e180])
def test_bandwidth_scales_with_the_rows(scale):
    assert median_bandwidth(scale * rows()) == pytest.approx(scale * median_bandwidth(rows()), rel=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_identical_rows_and_a_single_one_have_bandwidth_one(value, dtype):
    for n in (1, 2, 7):
        assert median_bandwidth(np.full((n, 3), value, dtype=dtype)) == 1.0
    assert median_bandwidth(rows(3), [0, 2, 0]) == 1.0


def test_sample_of_rows_is_near_the_whole_and_seeded():
    X = rows(1500, 8)
    whole = median_bandwidth(X, max_rows=1500)
    sampled = median_bandwidth(X, max_rows=200, random_state=3)
    assert sampled != whole
    assert sampled == pytest.approx(whole, rel=0.05)
    assert sampled == median_bandwidth(X, max_rows=200, random_state=3)
    assert sampled != median_bandwidth(X, max_rows=200, random_state=4)


@pytest.mark.parametrize(
    ("bandwidth", "factor"),
    [("median", 1.0), ("3*median", 3.0), ("0.5*median", 0.5), (" 3 * median ", 3.0), ("1e-1*median", 0.1)],
)
def test_rules_are_multiples_of_the_median(bandwidth, factor):
    X, w = rows(), np.arange(41.0)
    assert resolve_bandwidth(bandwidth, X, w) == factor * median_bandwidth(X, w)


def test_a_number_is_taken_as_it_is():
    assert resolve_bandwidth(np.float32(0.25), rows()) == 0.25


@pytest.mark.parametrize(
    "bandwidth", [0, -1.0, np.nan, True, None, [1.0], "mean", "*median", "0*median", "nan*median", "median*2"]
)
def test_anything_else_is_refused(bandwidth):
    with pytest.raises(ParameterError):
        resolve_bandwidth(bandwidth, rows())


@pytest.mark.parametrize(
    ("X", "weights", "max_rows", "error"),
    [
        (np.ones((3, 2)), [1, -1, 1], 9, ParameterError),
        (np.ones((3, 2)), [0, 0, 0], 9, ParameterError),
        (np.ones((3, 2)), [1, np.inf, 1], 9, ParameterError),
        (np.ones((3, 2)), [1, 1], 9, ShapeError),
        (np.ones(3), None, 9, ShapeError),
        (np.ones((0, 3)), None, 9, ShapeError),
        ([[1.0], [np.nan]], None, 9, NonFiniteError),
        (np.ones((3, 2)), None, 1, ParameterError),
    ],
)
def test_rows_and_weights_without_a_median_are_refused(X, weights, max_rows, error):
    with pytest.raises(error):
        median_bandwidth(X, weights, max_rows=max_rows)


@pytest.mark.parametrize("limit", [1e-15, 1e15])
def test_bandwidths_within_fifteen_decades_are_taken(limit):
    assert resolve_bandwidth(limit, rows()) == limit
    with pytest.raises(ParameterError):
        resolve_bandwidth(1.1 * limit if limit > 1 else 0.9 * limit, rows())
