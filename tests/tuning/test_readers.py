"""Sensitive values read with doubt from a few labelled rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.inputs.sensitive_columns import SoftValues
from fairerclip.tuning import readers
from fairerclip.tuning.readers import read_sensitive


def rows(seed, n, names, strength=1.0, width=8):
    """Rows whose mean moves with the value, of any length."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(len(names), size=n)
    centres = strength * np.random.default_rng(80).normal(size=(len(names), width))
    X = (centres[codes] + rng.normal(size=(n, width))) * rng.uniform(0.5, 2.0, size=(n, 1))
    return X, np.array(names)[codes]


def log_loss(soft, values):
    place = {value: k for k, value in enumerate(soft.values.tolist())}
    return -np.mean([np.log(p[place[v]]) for p, v in zip(soft.probabilities, values.tolist(), strict=True)])


@pytest.mark.parametrize("names", [["female", "male"], [0, 1, 2], ["a", "b", "c", "d"]], ids=str)
def test_probabilities_beat_the_uniform_on_rows_not_seen(names):
    X, values = rows(81, 150, names)
    fresh, truth = rows(82, 600, names)
    soft = read_sensitive(fresh, X, values, seed=0)
    assert isinstance(soft, SoftValues)
    assert soft.probabilities.shape == (600, len(names))
    assert_array_equal(soft.values, names)
    assert_allclose(soft.probabilities.sum(axis=1), 1, atol=1e-9)
    assert soft.probabilities.min() >= 0
    assert log_loss(soft, truth) < 0.8 * np.log(len(names))


def test_rows_that_say_nothing_are_read_with_doubt():
    X, values = rows(83, 150, ["f", "m"], strength=0.0)
    fresh, truth = rows(84, 2000, ["f", "m"], strength=0.0)
    soft = read_sensitive(fresh, X, values, seed=0)
    assert log_loss(soft, truth) < np.log(2) + 0.05
    assert np.abs(soft.probabilities - 0.5).mean() < 0.15


def test_probabilities_mean_what_they_say():
    """Calibration: of rows read as p, a share of about p has the value."""
    X, values = rows(85, 1000, ["f", "m"], strength=0.4)
    fresh, truth = rows(86, 6000, ["f", "m"], strength=0.4)
    p = read_sensitive(fresh, X, values, seed=0).probabilities[:, 1]
    for low, high in ((0.0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 1.0)):
        inside = (p >= low) & (p < high)
        assert inside.sum() > 100
        assert np.mean(truth[inside] == "m") == pytest.approx(p[inside].mean(), abs=0.08)


@pytest.mark.parametrize("few", [1, 2])
def test_a_value_of_very_few_rows_is_read_all_the_same(few):
    X, values = rows(87, 60, ["f", "m"])
    values = values.astype("<U5")
    values[:few] = "other"
    soft = read_sensitive(X, X, values, seed=0)
    assert soft.values.tolist() == ["f", "m", "other"]
    assert_allclose(soft.probabilities.sum(axis=1), 1, atol=1e-9)
    assert soft.probabilities[:, 2].mean() < 0.2


def test_length_does_not_matter_and_zero_rows_are_taken():
    X, values = rows(88, 80, ["f", "m"])
    soft = read_sensitive(X, X, values, seed=3)
    assert_allclose(
        read_sensitive(10 * X, 0.1 * X, values, seed=3).probabilities, soft.probabilities, atol=1e-9
    )
    zero = read_sensitive(np.zeros((2, 8)), X, values, seed=3).probabilities
    assert np.isfinite(zero).all()


def test_equal_seeds_give_equal_probabilities_and_precision_matters_little():
    X, values = rows(89, 80, ["f", "m"])
    first, again = (read_sensitive(X, X, values, seed=5).probabilities for _ in range(2))
    assert_array_equal(first, again)
    single = read_sensitive(X.astype(np.float32), X.astype(np.float32), values, seed=5).probabilities
    assert_allclose(single, first, atol=1e-3)


@pytest.mark.parametrize(("few", "penalty"), [(2, 1.0), (3, None)])
def test_with_fewer_than_three_rows_of_a_value_the_penalty_is_not_chosen(few, penalty, monkeypatch):
    rng = np.random.default_rng(0)
    values = np.repeat(["a", "b"], [20, few])
    X = rng.normal(size=(20 + few, 4)) + 2 * (values == "b")[:, None]
    tried = []
    monkeypatch.setattr(readers, "PENALTIES", (0.01, 100.0))
    plain = readers._probe
    monkeypatch.setattr(readers, "_probe", lambda C: tried.append(C) or plain(C))
    read_sensitive(X, X, values, 0)
    assert set(tried[:-1]) == (set() if penalty else {0.01, 100.0})
    assert tried[-1] in ([penalty] if penalty else [0.01, 100.0])
