"""Parameters that are "auto": given values stay, thin evidence keeps the start values, and the rows choose the rest."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip import FairerCLIP
from fairerclip.errors import NoSensitiveWarning
from fairerclip.inputs.sensitive_columns import SoftValues
from fairerclip.judging.choose import choose
from fairerclip.judging.evidence import Evidence, row_keys
from fairerclip.judging.objectives import Objective
from fairerclip.model import automatic as module
from fairerclip.model.automatic import (
    FOLDS,
    GRID,
    GUESSED,
    LABELLED,
    LEAST_CELL,
    cells_of,
    splits_of,
    start_values,
)
from fairerclip.model.cross_validation import deal_folds
from sample_rows import Embeddings as SampleRows

USED = ("tau", "zero_shot", "gamma", "criterion", "guess_weight")


class Embeddings(SampleRows):
    """Rows that overlap, so that there is something to choose."""

    def __init__(self, *, noise=0.3, seed=3, correlation=0.5, **arguments):
        super().__init__(seed=seed, correlation=correlation, **arguments)
        noisy = self.X + noise * np.random.default_rng(9).normal(size=self.X.shape)
        self.X = self._unit(noisy)


def small(**parameters):
    """The feature map depends on the seed alone: its bandwidth is given."""
    return FairerCLIP(
        **{"n_features": 50, "bandwidth": 1.5, "dtype": "float64", "random_state": 0, **parameters}
    )


def arguments_of(e, **arguments):
    return {"y": e.y, "sensitive_features": e.s, "text": e.text, **arguments}


def fitted(e, arguments=None, **parameters):
    return small(**parameters).fit(e.X, **(arguments_of(e) if arguments is None else arguments))


def partial(e, share=0.5, seed=1):
    return np.where(np.random.default_rng(seed).random(len(e.y)) < share, e.y, np.nan)


def used(model):
    return {name: getattr(model, f"{name}_") for name in USED}


def candidates(*names):
    """Number of values of the parameters that are tried together; without an S term there is one criterion."""
    sizes = {name: len(GRID[name]) for name in names}
    both = sizes.pop("criterion", 1) * sizes.pop("tau", 1)
    return math.prod(sizes.values()) * (both - 1 if {"criterion", "tau"} <= {*names} else both)


def started(model, start):
    return used(model) == {name: start[name] for name in USED} and not np.any(model.offsets_)


def test_start_values_replace_auto_alone():
    params = FairerCLIP(tau=0.3, class_offsets=None, n_features=7).get_params()
    for share, start in ((1.0, LABELLED), (0.5, LABELLED), (0.49, GUESSED), (0.0, GUESSED)):
        found = start_values(params, share)
        assert (found["tau"], found["class_offsets"], found["n_features"]) == (0.3, None, 7)
        assert all(found[name] == start[name] for name in ("zero_shot", "gamma", "criterion", "guess_weight"))
    assert start_values({**params, "zero_shot": None}, 0.2)["zero_shot"] == GUESSED["zero_shot"]


ONE_EACH = {"tau": 0.33, "zero_shot": 0.37, "gamma": 2e-3, "criterion": "conditional", "guess_weight": 0.42}


@pytest.mark.parametrize(
    "given", [{"tau": 0.33}, {"gamma": 2e-3, "criterion": "conditional"}, {"class_offsets": None}, ONE_EACH]
)
def test_values_that_are_given_stay_and_the_others_are_chosen(given):
    e = Embeddings(n=240)
    model = fitted(e, arguments_of(e, y=partial(e, 0.7)), **given)
    record = model.diagnostics_["automatic"]
    if "class_offsets" in given:
        assert not np.any(model.offsets_)
    else:
        assert {name: used(model)[name] for name in given} == given
    assert not set(given) & set(record["chosen"])
    assert record["folds"] == FOLDS
    assert record["candidates"] == candidates(*(name for name in GRID if name not in given))


def test_nothing_is_chosen_where_all_values_are_given_or_no_label_is():
    e = Embeddings(n=160)
    model = fitted(e, **LABELLED)
    assert model.diagnostics_["automatic"] is None
    assert started(model, LABELLED)
    assert started(fitted(e, arguments_of(e, y=None)), GUESSED)


def cell_rows(e, sizes):
    """The first rows of each cell."""
    cells = [np.flatnonzero((e.y == k) & (e.s == g))[:n] for (k, g), n in sizes.items()]
    return np.sort(np.concatenate(cells))


@pytest.mark.parametrize("thin", [LEAST_CELL - 1, 0])
@pytest.mark.parametrize("guessed", [False, True])
def test_a_thin_cell_keeps_the_start_values_and_says_why(thin, guessed):
    e = Embeddings(n=300, correlation=0.3)
    rows = cell_rows(e, {(0, 0): 30, (0, 1): 30, (1, 0): 30, (1, 1): thin})
    if guessed:
        y = np.full(300, np.nan)
        y[rows] = e.y[rows]
        model = fitted(e, arguments_of(e, y=y))
    else:
        e.X, e.y, e.s = e.X[rows], e.y[rows], e.s[rows]
        model = fitted(e)
    assert started(model, GUESSED if guessed else LABELLED)
    record = model.diagnostics_["automatic"]
    assert (record["rows"], record["smallest_cell"]) == (90 + thin, thin)
    assert "chosen" not in record


def test_the_choice_is_that_of_a_cross_validation_by_fresh_fits(monkeypatch):
    """All of it the slow way: a fit for every fold and candidate, and their scores row by row."""
    monkeypatch.setattr(module, "GRID", {"tau": (0.0, 0.9), "zero_shot": (0.0,), "gamma": (1e-4,)})
    e = Embeddings(n=200, n_classes=3)
    model = fitted(e, class_weight="group")
    evidence = Evidence.of_codes(e.y, e.s, 3, 2, row_keys(e.X))
    folds = deal_folds(evidence.keys, cells_of(evidence), FOLDS)
    points = [
        {**LABELLED, "gamma": gamma, "tau": tau, "zero_shot": share}
        for gamma in (1e-3, 1e-4)
        for tau in (0.8, 0.0, 0.9)
        for share in (0.5, 0.0)
    ]
    scores = np.empty((len(points), 200, 3))
    for g, values in enumerate(points):
        for fold in range(FOLDS):
            left, out = folds != fold, folds == fold
            own = small(class_weight="group", **values)
            own.fit(e.X[left], e.y[left], sensitive_features=e.s[left], text=e.text)
            scores[g, out] = own.scores(e.X[out])
    expected = choose(scores.astype(np.float32), evidence, Objective("worst_group"), 0)
    record = model.diagnostics_["automatic"]
    assert record["candidates"] == len(points)
    assert used(model) == {name: points[expected.candidate][name] for name in USED}
    assert_allclose(model.offsets_, expected.offsets, atol=1e-5)
    assert (record["gain"], record["doubt"]) == pytest.approx((expected.gain, expected.doubt), abs=1e-4)
    assert expected.gain > 0


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-9), ("float32", 1e-4)])
@pytest.mark.parametrize("labels", ["some", "no text"])
def test_the_chosen_values_fit_the_same_model_again(dtype, rtol, labels):
    e = Embeddings(n=200, n_classes=3)
    arguments = arguments_of(e, y=partial(e) if labels == "some" else e.y)
    if labels == "no text":
        del arguments["text"]
    model = fitted(e, arguments, dtype=dtype)
    values = model.used_parameters()
    assert values == {**used(model), "class_offsets": None}
    again = fitted(e, arguments, dtype=dtype, **values)
    assert again.diagnostics_["automatic"] is None
    moved = again.at(offsets=model.offsets_)
    expected = model.scores(e.X)
    assert np.abs(moved.scores(e.X) - expected).max() <= rtol * np.abs(expected).max()
    assert_allclose(again.scores(e.X) + model.offsets_, moved.scores(e.X), rtol=1e-6, atol=1e-7)
    copy = model.at()
    assert_array_equal(copy.scores(e.X), expected)
    assert {name: copy.get_params()[name] for name in values} == values


@pytest.mark.parametrize("n_classes", [2, 3])
def test_another_order_and_other_names_choose_the_same_model(n_classes):
    e = Embeddings(n=240, n_classes=n_classes)
    first = fitted(e)
    order = np.random.default_rng(1).permutation(240)
    labels, groups = np.array(["zebra", "yak", "wolf"])[:n_classes], np.array(["night", "day"])
    text = {labels[k]: e.text[k] for k in (2, 0, 1) if k < n_classes}
    again = small().fit(e.X[order], labels[e.y[order]], sensitive_features=groups[e.s[order]], text=text)
    assert used(again) == used(first)
    classes = [list(text).index(label) for label in labels]
    assert_allclose(again.offsets_[classes], first.offsets_, atol=1e-5)
    assert_allclose(again.scores(e.X)[:, classes], first.scores(e.X), atol=1e-5)
    assert_array_equal(again.predict(e.X), labels[first.predict(e.X)])


def test_rows_without_weight_take_no_part_in_the_choice():
    e = Embeddings(n=240)
    w = np.random.default_rng(0).uniform(0.5, 2, size=240) * (np.arange(240) % 4 > 0)
    left = w > 0
    first = fitted(e, arguments_of(e, sample_weight=w))
    own = {"sensitive_features": e.s[left], "text": e.text, "sample_weight": w[left]}
    again = small().fit(e.X[left], e.y[left], **own)
    assert first.diagnostics_["automatic"]["rows"] == 180
    assert used(again) == used(first)
    assert_allclose(again.scores(e.X), first.scores(e.X), atol=1e-6)


@pytest.mark.parametrize(
    "kind", ["no text", "prompts", "a quantity", "two attributes", "probabilities", "group"]
)
def test_every_kind_of_input_can_choose(kind):
    e = Embeddings(n=240, n_classes=3)
    rng = np.random.default_rng(4)
    P = 0.7 * np.eye(2)[e.s] + 0.3 * rng.dirichlet([1, 1], size=240)
    changes = {
        "no text": {"text": None},
        "prompts": {"sensitive_features": None, "sensitive_text": e.sensitive_text},
        "a quantity": {"sensitive_features": e.s + rng.normal(size=240)},
        "two attributes": {"sensitive_features": {"s": e.s, "other": rng.integers(2, size=240)}},
        "probabilities": {"sensitive_features": SoftValues(P, ["a", "b"])},
    }
    arguments = arguments_of(e, **changes.get(kind, {}))
    model = fitted(e, arguments, class_weight="group" if kind == "group" else "balanced")
    record = model.diagnostics_["automatic"]
    tried = {"tau", "zero_shot", "gamma", "criterion"} - ({"zero_shot"} if kind == "no text" else set())
    assert record["candidates"] == candidates(*tried)
    if kind == "a quantity":
        assert record["smallest_cell"] == np.bincount(e.y).min()
    assert np.mean(model.predict(e.X) == e.y) > 0.8


def test_without_sensitive_attributes_shares_ridges_and_offsets_are_chosen():
    e = Embeddings(n=240, n_classes=3)
    with pytest.warns(NoSensitiveWarning):
        model = small().fit(e.X, e.y, text=e.text)
    record = model.diagnostics_["automatic"]
    assert record["candidates"] == candidates("zero_shot", "gamma")
    assert record["smallest_cell"] == np.bincount(e.y).min()
    assert (model.tau_, model.criterion_) == (LABELLED["tau"], LABELLED["criterion"])


def test_a_class_without_labels_is_not_given_up():
    # Labelled rows of other classes say nothing of it: neither its guesses nor its boundary may be given to them.
    e = Embeddings(noise=0.0, seed=7, n=400, n_classes=3)
    arguments = arguments_of(e, y=np.where(e.y == 2, np.nan, e.y))
    models = [fitted(e, arguments, bandwidth="3*median", **own) for own in (LABELLED, {})]
    start, auto = (np.mean(model.predict(e.X)[e.y == 2] == 2) for model in models)
    assert auto > start - 0.05


def test_labelled_copies_of_one_row_do_not_stop_a_fit():
    # One fold has all labels, and without guessed rows (a guess_weight to try is zero) the others have nothing.
    e = Embeddings(n=240)
    rows = cell_rows(e, {(k, g): 6 for k in range(2) for g in range(2)})
    y = np.full(240, np.nan)
    y[rows], e.X[rows] = e.y[rows], e.X[rows[0]]
    assert started(fitted(e, arguments_of(e, y=y)), GUESSED)


def test_rows_that_are_not_judged_are_fitted_on_in_every_split():
    splits = splits_of(np.array([0, 1, 0, 2]), np.array([3, 5, 6, 9]), np.array([1, 3, 4, 5, 6, 9]))
    assert [s.scored.tolist() for s in splits] == [[3, 6], [5], [9]]
    assert [s.fitted_on.tolist() for s in splits] == [[1, 4, 5, 9], [1, 3, 4, 6, 9], [1, 3, 4, 5, 6]]
