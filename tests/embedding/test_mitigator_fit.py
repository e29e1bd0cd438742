"""EmbeddingMitigator: the map that it learns, at every strength, in one pass or several, in every precision."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
from gallery import Gallery, naive_map
from numpy.testing import assert_allclose, assert_array_equal

from block_sizes import in_blocks
from fairerclip import EmbeddingMitigator
from fairerclip.baselines import LEACE
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.stores import open_store
from fairerclip.embedding import sums
from fairerclip.errors import LabelError, ParameterError, ShapeError, StateError
from fairerclip.inputs.sensitive_columns import SoftValues
from fairerclip.solver.moments import Moments
from fairerclip.solver.rows import sum_threads


def covariance(A, s):
    J = np.eye(s.max() + 1)[s]
    return (A - A.mean(axis=0)).T @ (J - J.mean(axis=0)) / len(A)


@pytest.mark.parametrize("strength", [0.25, 0.8, 0.99])
@pytest.mark.parametrize("v", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_the_penalised_problem(strength, v, weighted):
    g = Gallery(v=v)
    weight = np.arange(len(g.X)) % 3 + 0.5 if weighted else None
    fairer = EmbeddingMitigator(strength=strength, gamma=1e-3).fit(
        g.X, sensitive_features=g.s, sample_weight=weight
    )
    J = np.eye(v)[g.s][:, 1:]
    for k, q in enumerate(g.Q):
        expected = naive_map(g.X, q, J, strength / (1 - strength), 1e-3, weight)
        assert_allclose(fairer.scores(g.X, g.Q)[:, k], expected, atol=1e-10)
        assert_allclose(fairer.transform(g.X) @ q, expected, atol=1e-10)


def test_strength_0_gives_the_unit_rows_exactly():
    g = Gallery()
    fairer = EmbeddingMitigator(0.0)
    fairer.fit(3 * g.X, sensitive_features=g.s)
    assert_array_equal(fairer.transform(3 * g.X), unit_rows(3 * g.X))
    assert fairer.diagnostics_["remaining"] == {"s": pytest.approx(1.0)}


def test_strength_1_leaves_no_covariance_with_s_on_the_rows_of_the_fit():
    g = Gallery(v=3)
    fairer = EmbeddingMitigator(1.0)
    after = fairer.fit(g.X, sensitive_features=g.named).transform(g.X)
    assert np.abs(covariance(g.X, g.s)).max() > 1e-2
    assert np.abs(covariance(after, g.s)).max() < 1e-10
    assert_allclose(after.mean(axis=0), g.X.mean(axis=0), atol=1e-12)


def test_several_attributes_and_their_combinations_are_mitigated():
    g = Gallery(v=3)
    other = (g.X[:, 0] > np.median(g.X[:, 0])).astype(int)
    given = {"a": g.named, "b": other}
    each = EmbeddingMitigator(1).fit(g.X, sensitive_features=given)
    for codes in (g.s, other):
        assert np.abs(covariance(each.transform(g.X), codes)).max() < 1e-10
    assert list(each.diagnostics_["remaining"]) == ["a", "b"]
    both = EmbeddingMitigator(1, sensitive_terms="intersection").fit(g.X, sensitive_features=given)
    assert np.abs(covariance(both.transform(g.X), 2 * g.s + other)).max() < 1e-10
    assert np.abs(covariance(each.transform(g.X), 2 * g.s + other)).max() > 1e-4
    assert list(both.diagnostics_["remaining"]) == ["a×b"]
    assert both.drift(g.X).shares == {}  # shares are told of attributes, not of combinations


def test_a_quantity_is_mitigated():
    g = Gallery()
    amount = g.X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=len(g.X))
    after = EmbeddingMitigator(1).fit(g.X, sensitive_features={"amount": amount}).transform(g.X)
    assert np.abs((amount - amount.mean()) @ after / len(after)).max() < 1e-10
    with pytest.raises(LabelError, match="an intersection needs categories"):
        EmbeddingMitigator(sensitive_terms="intersection").fit(g.X, sensitive_features={"amount": amount})


def test_probabilities_that_were_given_count_as_they_are():
    g = Gallery()
    P = np.clip(np.eye(2)[g.s] + 0.2 * np.random.default_rng(0).random((len(g.X), 2)), 0, None)
    P /= P.sum(axis=1, keepdims=True)
    after = EmbeddingMitigator(1).fit(g.X, sensitive_features=SoftValues(P, ["a", "b"])).transform(g.X)
    assert np.abs((P[:, 1] - P[:, 1].mean()) @ after / len(after)).max() < 1e-10
    hard = SoftValues(np.eye(2)[g.s], g.names)
    assert_allclose(
        EmbeddingMitigator().fit(g.X, sensitive_features=hard).transform(g.X),
        EmbeddingMitigator().fit(g.X, sensitive_features=g.named).transform(g.X),
        atol=1e-12,
    )


def test_full_strength_without_a_ridge_is_the_leace_baseline():
    g = Gallery(v=3, n=500)
    erased = LEACE().fit(g.X, text=g.Q[:2], sensitive_features=g.s)
    fairer = EmbeddingMitigator(1, gamma=1e-10).fit(g.X, sensitive_features=g.s)
    new = Gallery(v=3, seed=1).X
    assert_allclose(fairer.transform(new), erased.transform(new), atol=1e-7)


def test_a_second_map_of_mapped_rows_changes_nothing_at_full_strength():
    g = Gallery(v=3)
    fairer = EmbeddingMitigator(1).fit(g.X, sensitive_features=g.s)
    once = fairer.transform(g.X)
    assert_allclose(fairer.fitted_.map.apply(once), once, atol=1e-10)


def test_unit_scales_the_result():
    g = Gallery()
    plain = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    unit = EmbeddingMitigator(unit=True).fit(g.X, sensitive_features=g.s)
    assert_array_equal(unit.transform(g.X), unit_rows(plain.transform(g.X)))
    assert_allclose(unit.scores(g.X, g.Q), unit.transform(g.X) @ g.Q.T, atol=1e-14)
    assert np.abs(np.linalg.norm(plain.transform(g.X), axis=1) - 1).max() > 1e-3


# Strengths ------------------------------------------------------------------------------------------


def test_another_strength_equals_another_fit():
    g = Gallery(v=3)
    fairer = EmbeddingMitigator(0.2)
    fairer.fit(g.X, sensitive_features=g.s)
    for strength in (0.0, 0.7, 1.0):
        fresh = EmbeddingMitigator(strength)
        fresh.fit(g.X, sensitive_features=g.s)
        other = fairer.at(strength)
        assert_array_equal(other.transform(g.X), fresh.transform(g.X))
        assert other.get_params() == fresh.get_params()
        assert other.diagnostics_ == fresh.diagnostics_
    assert fairer.strength == 0.2
    assert fairer.fitted_.strengths == (0.2,)


def test_strengths_by_attribute():
    g = Gallery(v=3)
    given = {"a": g.named, "b": (g.X[:, 0] > np.median(g.X[:, 0])).astype(int)}
    fairer = EmbeddingMitigator().fit(g.X, sensitive_features=given)
    left = fairer.at({"b": 0.0, "a": 1.0}).diagnostics_["remaining"]
    assert left["a"] < 1e-20 < 0.1 < left["b"]
    alone = EmbeddingMitigator(1).fit(g.X, sensitive_features={"a": g.named})
    assert_allclose(fairer.at({"a": 1.0, "b": 0.0}).transform(g.X), alone.transform(g.X), atol=1e-12)
    with pytest.raises(ParameterError, match=r"must name the attributes \['a', 'b'\]; got \['a'\]"):
        fairer.at({"a": 1.0})
    with pytest.raises(ParameterError, match="must name the attributes"):
        fairer.at({"a": 1.0, "b": 1.0, "c": 1.0})
    with pytest.raises(ParameterError, match="strength"):
        fairer.at({"a": 2.0, "b": 0.0})
    with pytest.raises(ParameterError, match="an intersection is one term"):
        EmbeddingMitigator({"a": 1.0, "b": 1.0}, sensitive_terms="intersection").fit(
            g.X, sensitive_features=given
        )


def test_what_is_left_falls_along_the_strengths():
    g = Gallery()
    fairer = EmbeddingMitigator().fit(g.X, sensitive_text=g.text)
    left = [fairer.at(s).diagnostics_["remaining"]["s"] for s in np.linspace(0, 1, 9)]
    assert np.all(np.diff(left) < 0)
    assert left[0] == pytest.approx(1.0)


# Streams --------------------------------------------------------------------------------------------


def test_rows_in_parts_in_any_order_and_from_disk_give_the_same_map(tmp_path, monkeypatch):
    g = Gallery(n=400, v=3)
    whole = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    expected = whole.transform(g.X)
    parts = EmbeddingMitigator()
    for rows in np.array_split(np.arange(400), [30, 31, 200]):
        parts.partial_fit(g.X[rows], sensitive_features=g.s[rows])
    assert_allclose(parts.transform(g.X), expected, atol=1e-9)
    assert parts.diagnostics_["rows"] == whole.diagnostics_["rows"] == 400
    assert_allclose(parts.fitted_.summary.covariance, whole.fitted_.summary.covariance, atol=1e-12)
    order = np.random.default_rng(0).permutation(400)
    shuffled = EmbeddingMitigator().fit(g.X[order], sensitive_features=g.s[order])
    assert_allclose(shuffled.transform(g.X), expected, atol=1e-9)
    np.save(tmp_path / "rows.npy", g.X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert_allclose(
        EmbeddingMitigator().fit(mapped, sensitive_features=g.s).transform(mapped), expected, atol=1e-9
    )
    for threads in (1, 3):
        in_blocks(monkeypatch, 64, threads)
        assert_allclose(
            EmbeddingMitigator().fit(g.X, sensitive_features=g.s).transform(g.X), expected, atol=1e-9
        )


def test_a_fit_tells_how_many_rows_are_done_in_each_of_its_passes(monkeypatch):
    g = Gallery(n=400, v=3)
    in_blocks(monkeypatch, 150, threads=1)
    told = []
    EmbeddingMitigator().fit(g.X, sensitive_features=g.s, progress=lambda *counts: told.append(counts))
    assert told == 2 * [(150, 400), (300, 400), (400, 400)]


def test_a_memory_budget_limits_the_threads_that_have_sums(monkeypatch):
    g = Gallery(n=400, v=3)
    in_blocks(monkeypatch, 50, threads=4)
    made = []
    monkeypatch.setattr(sums, "Moments", lambda *size: made.append(size) or Moments(*size))
    monkeypatch.setattr(sums, "sum_threads", lambda values, budget: sum_threads(3000 * values, budget))
    expected = EmbeddingMitigator().fit(g.X, sensitive_features=g.s).transform(g.X)
    assert len(made) == 1 + 4  # the sums of all rows, and those of each thread
    made.clear()
    small = EmbeddingMitigator(memory_budget="20MB").fit(g.X, sensitive_features=g.s)
    assert len(made) == 1 + 1
    assert_allclose(small.transform(g.X), expected, atol=1e-9)
    with pytest.raises(ParameterError, match="memory_budget"):
        EmbeddingMitigator(memory_budget="20 apples").fit(g.X, sensitive_features=g.s)


def test_the_sums_of_a_pass_can_be_sent_to_another_process():
    g = Gallery(n=60, v=3)
    fairer = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    width = fairer._sums.moments.n_features
    start = partial(sums.LabelledMoments, fairer._sums.attributes, False, width, known=(True,))
    whole, first, second = start(), pickle.loads(pickle.dumps(start))(), start()  # noqa: S301
    X, weight = unit_rows(g.X), np.ones(60)
    whole.add(X, weight, g.s)
    first.add(X[:20], weight[:20], g.s[:20])
    second.add(X[20:], weight[20:], g.s[20:])
    first.merge(pickle.loads(pickle.dumps(second)))  # noqa: S301
    assert_allclose(first.moments.finalise().covariance, whole.moments.finalise().covariance, atol=1e-12)


def test_a_store_gives_what_its_rows_give(tmp_path):
    g = Gallery(n=400, v=3)
    rows = g.X.astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    store = open_store(tmp_path / "rows.npy")
    fairer = EmbeddingMitigator(about=None)
    from_rows = fairer.fit(rows, sensitive_features=g.s, sensitive_text=g.prompts).transform(rows)
    from_store = fairer.fit(store, sensitive_features=g.s, sensitive_text=g.prompts)
    assert_allclose(from_store.transform(rows), from_rows, atol=1e-6)
    assert_allclose(from_store.transform(store), from_rows, atol=1e-6)
    assert_allclose(from_store.scores(store, g.Q), from_store.scores(rows, g.Q), atol=1e-6)
    assert from_store.drift(store).warnings == ()


def test_parts_with_the_reader_of_the_first_rows_equal_the_whole_with_the_same_reader(monkeypatch):
    g = Gallery(n=400, v=3)
    first = EmbeddingMitigator().fit(g.X[:150], sensitive_text=g.text)
    reader = first.fitted_.attributes[0].reader
    parts = EmbeddingMitigator()
    for start in (0, 150, 300):
        text = g.text if start == 0 else None
        parts.partial_fit(g.X[start : start + 150], sensitive_text=text)
    assert_array_equal(parts.fitted_.attributes[0].reader.weights, reader.weights)
    monkeypatch.setattr("fairerclip.embedding.attributes.read_from_prompts", lambda *given: reader)
    whole = EmbeddingMitigator().fit(g.X, sensitive_text=g.text)
    assert_allclose(parts.transform(g.X), whole.transform(g.X), atol=1e-9)


def test_only_the_first_part_takes_prompts_and_later_parts_take_its_values():
    g = Gallery(v=3)
    fairer = EmbeddingMitigator().partial_fit(g.X, sensitive_features=g.named)
    with pytest.raises(ParameterError, match="first call of partial_fit only"):
        fairer.partial_fit(g.X, sensitive_text=g.text)
    with pytest.raises(ParameterError, match="first call of partial_fit only"):
        fairer.partial_fit(g.X, labelled=(g.X, g.named))
    with pytest.raises(LabelError, match="has the value 'other', which the first rows did not have"):
        fairer.partial_fit(g.X[:2], sensitive_features=["other", "value 0"])
    with pytest.raises(LabelError, match=r"\['b'\] were not among the attributes"):
        fairer.partial_fit(g.X[:2], sensitive_features={"b": [0, 1]})
    with pytest.raises(ShapeError, match="features"):
        fairer.partial_fit(g.X[:, :5], sensitive_features=g.named)
    fairer.partial_fit(g.X[:2], sensitive_features=g.named[:2])
    assert fairer.diagnostics_["rows"] == len(g.X) + 2
    with pytest.raises(LabelError, match="2 rows"):  # all values were known, so that none can be read
        fairer.partial_fit(g.X[:2])


def test_rows_added_to_a_copy_of_another_strength_are_not_added_to_the_original():
    g = Gallery()
    fairer = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    before = fairer.transform(g.X)
    fairer.at(0.5).partial_fit(g.X[:50], sensitive_features=np.ones(50, dtype=int))
    assert_array_equal(fairer.at(0.93).transform(g.X), before)
    fairer.partial_fit(g.X[:10], sensitive_features=g.s[:10])
    assert fairer.diagnostics_["rows"] == len(g.X) + 10


def test_a_fit_after_parts_starts_anew():
    g, other = Gallery(), Gallery(seed=1, p=7)
    fairer = EmbeddingMitigator().partial_fit(g.X, sensitive_features=g.s)
    fairer.fit(other.X, sensitive_features=other.s)
    assert_array_equal(
        fairer.transform(other.X),
        EmbeddingMitigator().fit(other.X, sensitive_features=other.s).transform(other.X),
    )


# Precision and weights ------------------------------------------------------------------------------


def test_half_and_single_precision_agree_with_double():
    g = Gallery(v=3)
    double = EmbeddingMitigator(gamma=1e-3)
    expected = double.fit(g.X, sensitive_features=g.s).transform(g.X)
    for dtype, error in ((np.float32, 1e-4), (np.float16, 3e-3)):
        rows = g.X.astype(dtype)
        fairer = EmbeddingMitigator(gamma=1e-3)
        found = fairer.fit(rows, sensitive_features=g.s).transform(rows)
        assert found.dtype == dtype
        assert_allclose(found.astype(np.float64), expected, atol=error)


def test_integer_rows_are_taken():
    g = Gallery()
    rows = np.round(100 * g.X).astype(np.int64)
    found = EmbeddingMitigator().fit(rows, sensitive_features=g.s).transform(rows)
    assert found.dtype == np.float64
    assert_array_equal(
        found, EmbeddingMitigator().fit(rows.astype(float), sensitive_features=g.s).transform(rows)
    )


def test_weights_are_repeated_rows():
    g = Gallery(n=200, v=3)
    counts = np.random.default_rng(0).integers(1, 4, size=200)
    weighted = EmbeddingMitigator(1).fit(g.X, sensitive_features=g.s, sample_weight=counts)
    again = np.repeat(np.arange(200), counts)
    expected = EmbeddingMitigator(1).fit(g.X[again], sensitive_features=g.s[again])
    assert_allclose(weighted.transform(g.X), expected.transform(g.X), atol=1e-9)
    w = counts / counts.sum()
    J = np.eye(3)[g.s]
    assert np.abs((weighted.transform(g.X) - w @ weighted.transform(g.X)).T @ (w[:, None] * J)).max() < 1e-10


@pytest.mark.parametrize("weight", [[1.0], [-1.0, 1.0], [np.nan, 1.0], [0.0, 0.0]])
def test_wrong_weights_are_refused(weight):
    with pytest.raises((ShapeError, ParameterError), match="sample_weight"):
        EmbeddingMitigator().fit(np.eye(2), sensitive_features=[0, 1], sample_weight=weight)


# Manners --------------------------------------------------------------------------------------------


def test_fit_changes_neither_its_inputs_nor_its_parameters():
    g = Gallery(v=3)
    given = {
        "sensitive_features": {"a": g.named, "b": g.s % 2},
        "labelled": (g.X, {"a": g.named, "b": g.s % 2}),
    }
    before, X = copy.deepcopy(given), g.X.copy()
    fairer = EmbeddingMitigator()
    parameters = fairer.get_params()
    fairer.fit(g.X, **given).transform(g.X)
    assert_array_equal(g.X, X)
    assert fairer.get_params() == parameters
    for name in ("a", "b"):
        assert_array_equal(given["sensitive_features"][name], before["sensitive_features"][name])
        assert_array_equal(given["labelled"][1][name], before["labelled"][1][name])


def test_a_pickle_maps_alike_and_holds_no_row():
    g = Gallery(n=3000, p=8)
    fairer = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    raw = pickle.dumps(fairer)
    back = pickle.loads(raw)  # noqa: S301 - our own bytes
    assert_array_equal(back.transform(g.X), fairer.transform(g.X))
    assert len(raw) < g.X.nbytes / 4
    with pytest.raises(StateError, match="one strength only"):
        back.at(0.5)
    with pytest.raises(StateError, match="no sums of its rows"):
        back.partial_fit(g.X, sensitive_features=g.s)
    back.fit(g.X, sensitive_features=g.s).at(0.5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"strength": 1.5}, "strength"),
        ({"strength": "strong"}, "strength"),
        ({"strength": np.nan}, "strength"),
        ({"unit": "yes"}, "unit"),
        ({"gamma": 0.0}, "gamma"),
        ({"about": 2.0}, "about"),
        ({"sensitive_terms": "all"}, "sensitive_terms"),
        ({"sensitive_kind": "odd"}, "sensitive_kind"),
    ],
)
def test_wrong_parameters_are_told_by_name(wrong, message):
    g = Gallery(n=20)
    with pytest.raises(ParameterError, match=message):
        EmbeddingMitigator(**wrong).fit(g.X, sensitive_features=g.s)
