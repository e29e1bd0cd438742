"""Labels of any kind, through the encoder and through the estimator; zero-shot labels; row weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.errors import (
    LabelError,
    PromptError,
)
from fairerclip.inputs.encode import encode, occurring
from fairerclip.inputs.prompts import prototypes, zero_shot
from fairerclip.inputs.weights import (
    balancing_weights,
    draw_weights,
    weigh_classes,
)
from small_models import small


class NAType:
    """Looks like pandas.NA: equality is neither true nor false."""

    def __eq__(self, other):
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = object.__hash__


# The encoder ----------------------------------------------------------------------------------------


@given(
    st.lists(st.one_of(st.none(), st.integers(-3, 3), st.sampled_from(["a", "b"]), st.booleans()), min_size=1)
)
def test_encoding_gives_back_every_label_that_is_not_missing(labels):
    encoded = encode(labels)
    for value, code in zip(labels, encoded.codes, strict=True):
        assert (code == -1) == (value is None)
        if value is not None:
            assert encoded.classes[code] == value
    assert len(set(encoded.classes.tolist())) == len(encoded.classes)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["cat", "bird", "cat"], ["bird", "cat"]),
        ([1, -1, 1], [-1, 1]),
        ([(1, "b"), (0, "a")], [(0, "a"), (1, "b")]),
        ([frozenset("a"), frozenset("b")], None),
        (["b", 1, "a"], [1, "a", "b"]),
        (np.array(["x", None, "w"], dtype=object), ["w", "x"]),
        (np.array([b"q", b"p"]), [b"p", b"q"]),
    ],
    ids=str,
)
def test_classes_have_an_order_that_rows_do_not_change(labels, classes):
    encoded = encode(labels)
    if classes is None:
        classes = list(labels)
        assert set(encoded.classes.tolist()) == set(classes)
        return
    assert encoded.classes.tolist() == classes
    assert encoded.classes.ndim == 1


@pytest.mark.parametrize(
    ("labels", "options"),
    [
        ([1, None, 0], {}),
        (np.array([1.0, np.nan, 0.0]), {}),
        (np.array([1, -1, 0]), {"missing_label": -1}),
        (["b", "?", "a"], {"missing_label": "?"}),
        ([1, NAType(), 0], {}),
        ([1, np.float32("nan"), 0], {}),
    ],
)
def test_every_way_of_saying_unknown(labels, options):
    encoded = encode(labels, **options)
    assert_array_equal(encoded.codes, [1, -1, 0])
    assert_array_equal(encoded.missing, [False, True, False])
    assert len(encoded.classes) == 2


def test_given_classes_set_the_order():
    assert_array_equal(encode(["a", None, "b"], classes=["b", "c", "a"]).codes, [2, -1, 0])
    for labels, classes in ((["a", "zebra"], ["a", "b"]), (["a"], ["a", "a"]), (np.zeros((2, 2)), None)):
        with pytest.raises(LabelError):
            encode(labels, classes=classes)


# Through the estimator ------------------------------------------------------------------------------

LABELS = {
    "strings": ["land", "water"],
    "-1 and 1": [-1, 1],
    "tuples": [("bird", 0), ("bird", 1)],
    "mixed": [7, "land"],
    "huge": [-(2**60), 2**60],
    "unicode": ["Ä", "水"],
}


@pytest.mark.parametrize("names", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("as_array", [False, True])
def test_labels_of_any_kind_come_back_as_they_went_in(embeddings, names, as_array):
    e = embeddings()
    labels = [names[k] for k in e.y]
    if as_array and names not in (LABELS["tuples"], LABELS["mixed"]):
        labels = np.array(labels)
    m = small().fit(e.X, labels, sensitive_features=e.s, text=dict(zip(names, e.text, strict=True)))
    assert m.classes_.tolist() == names
    plain = small().fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    assert m.predict(e.X).tolist() == [names[k] for k in plain.predict(e.X)]


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.filterwarnings("ignore::fairerclip.errors.FairerClipWarning")
def test_numbers_of_the_prompts_may_leave_one_out(embeddings, kind):
    e = embeddings(n_classes=3)
    m = small().fit(e.X, np.where(e.y == 1, 0, e.y).astype(kind), sensitive_features=e.s, text=e.text)
    assert m.classes_.tolist() == [0, 1, 2]
    assert set(m.predict(e.X)) >= {0, 2}
    partly = small(max_iter=1)  # NaN makes floats of the other labels
    partly.fit(e.X, np.where(e.y == 1, np.nan, e.y), sensitive_features=e.s, text=e.text)
    assert set(partly.predict(e.X)) == {0, 1, 2}


@pytest.mark.parametrize(
    ("y", "options", "error"),
    [
        (None, {"classes": ["a", "b"]}, PromptError),
        (np.linspace(0, 1, 240), {}, LabelError),
        (np.where(np.arange(240) % 2, np.inf, 0.0), {}, LabelError),
    ],
)
def test_targets_that_are_no_classes_are_refused(embeddings, y, options, error):
    e = embeddings(n_classes=3)
    with pytest.raises(error):
        small().fit(e.X, y, sensitive_features=e.s, text=e.text, **options)


# Zero-shot labels and weights -----------------------------------------------------------------------


def test_zero_shot_is_the_largest_cosine_whatever_the_lengths(embeddings):
    e = embeddings(n_classes=4)
    lengths = np.random.default_rng(0).uniform(0.1, 9, size=(len(e.X), 1))
    codes, margins = zero_shot(e.X * lengths, [t[None] * 3 for t in e.text])
    cosines = np.sort(e.X @ e.text.T, axis=1)
    assert_array_equal(codes, (e.X @ e.text.T).argmax(axis=1))
    assert_allclose(margins, cosines[:, -1] - cosines[:, -2], atol=1e-5)


def test_a_prototype_is_the_mean_of_unit_prompts():
    prompts = np.array([[2.0, 0.0], [0.0, 0.5]])
    assert_allclose(prototypes([prompts, prompts[:1]]), [[0.5**0.5, 0.5**0.5], [1, 0]])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 99))
def test_balancing_gives_every_code_the_same_weight(codes, seed):
    codes = np.array(codes)
    weight = np.random.default_rng(seed).uniform(0.1, 2, size=len(codes))
    balanced = balancing_weights(codes, weight)
    totals = np.bincount(codes, weights=balanced)
    assert_allclose(totals[totals > 0], weight.sum() / len(set(codes)))


def weights(y, classes, weight, class_weight=None, subsample=None):
    """Rows are drawn, and then weighted by class."""
    classes = np.array(classes)
    drawn = draw_weights(y, classes, weight, subsample, np.random.RandomState(0))
    return weigh_classes(class_weight, y, None, classes, drawn)


@pytest.mark.parametrize("subsample", ["balanced", "balanced:0.5", {"a": 0.5}, (0.5, 1.0)], ids=str)
def test_subsampling_never_draws_a_row_of_weight_zero(subsample):
    y = np.repeat([0, 1], [40, 60])
    weight = (np.arange(100) % 2).astype(float)
    kept = weights(y, ["a", "b"], weight, subsample=subsample) > 0
    assert not kept[weight == 0].any()
    expected = {"balanced": (20, 20), "balanced:0.5": (10, 10)}.get(str(subsample), (10, 30))
    assert (kept[:40].sum(), kept[40:].sum()) == expected


def test_rows_are_drawn_first_and_then_weighted():
    y = np.repeat([0, 1], [40, 60])
    weight = weights(y, ["a", "b"], np.ones(100), subsample={"a": 0.5}, class_weight="balanced")
    assert np.count_nonzero(weight[:40]) == 20
    assert_allclose([weight[:40].sum(), weight[40:].sum()], [40, 40])


def test_a_mapping_weights_the_rows_of_each_class():
    y = np.array([0, 1, 2, 1])
    given = np.array([1.0, 2.0, 1.0, 0.5])
    found = weights(y, ["a", "b", "c"], given, class_weight={"b": 3, "c": 0})
    assert_array_equal(found, [1.0, 6.0, 0.0, 1.5])


@pytest.mark.parametrize("seed", range(4))
def test_occurring_codes_are_those_of_unique(seed, monkeypatch):
    monkeypatch.setattr("fairerclip.inputs.encode.CODE_ROWS", 7)
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, rng.integers(1, 9), size=30 * seed).astype(np.int32)
    present, places = occurring(codes)
    expected = np.unique(codes, return_inverse=True)
    np.testing.assert_array_equal(present, expected[0])
    np.testing.assert_array_equal(places, expected[1])
    with pytest.raises(AssertionError):
        occurring(np.array([0, -1]))
