"""EmbeddingMitigator: the map that it learns, at every strength, in one pass or several, in every precision."""

import pickle
from functools import partial

import numpy as np
import pytest
from gallery import Gallery, naive_map
from numpy.testing import assert_allclose, assert_array_equal

from block_sizes import in_blocks
from fairerclip import EmbeddingMitigator
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.data.stores import open_store
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.inputs.sensitive_columns import SoftValues


def covariance(A, s):
    J = np.eye(s.max() + 1)[s]
    return (A - A.mean(axis=0)).T @ (J - J.mean(axis=0)) / len(A)


def mapped(g, s=None, **parameters):
    return (
        EmbeddingMitigator(**parameters).fit(g.X, sensitive_features=g.s if s is None else s).transform(g.X)
    )


@pytest.mark.parametrize("strength", [0.25, 0.99])
@pytest.mark.parametrize("v", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_those_of_the_penalised_problem(strength, v, weighted):
    g = Gallery(v=v)
    weight = np.arange(len(g.X)) % 3 + 0.5 if weighted else None
    fairer = EmbeddingMitigator(strength=strength, gamma=1e-3).fit(
        g.X, sensitive_features=g.s, sample_weight=weight
    )
    expected = [
        naive_map(g.X, q, np.eye(v)[g.s][:, 1:], strength / (1 - strength), 1e-3, weight) for q in g.Q
    ]
    assert_allclose(fairer.scores(g.X, g.Q), np.transpose(expected), atol=1e-10)
    assert_allclose(fairer.transform(g.X) @ g.Q.T, np.transpose(expected), atol=1e-10)


def test_strength_0_gives_the_unit_rows_exactly_and_strength_1_leaves_no_covariance():
    g = Gallery(v=3)
    none = EmbeddingMitigator(0.0).fit(3 * g.X, sensitive_features=g.s)
    assert_array_equal(none.transform(3 * g.X), unit_rows(3 * g.X))
    assert none.diagnostics_["remaining"] == {"s": pytest.approx(1.0)}
    after = mapped(g, g.named, strength=1.0)
    assert np.abs(covariance(g.X, g.s)).max() > 1e-2
    assert np.abs(covariance(after, g.s)).max() < 1e-10
    assert_allclose(after.mean(axis=0), g.X.mean(axis=0), atol=1e-12)
    plain = mapped(g)
    assert_array_equal(mapped(g, unit=True), unit_rows(plain))
    assert np.abs(np.linalg.norm(plain, axis=1) - 1).max() > 1e-3


def test_several_attributes_and_their_combinations_are_mitigated():
    g = Gallery(v=3)
    other = (g.X[:, 0] > np.median(g.X[:, 0])).astype(int)
    given = {"a": g.named, "b": other}
    each = EmbeddingMitigator(1).fit(g.X, sensitive_features=given)
    for codes in (g.s, other):
        assert np.abs(covariance(each.transform(g.X), codes)).max() < 1e-10
    both = EmbeddingMitigator(1, sensitive_terms="intersection").fit(g.X, sensitive_features=given)
    assert np.abs(covariance(both.transform(g.X), 2 * g.s + other)).max() < 1e-10
    assert np.abs(covariance(each.transform(g.X), 2 * g.s + other)).max() > 1e-4
    assert (list(each.diagnostics_["remaining"]), list(both.diagnostics_["remaining"])) == (
        ["a", "b"],
        ["a×b"],
    )
    assert both.drift(g.X).shares == {}  # shares are told of attributes, not of combinations


def test_quantities_and_given_probabilities_count_as_they_are():
    g, rng = Gallery(), np.random.default_rng(0)
    amount = g.X[:, 0] + 0.1 * rng.normal(size=len(g.X))
    P = np.eye(2)[g.s] + 0.2 * rng.random((len(g.X), 2))
    P /= P.sum(axis=1, keepdims=True)
    for column, given in ((amount, {"amount": amount}), (P[:, 1], SoftValues(P, ["a", "b"]))):
        after = mapped(g, given, strength=1)
        assert np.abs((column - column.mean()) @ after / len(after)).max() < 1e-10
    hard = SoftValues(np.eye(2)[g.s], g.names)
    assert_allclose(mapped(g, hard), mapped(g, g.named), atol=1e-12)
    with pytest.raises(LabelError):
        mapped(g, {"amount": amount}, sensitive_terms="intersection")


# Strengths ------------------------------------------------------------------------------------------


def test_another_strength_equals_another_fit():
    g = Gallery(v=3)
    fairer = EmbeddingMitigator(0.2).fit(g.X, sensitive_features=g.s)
    for strength in (0.0, 0.7, 1.0):
        fresh = EmbeddingMitigator(strength).fit(g.X, sensitive_features=g.s)
        other = fairer.at(strength)
        assert_array_equal(other.transform(g.X), fresh.transform(g.X))
        assert other.get_params() == fresh.get_params()
        assert other.diagnostics_ == fresh.diagnostics_
    assert (fairer.strength, fairer.fitted_.strengths) == (0.2, (0.2,))
    left = [fairer.at(s).diagnostics_["remaining"]["s"] for s in np.linspace(0, 1, 9)]
    assert np.all(np.diff(left) < 0)


def test_strengths_by_attribute():
    g = Gallery(v=3)
    given = {"a": g.named, "b": (g.X[:, 0] > np.median(g.X[:, 0])).astype(int)}
    fairer = EmbeddingMitigator().fit(g.X, sensitive_features=given)
    left = fairer.at({"b": 0.0, "a": 1.0}).diagnostics_["remaining"]
    assert left["a"] < 1e-20 < 0.1 < left["b"]
    assert_allclose(fairer.at({"a": 1.0, "b": 0.0}).transform(g.X), mapped(g, strength=1), atol=1e-12)
    for wrong in ({"a": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 2.0, "b": 0.0}):
        with pytest.raises(ParameterError, match="strength"):
            fairer.at(wrong)
    with pytest.raises(ParameterError, match="intersection"):
        mapped(g, given, strength={"a": 1.0, "b": 1.0}, sensitive_terms="intersection")


# Streams --------------------------------------------------------------------------------------------


def test_rows_in_parts_in_any_order_and_from_disk_give_the_same_map(tmp_path, monkeypatch):
    g = Gallery(n=400, v=3)
    whole = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    same = partial(assert_allclose, desired=whole.transform(g.X), atol=1e-9)
    parts = EmbeddingMitigator()
    for rows in np.array_split(np.arange(400), [30, 31, 200]):
        parts.partial_fit(g.X[rows], sensitive_features=g.s[rows])
    same(parts.transform(g.X))
    assert parts.diagnostics_["rows"] == whole.diagnostics_["rows"] == 400
    assert_allclose(parts.fitted_.summary.covariance, whole.fitted_.summary.covariance, atol=1e-12)
    order = np.random.default_rng(0).permutation(400)
    same(EmbeddingMitigator().fit(g.X[order], sensitive_features=g.s[order]).transform(g.X))
    np.save(tmp_path / "rows.npy", g.X)
    store = open_store(tmp_path / "rows.npy")
    for rows, error in (
        (np.load(tmp_path / "rows.npy", mmap_mode="r"), 1e-9),
        (store, 1e-5),
    ):  # a store is float32
        same(EmbeddingMitigator().fit(rows, sensitive_features=g.s).transform(rows), atol=error)
    assert_allclose(whole.scores(store, g.Q), whole.scores(g.X, g.Q), atol=1e-6)
    for threads in (1, 3):
        in_blocks(monkeypatch, 64, threads)
        same(mapped(g))
    told = []
    whole.at(0.5).partial_fit(g.X[:9], sensitive_features=g.s[:9], progress=lambda *n: told.append(n))
    assert told[-1] == (9, 9)
    same(whole.at(0.93).transform(g.X))  # rows added to a copy are not added to the original
    parts.fit(g.X[:, :7], sensitive_features=g.s)  # starts anew
    assert parts.diagnostics_["rows"] == 400


def test_parts_keep_the_reader_of_the_first_rows_and_equal_the_whole_with_it(monkeypatch):
    g = Gallery(n=400, v=3)
    reader = EmbeddingMitigator().fit(g.X[:150], sensitive_text=g.text).fitted_.attributes[0].reader
    parts = EmbeddingMitigator()
    for start in (0, 150, 300):
        text = g.text if start == 0 else None
        parts.partial_fit(g.X[start : start + 150], sensitive_text=text)
    assert_array_equal(parts.fitted_.attributes[0].reader.weights, reader.weights)
    monkeypatch.setattr("fairerclip.embedding.attributes.read_from_prompts", lambda *given: reader)
    whole = EmbeddingMitigator().fit(g.X, sensitive_text=g.text)
    assert_allclose(parts.transform(g.X), whole.transform(g.X), atol=1e-9)


@pytest.mark.parametrize(
    ("later", "error"),
    [
        (lambda g: {"X": g.X, "sensitive_text": g.text}, ParameterError),
        (lambda g: {"X": g.X, "labelled": (g.X, g.named)}, ParameterError),
        (lambda g: {"X": g.X[:2], "sensitive_features": ["other", "value 0"]}, LabelError),
        (lambda g: {"X": g.X[:2], "sensitive_features": {"b": [0, 1]}}, LabelError),
        (lambda g: {"X": g.X[:, :5], "sensitive_features": g.named}, ShapeError),
        (lambda g: {"X": g.X[:2]}, LabelError),  # all values were known, so that none can be read
    ],
)
def test_later_parts_take_the_values_of_the_first_one(later, error):
    g = Gallery(v=3)
    fairer = EmbeddingMitigator().partial_fit(g.X, sensitive_features=g.named)
    with pytest.raises(error):
        fairer.partial_fit(**later(g))
    fairer.partial_fit(g.X[:2], sensitive_features=g.named[:2])
    assert fairer.diagnostics_["rows"] == len(g.X) + 2


# Precision and weights ------------------------------------------------------------------------------


def test_half_and_single_precision_agree_with_double():
    g = Gallery(v=3)
    expected = mapped(g, gamma=1e-3)
    for dtype, error in ((np.float32, 1e-4), (np.float16, 3e-3)):
        g.X = g.X.astype(dtype)
        found = mapped(g, gamma=1e-3)
        assert found.dtype == dtype
        assert_allclose(found.astype(np.float64), expected, atol=error)


def test_weights_are_repeated_rows():
    g = Gallery(n=200, v=3)
    counts = np.random.default_rng(0).integers(1, 4, size=200)
    weighted = EmbeddingMitigator(1).fit(g.X, sensitive_features=g.s, sample_weight=counts)
    again = np.repeat(np.arange(200), counts)
    expected = EmbeddingMitigator(1).fit(g.X[again], sensitive_features=g.s[again])
    assert_allclose(weighted.transform(g.X), expected.transform(g.X), atol=1e-9)


@pytest.mark.parametrize("weight", [[1.0], [-1.0, 1.0], [np.nan, 1.0], [0.0, 0.0]])
def test_wrong_weights_are_refused(weight):
    with pytest.raises((ShapeError, ParameterError), match="sample_weight"):
        EmbeddingMitigator().fit(np.eye(2), sensitive_features=[0, 1], sample_weight=weight)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strength", 1.5),
        ("strength", np.nan),
        ("unit", "yes"),
        ("gamma", 0.0),
        ("about", 2.0),
        ("sensitive_terms", "all"),
        ("sensitive_kind", "odd"),
        ("memory_budget", "20 apples"),
    ],
)
def test_wrong_parameters_are_told_by_name(name, value):
    with pytest.raises(ParameterError, match=name):
        mapped(Gallery(n=20), **{name: value})


def test_a_pickle_maps_alike_and_holds_no_row():
    g = Gallery(n=3000, p=8)
    fairer = EmbeddingMitigator().fit(g.X, sensitive_features=g.s)
    raw = pickle.dumps(fairer)
    assert_array_equal(pickle.loads(raw).transform(g.X), fairer.transform(g.X))  # noqa: S301 - our own bytes
    assert len(raw) < g.X.nbytes / 4
