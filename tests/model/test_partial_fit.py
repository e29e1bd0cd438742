"""`partial_fit`: rows in batches give the model of all rows, with what the first batch fixes."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from fairerclip import FairerCLIP, SoftValues
from fairerclip.errors import LabelError, ParameterError, PromptError, ShapeError, StateError
from fairerclip.model import partial_fit as module

FIXED = {
    "tau": 0.6,
    "zero_shot": 0.4,
    "gamma": 1e-3,
    "criterion": "marginal",
    "guess_weight": 0.5,
    "class_offsets": None,
    "bandwidth": 1.0,
    "n_features": 40,
    "dtype": "float64",
    "random_state": 3,
}


def batches(n, seed=0, k=4):
    edges = np.sort(np.random.default_rng(seed).choice(np.arange(1, n), size=k - 1, replace=False))
    return np.split(np.arange(n), edges)


def in_batches(model, X, y, s, weight=None, **first):
    for number, rows in enumerate(batches(len(X))):
        model.partial_fit(
            X[rows],
            None if y is None else [y[i] for i in rows],
            sensitive_features=None if s is None else np.asarray(s)[rows],
            sample_weight=None if weight is None else weight[rows],
            **(first if number == 0 else {}),
        )
    return model


@pytest.mark.parametrize("class_weight", ["balanced", "group", None, {0: 1.0, 1: 3.0}], ids=str)
@pytest.mark.parametrize("labels", ["all", "some", "none"])
def test_batches_give_the_model_of_all_rows(embeddings, class_weight, labels):
    e = embeddings()
    known = {"all": 1.0, "some": 0.5, "none": 0.0}[labels]
    rng = np.random.default_rng(1)
    y = [int(v) if rng.random() < known else None for v in e.y]
    w = rng.uniform(0.5, 2, size=len(e.X))
    parameters = {**FIXED, "class_weight": class_weight}
    first = {"text": e.text, "classes": [0, 1]}
    whole = FairerCLIP(**parameters).fit(e.X, y, sensitive_features=e.s, sample_weight=w, **first)
    parts = in_batches(FairerCLIP(**parameters), e.X, y, e.s, w, **first)
    assert_allclose(parts.components_, whole.components_, rtol=1e-7, atol=1e-9)
    assert_allclose(parts.scores(e.X), whole.scores(e.X), rtol=1e-7, atol=1e-9)
    assert_allclose(parts.temperature_, whole.temperature_, rtol=1e-6)
    assert_allclose(parts.rows_.mean, whole.rows_.mean, rtol=1e-12)
    assert parts.diagnostics_["rows"] == whole.diagnostics_["rows"] == len(e.X)


@pytest.mark.parametrize("criterion", ["marginal", "conditional"])
@pytest.mark.parametrize("kind", ["prompts", "soft", "two", "quantity"])
def test_sensitive_values_of_every_kind(embeddings, criterion, kind):
    e = embeddings(n_classes=3, n_sensitive=3)
    rng = np.random.default_rng(0)
    text = {"text": {"a": e.text[0], "b": e.text[1], "c": e.text[2]}}
    y = np.array(["a", "b", "c"])[e.y]
    if kind == "prompts":
        given, text = None, {**text, "sensitive_text": e.sensitive_text}
    elif kind == "soft":
        given = SoftValues(rng.dirichlet(np.ones(3), size=len(e.X)), ["x", "y", "z"])
    elif kind == "two":
        given = {"s": e.s, "t": rng.integers(2, size=len(e.X))}
    else:
        given = rng.normal(size=len(e.X))
    model = FairerCLIP(**{**FIXED, "criterion": criterion})
    whole = FairerCLIP(**{**FIXED, "criterion": criterion}).fit(e.X, y, sensitive_features=given, **text)
    for number, rows in enumerate(batches(len(e.X))):
        part = given
        if kind == "soft":
            # Another order of the values means the same.
            order = [2, 0, 1] if number else [0, 1, 2]
            part = SoftValues(given.probabilities[rows][:, order], given.values[order])
        elif kind == "two":
            part = {name: column[rows] for name, column in given.items()}
        elif kind == "quantity":
            part = given[rows]
        if kind == "quantity" and number == 0:
            part, rows = given, np.arange(len(e.X))  # its features come from the first rows
        model.partial_fit(e.X[rows], y[rows], sensitive_features=part, **(text if number == 0 else {}))
        if kind == "quantity":
            break
    assert_allclose(model.scores(e.X), whole.scores(e.X), rtol=1e-6, atol=1e-8)
    assert model.pseudo_labels_ is None


def test_what_is_auto_keeps_the_values_to_start_from(embeddings):
    e = embeddings()
    model = in_batches(FairerCLIP(n_features=30, random_state=0), e.X, e.y, e.s, text=e.text)
    assert (model.tau_, model.zero_shot_, model.gamma_, model.criterion_) == (0.8, 0.5, 1e-3, "marginal")
    assert not model.offsets_.any()
    unlabelled = in_batches(FairerCLIP(n_features=30, random_state=0), e.X, None, e.s, text=e.text)
    assert (unlabelled.tau_, unlabelled.zero_shot_) == (0.7, 1.0)


def test_path_at_and_save_work_from_sums(embeddings, tmp_path):
    e = embeddings()
    model = in_batches(FairerCLIP(**FIXED), e.X, e.y, e.s, text=e.text)
    whole = FairerCLIP(**FIXED).fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    assert_allclose(model.at(tau=0.9).scores(e.X), whole.at(tau=0.9).scores(e.X), rtol=1e-6, atol=1e-8)
    points = [m.path([0.1, 0.8]).evaluate(e.X, e.y, sensitive_features=e.s) for m in (model, whole)]
    assert points[0] == points[1]
    again = FairerCLIP.load(model.save(tmp_path / "model"))
    assert_array_equal(again.scores(e.X), model.scores(e.X))
    with pytest.raises(StateError, match="begin with partial_fit"):
        again.partial_fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own bytes
    assert_array_equal(copy.scores(e.X), model.scores(e.X))
    with pytest.raises(StateError):
        copy.partial_fit(e.X, e.y)


def test_classes_may_come_one_after_the_other(embeddings):
    e = embeddings()
    order = np.argsort(e.y, kind="stable")
    model = FairerCLIP(**FIXED)
    model.partial_fit(e.X[order[:60]], e.y[order[:60]], sensitive_features=e.s[order[:60]], text=e.text)
    with pytest.raises(NotFittedError):
        model.predict(e.X)
    model.partial_fit(e.X[order[60:]], e.y[order[60:]], sensitive_features=e.s[order[60:]])
    whole = FairerCLIP(**FIXED).fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    assert_allclose(model.scores(e.X), whole.scores(e.X), rtol=1e-6, atol=1e-8)


def test_without_prompts_class_means_of_the_first_rows_take_their_place(embeddings):
    e = embeddings()
    model = in_batches(FairerCLIP(**FIXED), e.X, e.y, e.s)
    whole = FairerCLIP(**FIXED).fit(e.X, e.y, sensitive_features=e.s)
    # With one prompt per class and all labels known, prompts do not change the predictions.
    assert_array_equal(model.predict(e.X), whole.predict(e.X))
    assert model.zero_shot_ == 0.0
    with pytest.raises(LabelError, match="have neither labelled rows nor prompts"):
        FairerCLIP(**FIXED).partial_fit(
            e.X, np.where(e.y == 1, None, 0), classes=[0, 1], sensitive_features=e.s
        )
    some = np.where(np.arange(len(e.y)) % 3 == 0, None, e.y)
    assert np.mean(in_batches(FairerCLIP(**FIXED), e.X, some, e.s).predict(e.X) == e.y) > 0.8


def test_the_sample_is_bounded_and_drawn_from_all_batches(embeddings, monkeypatch):
    monkeypatch.setattr(module, "SAMPLE_ROWS", 50)
    e = embeddings()
    model = in_batches(FairerCLIP(**FIXED), e.X, e.y, e.s, text=e.text)
    sample = model._batches._sample
    assert len(sample.keys) == 50
    places = [int(np.abs(e.X - row).sum(axis=1).argmin()) for row in sample.X]
    assert min(places) < 60
    assert max(places) > 180
    assert_array_equal(e.y[places], sample.labels.y)
    whole = FairerCLIP(**FIXED).fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    assert_allclose(model.components_, whole.components_, rtol=1e-7, atol=1e-9)


def test_bad_calls(embeddings):
    e = embeddings()

    def begun(**parameters):
        model = FairerCLIP(**{**FIXED, **parameters})
        return model.partial_fit(e.X, e.y, sensitive_features=e.s, text=e.text)

    for name, value in (("refine", True), ("alignment", "rbf"), ("subsample", "balanced")):
        with pytest.raises(ParameterError, match=f"partial_fit needs {name}=.*use fit on all rows"):
            begun(**{name: value})
    with pytest.raises(ParameterError, match="first call of partial_fit only"):
        begun().partial_fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    with pytest.raises(LabelError, match=r"values \[7\] that the first rows did not have"):
        begun().partial_fit(e.X, e.y, sensitive_features=np.where(e.s == 1, 7, e.s))
    with pytest.raises(LabelError, match=r"expected the sensitive attributes \['s'\]"):
        begun().partial_fit(e.X, e.y, sensitive_features={"sex": e.s})
    with pytest.raises((LabelError, PromptError)):
        begun().partial_fit(e.X, np.full(len(e.X), 9), sensitive_features=e.s)
    with pytest.raises((ShapeError, ValueError)):
        begun().partial_fit(e.X[:, 1:], e.y, sensitive_features=e.s)
    with pytest.raises(StateError, match="fitted by fit"):
        FairerCLIP(**FIXED).fit(e.X, e.y, sensitive_features=e.s, text=e.text).partial_fit(e.X, e.y)
    with pytest.raises(ParameterError, match="raise memory_budget, or set class_weight=None"):
        begun(n_features=2000, memory_budget="17MB")


def test_a_failed_call_leaves_the_model_as_it_was(embeddings):
    e = embeddings()
    model = in_batches(FairerCLIP(**FIXED), e.X, e.y, e.s, text=e.text)
    before = model.scores(e.X)
    bad = e.X.copy()
    bad[5] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit(bad, e.y, sensitive_features=e.s)
    assert_array_equal(model.scores(e.X), before)
    model.partial_fit(e.X, e.y, sensitive_features=e.s)
    assert model.diagnostics_["rows"] == 2 * len(e.X)


def test_fit_begins_anew(embeddings):
    e = embeddings()
    model = in_batches(FairerCLIP(**FIXED), e.X, e.y, e.s, text=e.text)
    again = model.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    with pytest.raises(StateError):
        again.partial_fit(e.X, e.y)
