"""Sensitive attributes: categories, several of them, their intersection, quantities, missing values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.errors import (
    LabelError,
    PromptError,
    PromptOrderWarning,
    ShapeError,
)
from fairerclip.inputs.sensitive import ResolvedSensitive
from fairerclip.inputs.sensitive_columns import SensitiveColumn
from fairerclip.metrics import dep
from small_models import small


def scores(e, s, *, sensitive_text=None, **parameters):
    m = small(**parameters)
    m.fit(e.X, e.y, sensitive_features=s, text=e.text, sensitive_text=sensitive_text)
    return m.decision_function(e.X)


class Two:
    """Embeddings with two sensitive attributes: s, and t that moves another direction."""

    def __init__(self, embeddings, seed=0, n=400):
        self.e = e = embeddings(seed=seed, n=n, correlation=0.6)
        rng = np.random.default_rng(seed + 50)
        self.t = np.where(rng.random(n) < 0.5, e.y, rng.integers(3, size=n))
        shift = rng.normal(size=(3, e.X.shape[1]))
        e.X = e.X + 0.3 * shift[self.t]
        self.text_t = shift


def test_several_columns_in_any_container_are_the_same(embeddings):
    pd = pytest.importorskip("pandas")
    two = Two(embeddings)
    e = two.e
    array = scores(e, np.column_stack([e.s, two.t]))
    assert_array_equal(scores(e, {"sex": e.s, "race": two.t}), array)
    assert_array_equal(scores(e, pd.DataFrame({"sex": e.s, "race": two.t})), array)
    assert_array_equal(scores(e, [[int(a), int(b)] for a, b in zip(e.s, two.t, strict=True)]), array)
    assert not np.allclose(array, scores(e, e.s), atol=1e-3)
    named = [("f", 1) if v else ("m", 2) for v in e.s]
    for one in (e.s[:, None], {"sex": e.s}, e.s.astype(float), named):
        assert_allclose(scores(e, one), scores(e, e.s), atol=1e-8)


def test_each_attribute_is_a_term_of_its_own(embeddings):
    two = Two(embeddings)
    e = two.e
    m = small().fit(e.X, e.y, sensitive_features={"sex": e.s, "race": two.t}, text=e.text)
    assert {"s:sex", "s:race"} <= set(m.diagnostics_["objective"][-1]["image"])
    both = {"sex": e.s, "race": two.t}
    for name, values in both.items():
        before, after = (
            small(tau=tau).fit(e.X, e.y, sensitive_features=both, text=e.text).transform(e.X)
            for tau in (0.0, 0.9)
        )
        assert dep(after / after.std(), values) < 0.5 * dep(before / before.std(), values), name


def test_an_intersection_is_one_attribute_of_combinations(embeddings):
    two = Two(embeddings)
    e = two.e
    crossed = scores(e, {"sex": e.s, "race": two.t}, sensitive_terms="intersection")
    by_hand = scores(e, 3 * e.s + two.t)
    assert_allclose(crossed, by_hand, atol=1e-8)
    tuples = scores(e, [(int(a), int(b)) for a, b in zip(e.s, two.t, strict=True)])
    assert_allclose(tuples, by_hand, atol=1e-8)
    assert_array_equal(scores(e, e.s, sensitive_terms="intersection"), scores(e, e.s))


def test_dependence_on_a_continuous_attribute_falls(embeddings):
    e = embeddings(n=400)
    age = 40 + 8 * e.X @ np.random.default_rng(0).normal(size=12) + 0.25 * e.y
    values = []
    for tau in (0.0, 0.5, 0.9):
        Z = small(tau=tau).fit(e.X, e.y, sensitive_features=age, text=e.text).transform(e.X)
        values.append(dep(Z / Z.std(), age))
    assert values[0] > values[1] > values[2]
    assert values[2] < 0.2 * values[0]


def test_a_quantity_of_rows_without_weight_takes_no_part(embeddings):
    e = embeddings(n=200)
    age = np.random.default_rng(0).integers(20, 30, size=200) + 0.5
    weight = (np.arange(200) % 4 > 0).astype(float)
    kept = weight > 0
    age[~kept] = np.arange(50) * 1000.0 + 0.5
    a = small(tau=0.3).fit(e.X, e.y, sensitive_features=age, text=e.text, sample_weight=weight)
    b = small(tau=0.3).fit(e.X[kept], e.y[kept], sensitive_features=age[kept], text=e.text)
    assert_allclose(a.decision_function(e.X), b.decision_function(e.X), atol=1e-6)


def test_sensitive_kind_overrides_the_guess(embeddings):
    e = embeddings(n=600)
    years = np.random.default_rng(0).integers(20, 30, size=600).astype(float)
    category, quantity = (scores(e, years, sensitive_kind=k, tau=0.3) for k in ("categorical", "continuous"))
    assert_array_equal(scores(e, years, tau=0.3), category)
    assert not np.allclose(category, quantity, atol=1e-3)
    assert_allclose(scores(e, years + 0.5, sensitive_kind="continuous", tau=0.3), quantity, atol=1e-6)
    halves = scores(e, years + 0.5, sensitive_kind="categorical", tau=0.3)
    assert_allclose(halves, category, atol=1e-8)


@pytest.mark.parametrize(
    ("s", "options", "error"),
    [
        (np.zeros(7), {}, ShapeError),
        (["a", "b"] * 120, {"sensitive_kind": "continuous"}, LabelError),
        (np.where(np.arange(240) == 17, np.nan, np.arange(240) + 0.5), {}, LabelError),
        (np.where(np.arange(240) % 3, np.arange(240) % 2, np.nan), {}, LabelError),  # missing, and no prompts
        (
            {"s": np.arange(240) % 2, "age": np.arange(240) + 0.5},
            {"sensitive_terms": "intersection"},
            LabelError,
        ),
        ({"sex": np.arange(240) % 2}, {"sensitive_text": {"race": np.eye(12)[:2]}}, PromptError),
    ],
)
def test_attributes_that_make_no_sense_are_refused(embeddings, s, options, error):
    with pytest.raises(error):
        scores(embeddings(), s, **options)


# Missing values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["none", "nan", "label"])
def test_missing_values_are_read_from_the_prompts(embeddings, mark):
    e = embeddings(n=300)
    gone = np.arange(300) % 3 == 0
    flipped = 1 - e.s  # known values stay even where the prompts say otherwise
    s = {
        "none": np.where(gone, None, flipped),
        "nan": np.where(gone, np.nan, flipped),
        "label": np.where(gone, -1, flipped),
    }[mark]
    options = {"missing_label": -1} if mark == "label" else {}
    m = small(**options)
    with pytest.warns(PromptOrderWarning):
        m.fit(e.X, e.y, sensitive_features=s, text=e.text, sensitive_text=dict(enumerate(e.sensitive_text)))
    guessed = (e.X @ e.sensitive_text.T).argmax(axis=1)
    assert_array_equal(np.asarray(m.pseudo_sensitive_, dtype=int), np.where(gone, guessed, flipped))
    assert m.diagnostics_["pseudo_sensitive"]["s"]["rows"] == 100
    completed = scores(e, np.where(gone, guessed, flipped))
    assert_allclose(m.decision_function(e.X), completed, atol=1e-8)


def test_several_attributes_are_read_from_prompts_by_name(embeddings):
    two = Two(embeddings)
    e = two.e
    m = small().fit(e.X, e.y, text=e.text, sensitive_text={"sex": e.sensitive_text, "race": two.text_t})
    assert set(m.pseudo_sensitive_) == {"sex", "race"}
    assert set(m.diagnostics_["pseudo_sensitive"]) == {"sex", "race"}
    by_hand = {
        "sex": (e.X @ e.sensitive_text.T).argmax(axis=1),
        "race": (e.X @ (two.text_t / np.linalg.norm(two.text_t, axis=1, keepdims=True)).T).argmax(axis=1),
    }
    assert_allclose(m.decision_function(e.X), scores(e, by_hand), atol=1e-8)


# The order of prompts --------------------------------------------------------------------------------


def test_prompts_may_be_a_mapping_from_value(embeddings):
    e = embeddings()
    names = np.array(["water", "land"], dtype=object)[e.s]
    names[::3] = None
    mapping = {"water": e.sensitive_text[0], "land": e.sensitive_text[1]}
    m = small().fit(e.X, e.y, sensitive_features=names, text=e.text, sensitive_text=mapping)
    assert np.mean(m.pseudo_sensitive_ == np.array(["water", "land"])[e.s]) > 0.85
    nested = small().fit(
        e.X, e.y, sensitive_features={"place": names}, text=e.text, sensitive_text={"place": mapping}
    )
    assert_array_equal(nested.pseudo_sensitive_, m.pseudo_sensitive_)
    unlabelled = small().fit(e.X, e.y, text=e.text, sensitive_text=mapping)
    assert set(unlabelled.pseudo_sensitive_) == {"water", "land"}


@pytest.mark.parametrize("counted", [1 << 24, 3], ids=["counted", "sorted"])
@pytest.mark.parametrize("seed", range(3))
def test_joint_groups_are_numbered_as_sorted_rows_of_codes(seed, counted, monkeypatch):
    monkeypatch.setattr("fairerclip.inputs.sensitive.COUNTED_GROUPS", counted)
    rng = np.random.default_rng(seed)
    values = [rng.integers(0, rng.integers(1, 5), size=60) for _ in range(rng.integers(1, 4))]
    columns = [SensitiveColumn(str(k), codes, np.arange(5), None) for k, codes in enumerate(values)]
    found = ResolvedSensitive(columns, {}, {}).groups
    expected = np.unique(np.column_stack(values), axis=0, return_inverse=True)[1].reshape(-1)
    np.testing.assert_array_equal(found, expected)
