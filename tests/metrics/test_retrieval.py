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


def test_rank_is_by_falling_score_whatever_the_order_of_rows():
    order = np.random.default_rng(0).permutation(10)
    groups = [GROUPS[i] for i in order]
    assert max_skew(RANKED[order], groups, 6) == max_skew(RANKED, GROUPS, 6)
    assert max_skew(-RANKED, GROUPS, 2) == pytest.approx(np.log(1 / 0.4))


def test_uniform_reference_has_the_ceiling_of_one_over_the_number_of_groups():
    groups = ["a"] * 5 + list("bcdefg")
    assert max_skew(np.arange(11, 0, -1), groups, 5, reference="uniform") == pytest.approx(np.log(7))


def test_a_mapping_is_normalised_and_may_hold_groups_that_are_not_in_the_gallery():
    shares = {"f": 1, "m": 1, "x": 2}
    assert max_skew(RANKED, GROUPS, 6, reference=shares) == pytest.approx(np.log((4 / 6) / 0.25))
    assert min_skew(RANKED, GROUPS, 6, reference=shares) == -np.inf
    only_m = {"f": 0, "m": 1}
    assert max_skew(RANKED, GROUPS, 6, reference=only_m) == pytest.approx(np.log(2 / 6))
    assert ndkl(RANKED, GROUPS, reference=only_m) == np.inf


@pytest.mark.parametrize("k", [2, 4, 20])
def test_a_proportional_ranking_has_no_skew(k):
    groups = ["f", "m"] * 10
    scores = np.repeat(np.arange(10, 0, -1), 2)
    assert max_skew(scores, groups, k) == pytest.approx(0, abs=1e-12)
    assert min_skew(scores, groups, k) == pytest.approx(0, abs=1e-12)
    assert ndkl(scores, groups) == pytest.approx(0, abs=1e-12)


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
    total, rounds = np.zeros((30, 3)), 4000
    for _ in range(rounds):
        order = rng.permutation(30)
        total += TopRows.of(scores[order].astype(float), "score").prefix_counts(
            one_hot(codes[order], 3), cuts
        )
    expected = TopRows.of(scores.astype(float), "expected").prefix_counts(one_hot(codes, 3), cuts)
    np.testing.assert_allclose(total / rounds, expected, atol=0.1)
    np.testing.assert_allclose(expected.sum(axis=1), cuts)


def test_expected_max_skew_of_ties_is_that_of_the_average_share():
    groups = ["f"] * 30 + ["m"] * 10 + ["f"] * 10 + ["m"] * 30
    scores = np.r_[np.ones(40), np.zeros(40)]  # a cosine in one dimension: two blocks of ties
    rng = np.random.default_rng(2)
    shares = []
    for _ in range(1500):
        order = rng.permutation(80)
        value = max_skew(
            scores[order], [groups[i] for i in order], 20, reference={"f": 1, "m": 0}, ties="score"
        )
        shares.append(np.exp(value))
    assert max_skew(scores, groups, 20) == pytest.approx(np.log(np.mean(shares) / 0.5), abs=0.02)
    assert max_skew(scores, groups, 20) == pytest.approx(np.log(0.75 / 0.5))


def test_ties_as_they_come_depend_on_the_order_of_rows():
    assert max_skew([1, 1, 1, 1], list("ffmm"), 2, ties="score") == pytest.approx(np.log(2))
    assert max_skew([1, 1, 1, 1], list("fmfm"), 2, ties="score") == pytest.approx(0)
    assert max_skew([1, 1, 1, 1], list("ffmm"), 2) == pytest.approx(0)


def naive_ndkl(groups, desired, k):
    total = weight = 0.0
    for i in range(1, k + 1):
        kl = 0.0
        for group, share in desired.items():
            p = groups[:i].count(group) / i
            kl += p * np.log(p / share) if p else 0.0
        total += kl / np.log2(i + 1)
        weight += 1 / np.log2(i + 1)
    return total / weight


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
def test_bad_rankings_are_named(measure):
    with pytest.raises(ParameterError, match="n=10; got 11"):
        measure(RANKED, GROUPS, k=11)
    with pytest.raises(ParameterError, match="got 0"):
        measure(RANKED, GROUPS, k=0)
    with pytest.raises(ParameterError, match="k must be a whole number; got 2.5"):
        measure(RANKED, GROUPS, k=2.5)
    with pytest.raises(ParameterError, match="reference must hold shares.*'m': 'many'"):
        measure(RANKED, GROUPS, k=3, reference={"f": 1, "m": "many"})
    with pytest.raises(ShapeError, match="groups has 9"):
        measure(RANKED, GROUPS[:9], k=3)
    with pytest.raises(ShapeError, match="0 rows"):
        measure([], [], k=1)
    with pytest.raises(NonFiniteError, match="scores .* row 1;"):
        measure([1, np.nan], ["f", "m"], k=1)
    with pytest.raises(LabelError, match="no share for group 'm'"):
        measure(RANKED, GROUPS, k=3, reference={"f": 1})
    with pytest.raises(ParameterError, match="at least 0"):
        measure(RANKED, GROUPS, k=3, reference={"f": 1, "m": -1})
    with pytest.raises(ParameterError, match="not all 0"):
        measure(RANKED, GROUPS, k=3, reference={"f": 0, "m": 0})
    with pytest.raises(ParameterError, match="'population', 'uniform'; got 'prior'"):
        measure(RANKED, GROUPS, k=3, reference="prior")
    with pytest.raises(ParameterError, match="'expected', 'score', 'random'; got 'best'"):
        measure(RANKED, GROUPS, k=3, ties="best")


@pytest.mark.parametrize("measure", [max_skew, min_skew, ndkl, kl_at_k])
def test_random_ties_follow_the_seed_and_do_not_matter_without_ties(measure):
    groups = np.random.default_rng(11).integers(2, size=40)
    tied = [measure(np.zeros(40), groups, k=12, ties="random", random_state=seed) for seed in (1, 1, 2, 3, 4)]
    assert tied[0] == tied[1]
    assert len(set(tied)) > 1
    ranked = np.random.default_rng(12).permutation(40)
    assert measure(ranked, groups, k=12, ties="random") == pytest.approx(measure(ranked, groups, k=12))


def test_the_average_count_of_random_ties_is_the_expected_one():
    groups, rng = np.array(["f"] * 30 + ["m"] * 10), np.random.default_rng(13)
    options = {"k": 8, "reference": {"f": 1, "m": 0}}
    drawn = [
        np.exp(max_skew(np.zeros(40), groups, ties="random", random_state=rng, **options))
        for _ in range(2000)
    ]
    error = np.std(drawn) / 2000**0.5
    assert np.mean(drawn) == pytest.approx(np.exp(max_skew(np.zeros(40), groups, **options)), abs=4 * error)


def naive_kl(groups, desired, k):
    kl = 0.0
    for group, share in desired.items():
        p = groups[:k].count(group) / k
        kl += p * np.log(p / share) if p else 0.0
    return kl


@pytest.mark.parametrize("k", [1, 4, 5, 10])
def test_kl_at_k_equals_the_sum_over_groups(k):
    assert kl_at_k(RANKED, GROUPS, k) == pytest.approx(naive_kl(GROUPS, {"f": 0.6, "m": 0.4}, k))
    uniform = naive_kl(GROUPS, {"f": 0.5, "m": 0.5}, k)
    assert kl_at_k(RANKED, GROUPS, k, reference="uniform") == pytest.approx(uniform)
    given = naive_kl(GROUPS, {"f": 0.25, "m": 0.25, "x": 0.5}, k)
    assert kl_at_k(RANKED, GROUPS, k, reference={"f": 1, "m": 1, "x": 2}) == pytest.approx(given)


def test_kl_is_0_of_all_rows_or_one_group_and_infinite_without_a_reference_share():
    assert kl_at_k(RANKED, GROUPS, 10) == 0
    assert kl_at_k(RANKED, ["f"] * 10, 3) == 0
    assert kl_at_k(RANKED, GROUPS, 5, reference={"f": 1, "m": 0}) == np.inf
    assert kl_at_k(RANKED, GROUPS, 4, reference={"f": 1, "m": 0}) == 0


def naive_bias(groups, k, pair):
    first, second = (groups[:k].count(value) for value in pair)
    return (first - second) / (first + second) if first + second else 0.0


@pytest.mark.parametrize("k", range(1, 11))
def test_bias_at_k_is_the_difference_of_two_counts_over_their_sum(k):
    for groups in (GROUPS, list("xxfmxmmfxx")):
        assert bias_at_k(RANKED, groups, k, pair=("m", "f")) == pytest.approx(naive_bias(groups, k, "mf"))
        assert bias_at_k(RANKED, groups, k, pair=("f", "m")) == pytest.approx(-naive_bias(groups, k, "mf"))


def test_bias_at_k_gives_one_value_per_query_and_counts_ties_by_their_expectation():
    scores = np.c_[RANKED, -RANKED, np.zeros(10)]
    expected = [naive_bias(GROUPS, 4, "mf"), naive_bias(GROUPS[::-1], 4, "mf"), (4 - 6) / 10]
    assert bias_at_k(scores, GROUPS, 4, pair=("m", "f")) == pytest.approx(expected)


def test_bias_at_k_needs_two_named_groups():
    for pair in (("m",), ("m", "m"), "mf", ("m", "f", "x"), 5, None):
        with pytest.raises(ParameterError, match="two different values"):
            bias_at_k(RANKED, GROUPS, 3, pair=pair)
    with pytest.raises(LabelError, match=r"pair names 'x', which is none of the groups \['f', 'm'\]"):
        bias_at_k(RANKED, GROUPS, 3, pair=("f", "x"))
    with pytest.raises(TypeError):
        bias_at_k(RANKED, GROUPS, 3)
    with pytest.raises(ParameterError, match="n=10; got 11"):
        bias_at_k(RANKED, GROUPS, 11, pair=("m", "f"))


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
    bad = (
        (1.2, 0.1),
        (-0.1, 0.1),
        (0.6, -0.1),
        (np.nan, 0.1),
        (0.6, np.nan),
        (None, 0.1),
        ("x", 0.1),
        ([0.5], 0.1),
    )
    for accuracy, skew in bad:
        with pytest.raises(ParameterError, match="an accuracy from 0 to 1 and a MaxSkew of at least 0"):
            able(accuracy, skew)


def test_able_covers_the_truth_for_independent_figures():
    rng = np.random.default_rng(8)
    a, s, se = 0.6, 0.3, (0.03, 0.05)
    drawn = rng.normal([a, s], se, size=(1000, 2))
    ends = [
        able(Estimate(x, x - 1.96 * se[0], x + 1.96 * se[0]), Estimate(y, y - 1.96 * se[1], y + 1.96 * se[1]))
        for x, y in drawn
    ]
    held = np.mean([e.low <= able(a, s).value <= e.high for e in ends])
    assert 0.93 < held < 0.975
