"""Fits on parts of the rows, from one table of moments, are the fits that these rows alone would give."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fairerclip import FairerCLIP
from fairerclip.inputs.sensitive_columns import SoftValues
from fairerclip.judging.evidence import row_keys
from fairerclip.model.automatic import splits_of, start_values
from fairerclip.model.cross_validation import FoldedFits, FoldSplit, deal_folds
from fairerclip.model.fit_inputs import read_inputs
from sample_rows import Embeddings

POINTS = [
    {"tau": 0.0, "zero_shot": 0.5, "criterion": "marginal"},
    {"tau": 0.8, "zero_shot": 0.3, "criterion": "conditional"},
]
GAMMAS = (1e-3, 1e-4)


def parameters_of(**parameters):
    """Parameters without "auto". The feature map depends on the seed and this bandwidth, and not on the rows."""
    own = {"n_features": 50, "bandwidth": 1.5, "dtype": "float64", "random_state": 0, "class_offsets": None}
    return start_values(FairerCLIP(**{**own, **parameters}).get_params(), 1.0)


def arguments_of(e, text=True, **arguments):
    given_text = {"text": {k: e.text[k] for k in range(len(e.text))}} if text else {}
    return {"y": e.y, "sensitive_features": e.s, **given_text, **arguments}


def at(value, rows):
    """Some rows of an argument of fit."""
    if isinstance(value, SoftValues):
        return SoftValues(value.probabilities[rows], value.values)
    if isinstance(value, dict):
        return {name: column[rows] for name, column in value.items()}
    return value[rows]


def refitted(e, arguments, params, split, gamma, point, guess_weight=1.0):
    """Scores of a fresh model that has seen the rows to fit on alone; guesses have their weight as a sample weight."""
    rows = split.fitted_on
    if guess_weight != 1:
        arguments = {**arguments, "sample_weight": np.where(np.isnan(arguments["y"]), guess_weight, 1.0)}
    own = {name: v if name in ("text", "classes") else at(v, rows) for name, v in arguments.items()}
    model = FairerCLIP(**{**params, **point, "gamma": gamma, "guess_weight": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes and groups may be missing, and labels may cycle
        return model.fit(e.X[rows], **own).scores(e.X[split.scored])


def error_of(found, expected):
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def three_folds(e):
    rows = np.arange(len(e.y))
    return splits_of(rows % 3, rows, rows)


def assert_exact(
    e, arguments=None, *, splits=None, rtol=1e-10, guess_weight=1.0, budget=None, shares=True, **parameters
):
    """Every fold, ridge and point has the scores of a fresh fit on the other rows."""
    arguments = arguments_of(e) if arguments is None else arguments
    params = parameters_of(**parameters)
    splits = three_folds(e) if splits is None else splits
    fits = FoldedFits(read_inputs(params, e.X, **arguments).data, splits, budget=budget)
    assert fits.shares_moments is shares
    seen = []
    for number, prepared in fits.prepare(params["class_weight"], GAMMAS, guess_weight):
        settings = [prepared.setting({**params, **point}) for point in POINTS]
        found = fits.scores(number, prepared, settings, refine=params["refine"])
        for scores, point in zip(found, POINTS, strict=True):
            expected = refitted(e, arguments, params, splits[number], prepared.gamma, point, guess_weight)
            assert scores.shape == expected.shape
            assert error_of(scores, expected) <= rtol
        seen.append((prepared.gamma, number))
    assert seen == [(gamma, number) for number in range(len(splits)) for gamma in GAMMAS]


@pytest.mark.parametrize("text", [True, False], ids=["text", "no text"])
def test_every_fold_equals_a_fresh_fit_on_the_other_folds(text):
    e = Embeddings(n=150, n_classes=3)
    assert_exact(e, arguments_of(e, text), class_weight={0: 2.0, 1: 3.0, 2: 1.0})
    e.X = e.X.astype(np.float32)
    assert_exact(e, arguments_of(e, text), dtype="float32", rtol=1e-5)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    n=st.integers(24, 80),
    n_classes=st.integers(2, 4),
    n_sensitive=st.integers(2, 3),
    width=st.sampled_from([3, 12]),
    text=st.booleans(),
    class_weight=st.sampled_from([None, "balanced", "group"]),
)
def test_random_shapes_equal_fresh_fits(seed, n, n_classes, n_sensitive, width, text, class_weight):
    e = Embeddings(seed, n, width, n_classes, n_sensitive, correlation=0.3)
    e.y, e.s = np.arange(n) // 4 % n_classes, np.arange(n) // 4 // n_classes % n_sensitive
    w = np.random.default_rng(seed).uniform(0.2, 3, size=n) * (np.arange(n) % 7 > 0)  # zeros are scored, too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # prompts of random classes mean nothing
        arguments = arguments_of(e, text, sample_weight=w)
        assert_exact(e, arguments, splits=three_folds(e)[:2], class_weight=class_weight)


@pytest.mark.parametrize("guess_weight", [0.1, 0.0])
@pytest.mark.parametrize("class_weight", ["balanced", "group"])
def test_guessed_labels_have_their_weight_in_every_fold(guess_weight, class_weight):
    e = Embeddings(n=200, n_classes=3)
    y = np.where(np.random.default_rng(1).random(200) < 0.5, e.y, np.nan)
    known = np.flatnonzero(~np.isnan(y))
    labelled = splits_of(np.arange(len(known)) % 4, known, np.arange(200))
    for splits in (labelled, three_folds(e)):  # guessed rows are in every fit, or left out as others are
        own = {"splits": splits[:2], "guess_weight": guess_weight, "class_weight": class_weight}
        assert_exact(e, arguments_of(e, y=y), **own)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_labels_that_are_guessed_from_class_means_are_guessed_anew_in_every_fold(class_weight):
    # Both the guesses and the weights that balance them follow from the labelled rows of the fold.
    e = Embeddings(n=160, n_classes=3)
    y = np.where(np.random.default_rng(1).random(160) < 0.3, e.y, np.nan)
    assert_exact(e, arguments_of(e, False, y=y), class_weight=class_weight, shares=False)


@pytest.mark.parametrize("parameters", [{}, {"decision": "prompts"}])
def test_without_memory_for_the_table_each_fit_makes_its_own_pass(parameters):
    e = Embeddings(n=120, n_classes=3)
    assert_exact(e, budget=0, shares=False, **parameters)
    assert_exact(e, budget=None, shares=True, **parameters)


def test_splits_need_not_be_complements():
    e = Embeddings(n=160, n_classes=3)
    windows = [FoldSplit(np.arange(stop), np.arange(stop, stop + 40)) for stop in (40, 80, 120)]
    assert_exact(e, splits=windows, class_weight="group")
    sparse = [
        FoldSplit(np.arange(0, 160, 2), np.arange(1, 160, 4)),
        FoldSplit(np.arange(5, 160, 3), np.arange(160)),
        FoldSplit(np.arange(160), np.array([7])),
    ]
    assert_exact(e, splits=sparse)


@pytest.mark.parametrize("class_weight", ["balanced", "group"])
def test_a_class_or_a_group_may_be_missing_from_a_fold(class_weight):
    e = Embeddings(n=150, n_classes=3, n_sensitive=3)
    no_class = FoldSplit(np.flatnonzero(e.y != 1), np.flatnonzero(e.y == 1))
    no_group = FoldSplit(np.flatnonzero(e.s != 2), np.flatnonzero(e.s == 2))
    no_cell = FoldSplit(np.flatnonzero((e.s != 0) | (e.y != 0)), np.flatnonzero((e.s == 0) & (e.y == 0)))
    assert_exact(e, splits=[no_class, no_group, no_cell], class_weight=class_weight)


@pytest.mark.filterwarnings("ignore::fairerclip.errors.LabelCycleWarning")
def test_refined_labels_are_refined_in_every_fold():
    e = Embeddings(n=120, n_classes=3)
    y = np.where(np.random.default_rng(1).random(120) < 0.4, e.y, np.nan)
    known = np.flatnonzero(~np.isnan(y))
    splits = splits_of(np.arange(len(known)) % 3, known, np.arange(120))
    assert_exact(e, arguments_of(e, y=y), splits=splits, refine=True)


def test_rows_that_were_not_drawn_take_no_part_in_any_fold():
    e = Embeddings(n=200, n_classes=3)
    params = parameters_of(subsample="balanced:0.5")
    data = read_inputs(params, e.X, **arguments_of(e)).data
    assert len(data.chosen) < 120
    splits = three_folds(e)  # fitted_on and scored have rows that were not drawn
    fits = FoldedFits(data, splits)
    for number, prepared in fits.prepare("balanced", [1e-3]):
        drawn = FoldSplit(np.intersect1d(splits[number].fitted_on, data.chosen), splits[number].scored)
        assert_array_equal(prepared.rows, drawn.fitted_on)
        (found,) = fits.scores(number, prepared, [prepared.setting({**params, **POINTS[1]})], refine=False)
        expected = refitted(e, arguments_of(e), {**params, "subsample": None}, drawn, 1e-3, POINTS[1])
        assert error_of(found, expected) <= 1e-10


@pytest.mark.parametrize("kind", ["two attributes", "probabilities"])
def test_other_kinds_of_sensitive_attributes_equal_fresh_fits(kind):
    e = Embeddings(n=160, n_classes=2)
    rng = np.random.default_rng(3)
    s = SoftValues(rng.dirichlet([1, 1], size=160), ["a", "b"])
    if kind == "two attributes":
        s = {"first": e.s, "second": rng.integers(3, size=160)}
    assert_exact(e, arguments_of(e, sensitive_features=s), class_weight="group")


@pytest.mark.parametrize("class_weight", ["balanced", "group"])
def test_the_fit_on_all_rows_is_the_ordinary_fit(class_weight):
    e = Embeddings(n=150, n_classes=3)
    params = parameters_of(class_weight=class_weight)
    data = read_inputs(params, e.X, **arguments_of(e)).data
    prepared = FoldedFits(data, three_folds(e)).prepare_all(class_weight, 1e-3)
    everything = FoldSplit(np.arange(150), np.arange(150))
    for point in POINTS:
        found = prepared.solve(prepared.setting({**params, **point}), refine=False).last.training_scores()
        assert error_of(found, refitted(e, arguments_of(e), params, everything, 1e-3, point)) <= 1e-10


def test_a_setting_without_a_solution_has_no_scores():
    e = Embeddings(n=80)
    e.s = e.y.copy()
    params = parameters_of(scaling="paper")
    fits = FoldedFits(read_inputs(params, e.X, **arguments_of(e)).data, three_folds(e))
    points = [{"tau": 0.0}, {"tau": 50.0}]
    for refine in (False, True):
        for number, prepared in fits.prepare("balanced", [1e-3]):
            settings = [prepared.setting({**params, "zero_shot": 0.0, **point}) for point in points]
            found = fits.scores(number, prepared, settings, refine=refine)
            assert [scores is None for scores in found] == [False, True]


def cells(seed, n=100, n_cells=5):
    """Keys and cells of different sizes."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), np.minimum(rng.geometric(0.4, size=n) - 1, n_cells - 1), rng


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), n=st.integers(1, 60), n_folds=st.integers(2, 7), n_cells=st.integers(1, 5))
def test_every_cell_is_spread_evenly_over_the_folds(seed, n, n_folds, n_cells):
    keys, cell, _ = cells(seed, n, n_cells)
    folds = deal_folds(keys, cell, n_folds)
    assert folds.shape == (n,)
    for own in (folds[cell == k] for k in np.unique(cell)):
        sizes = np.bincount(own, minlength=n_folds)
        assert sizes.max() - sizes.min() <= 1
    sizes = np.bincount(folds, minlength=n_folds)
    assert len(sizes) == n_folds
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("grouped", [False, True])
def test_folds_depend_on_the_seed_and_follow_neither_the_order_of_rows_nor_the_numbers_of_cells_and_groups(
    grouped,
):
    keys, cell, rng = cells(1)
    groups = rng.integers(30, size=100) if grouped else None
    folds = deal_folds(keys, cell, 4, groups)
    order, names, other = rng.permutation(100), rng.permutation(9), rng.permutation(30)
    again = deal_folds(keys[order], names[cell[order]], 4, None if groups is None else other[groups[order]])
    assert_array_equal(again, folds[order])
    assert np.any(deal_folds(keys, cell, 4, groups, seed=8) != folds)


@pytest.mark.parametrize("width", [12, 63, 512])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_of_an_image_are_in_one_fold(width, dtype):
    # A copy that is fitted on tells the label of the one that is scored.
    rng = np.random.default_rng(width)
    X = rng.normal(size=(90, width)).astype(dtype)
    X[30:60], X[60:] = X[:30], X[:30][::-1]
    folds = deal_folds(row_keys(X), rng.integers(2, size=90), 4)
    assert_array_equal(folds[30:60], folds[:30])
    assert_array_equal(folds[60:], folds[:30][::-1])


def test_groups_stay_together_and_are_dealt_by_their_rarest_cell():
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(40), 5)
    cell = np.zeros(200, dtype=np.int64)
    cell[:40:5] = 1  # one row of the rare cell in eight of the groups
    order = rng.permutation(200)
    groups, cell = groups[order], cell[order]
    folds = deal_folds(rng.normal(size=200), cell, 4, groups)
    assert all(len(np.unique(folds[groups == g])) == 1 for g in range(40))
    assert np.bincount(folds[cell == 1], minlength=4).tolist() == [2, 2, 2, 2]
    assert np.bincount(folds).tolist() == [50, 50, 50, 50]
