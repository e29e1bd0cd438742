"""Skew, NDKL, KL, Bias@k and ABLE of rankings against hand-computed cases and random tie-breaking."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairerclip.errors import LabelError, NonFiniteError, ParameterError, ShapeError
from fairerclip.metrics import Estimate, able, bias_at_k, kl_at_k, max_skew, min_skew, ndkl
from fairerclip.metrics.retrieval.skew import one_hot
from fairerclip.metrics.retrieval.top_rows import TopRows

RANKED = np.arange(10, 0, -1.0)
GROUPS = list("ffffmmffmm")  # 6 f and 4 m, in ranked order


def test_skews_are_those_computed_by_hand():
    assert max_skew(RANKED, GROUPS, 4) == pytest.approx(np.log(1 / 0.6))
    assert min_skew(RANKED, GROUPS, 4) == -np.inf
    assert max_skew(RANKED, GROUPS, 6) == pytest.approx(np.log((4 / 6) / 0.6))
    assert min_skew(RANKED, GROUPS, 6) == pytest.approx(np.log((2 / 6) / 0.4))
    assert max_skew(RANKED, GROUPS, 6, reference="uniform") == pytest.approx(np.log((4 / 6) / 0.5))


def test_a_mapping_is_normalised_and_may_hold_groups_that_are_not_in_the_gallery():
    shares = {"f": 1, "m": 1, "x": 2}
    assert max_skew(RANKED, GROUPS, 6, reference=shares) == pytest.approx(np.log((4 / 6) / 0.25))
    assert min_skew(RANKED, GROUPS, 6, reference=shares) == -np.inf
    only_m = {"f": 0, "m": 1}
    assert max_skew(RANKED, GROUPS, 6, reference=only_m) == pytest.approx(np.log(2 / 6))
    assert ndkl(RANKED, GROUPS, reference=only_m) == np.inf


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), levels=st.integers(1, 40), a=st.integers(1, 4))
def test_max_skew_is_never_negative_nor_min_skew_positive_and_both_vanish_at_n(seed, n, levels, a):
    rng = np.random.default_rng(seed)
    scores, groups = rng.integers(levels, size=n), rng.integers(a, size=n)
    k = int(rng.integers(1, n + 1))
    for reference in ("population", "uniform"):
        assert max_skew(scores, groups, k, reference=reference) >= -1e-12
        assert min_skew(scores, groups, k, reference=reference) <= 1e-12
        assert ndkl(scores, groups, k=k, reference=reference) >= 0
    assert max_skew(scores, groups, n) == pytest.approx(0, abs=1e-12)


def test_expected_composition_is_the_average_over_random_tie_breaking():
    rng = np.random.default_rng(1)
    scores, codes = rng.integers(4, size=30), rng.integers(3, size=30)
    cuts = np.arange(1, 31)
    total, rounds = np.zeros((30, 3)), 1000
    for _ in range(rounds):
        order = rng.permutation(30)
        total += TopRows.of(scores[order].astype(float), "score").prefix_counts(
            one_hot(codes[order], 3), cuts
        )
    expected = TopRows.of(scores.astype(float), "expected").prefix_counts(one_hot(codes, 3), cuts)
    np.testing.assert_allclose(total / rounds, expected, atol=0.2)
    np.testing.assert_allclose(expected.sum(axis=1), cuts)


def naive_kl(groups, desired, k):
    kl = 0.0
    for group, share in desired.items():
        p = groups[:k].count(group) / k
        kl += p * np.log(p / share) if p else 0.0
    return kl


def naive_ndkl(groups, desired, k):
    weights = [1 / np.log2(i + 1) for i in range(1, k + 1)]
    return np.average([naive_kl(groups, desired, i) for i in range(1, k + 1)], weights=weights)


@pytest.mark.parametrize("k", [1, 5, 10, None])
def test_ndkl_equals_the_sum_over_prefixes(k):
    expected = naive_ndkl(GROUPS, {"f": 0.6, "m": 0.4}, k or 10)
    assert ndkl(RANKED, GROUPS, k=k) == pytest.approx(expected)
    uniform = naive_ndkl(GROUPS, {"f": 0.5, "m": 0.5}, k or 10)
    assert ndkl(RANKED, GROUPS, k=k, reference="uniform") == pytest.approx(uniform)


@pytest.mark.parametrize("measure", [max_skew, min_skew, ndkl, kl_at_k])
def test_several_queries_give_one_value_each(measure):
    rng = np.random.default_rng(3)
    scores, groups = rng.normal(size=(50, 4)), rng.integers(2, size=50)
    values = measure(scores, groups, k=10)
    assert values.shape == (4,)
    assert isinstance(measure(scores[:, 0], groups, k=10), float)
    assert values == pytest.approx([measure(column, groups, k=10) for column in scores.T])


def test_several_group_columns_are_intersected():
    sex, age = ["f", "f", "m", "m"], ["old", "young", "old", "young"]
    both = [[a, b] for a, b in zip(sex, age, strict=True)]
    assert max_skew([4, 3, 2, 1], both, 1) == pytest.approx(np.log(4))
    assert max_skew([4, 3, 2, 1], both, 2, reference={tuple(g): 1 for g in both}) == pytest.approx(np.log(2))


@pytest.mark.parametrize("measure", [max_skew, min_skew, ndkl, kl_at_k])
@pytest.mark.parametrize(
    ("scores", "groups", "options", "error"),
    [
        (RANKED, GROUPS, {"k": 11}, ParameterError),
        (RANKED, GROUPS, {"k": 0}, ParameterError),
        (RANKED, GROUPS[:9], {"k": 3}, ShapeError),
        ([1, np.nan], ["f", "m"], {"k": 1}, NonFiniteError),
        (RANKED, GROUPS, {"k": 3, "reference": {"f": 1}}, LabelError),
        (RANKED, GROUPS, {"k": 3, "reference": {"f": 1, "m": -1}}, ParameterError),
    ],
)
def test_bad_rankings_are_refused(measure, scores, groups, options, error):
    with pytest.raises(error):
        measure(scores, groups, **options)


@pytest.mark.parametrize("measure", [max_skew, min_skew, ndkl, kl_at_k])
def test_random_ties_follow_the_seed_and_do_not_matter_without_ties(measure):
    groups = np.random.default_rng(11).integers(2, size=40)
    tied = [measure(np.zeros(40), groups, k=12, ties="random", random_state=seed) for seed in (1, 1, 2, 3, 4)]
    assert tied[0] == tied[1]
    assert len(set(tied)) > 1
    ranked = np.random.default_rng(12).permutation(40)
    assert measure(ranked, groups, k=12, ties="random") == pytest.approx(measure(ranked, groups, k=12))


@pytest.mark.parametrize("k", [1, 5, 10])
def test_kl_at_k_equals_the_sum_over_groups(k):
    assert kl_at_k(RANKED, GROUPS, k) == pytest.approx(naive_kl(GROUPS, {"f": 0.6, "m": 0.4}, k))
    uniform = naive_kl(GROUPS, {"f": 0.5, "m": 0.5}, k)
    assert kl_at_k(RANKED, GROUPS, k, reference="uniform") == pytest.approx(uniform)
    assert kl_at_k(RANKED, GROUPS, 5, reference={"f": 1, "m": 0}) == np.inf
    given = naive_kl(GROUPS, {"f": 0.25, "m": 0.25, "x": 0.5}, k)
    assert kl_at_k(RANKED, GROUPS, k, reference={"f": 1, "m": 1, "x": 2}) == pytest.approx(given)


def naive_bias(groups, k, pair):
    first, second = (groups[:k].count(value) for value in pair)
    return (first - second) / (first + second) if first + second else 0.0


@pytest.mark.parametrize("k", [1, 4, 5, 10])
def test_bias_at_k_is_the_difference_of_two_counts_over_their_sum(k):
    for groups in (GROUPS, list("xxfmxmmfxx")):
        assert bias_at_k(RANKED, groups, k, pair=("m", "f")) == pytest.approx(naive_bias(groups, k, "mf"))
        assert bias_at_k(RANKED, groups, k, pair=("f", "m")) == pytest.approx(-naive_bias(groups, k, "mf"))


def test_bias_at_k_gives_one_value_per_query_and_counts_ties_by_their_expectation():
    scores = np.c_[RANKED, -RANKED, np.zeros(10)]
    expected = [naive_bias(GROUPS, 4, "mf"), naive_bias(GROUPS[::-1], 4, "mf"), (4 - 6) / 10]
    assert bias_at_k(scores, GROUPS, 4, pair=("m", "f")) == pytest.approx(expected)


@pytest.mark.parametrize(("pair", "error"), [(("m", "m"), ParameterError), (("f", "x"), LabelError)])
def test_bias_at_k_needs_two_groups_of_the_gallery(pair, error):
    with pytest.raises(error):
        bias_at_k(RANKED, GROUPS, 3, pair=pair)


@pytest.mark.parametrize(("accuracy", "skew"), [(0.63, 0.0), (0.63, 0.4), (1.0, 2.0), (0.0, 0.1)])
def test_able_is_the_harmonic_mean_of_accuracy_and_the_exponential_of_minus_skew(accuracy, skew):
    parts = [accuracy, np.exp(-skew)]
    expected = 2 / sum(1 / part for part in parts) if accuracy else 0.0
    assert able(accuracy, skew).value == pytest.approx(expected)


def test_able_has_an_interval_where_both_figures_have_one():
    assert np.isnan(able(0.6, Estimate(0.2, 0.1, 0.3)).low)
    found = able(Estimate(0.6, 0.6, 0.6), Estimate(0.2, 0.1, 0.3))
    assert (found.low, found.high) == pytest.approx((able(0.6, 0.3).value, able(0.6, 0.1).value))
    assert able(Estimate(0.6, 0.5, 0.7), Estimate(0.0, 0.0, np.inf)).low == 0
    with pytest.raises(ParameterError):
        able(1.2, 0.1)
