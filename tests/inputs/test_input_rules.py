"""Small rules of what a fit is given, each against what it says."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.errors import (
    ConstantSensitiveWarning,
    LabelError,
    PromptError,
    ShapeError,
    VanishedLabelWarning,
)
from fairerclip.inputs import prompts
from fairerclip.inputs.prompts import PromptValues, prompt_groups, sensitive_prompts, zero_shot
from fairerclip.inputs.sensitive import match_prompts, resolve_sensitive
from fairerclip.inputs.sensitive_columns import encode_groups
from fairerclip.inputs.target import (
    Guess,
    ResolvedTarget,
    resolve_target,
)
from fairerclip.inputs.weights import _sizes

AXES = np.eye(4)


def ones(n):
    return np.ones(n)


# Groups and columns ---------------------------------------------------------------------------------------


def test_groups_of_several_attributes_are_their_combinations_and_unknown_where_one_is():
    found = encode_groups({"hue": ["r", "r", "b", None, "b"], "size": [1, 2, 2, 1, None]}, None)
    named = [None if code < 0 else found.classes[code] for code in found.codes]
    assert named == [("r", 1), ("r", 2), ("b", 2), None, None]


# Values and the prompts that stand for them ---------------------------------------------------------------


def test_values_are_placed_by_the_names_of_the_prompts_and_unknown_ones_stay_unknown():
    named = PromptValues([AXES[:1], AXES[1:2], AXES[2:3]], ("z", "a", "m"))
    codes, values = match_prompts("s", np.array([0, 1, -1, 0]), np.array(["m", "z"]), named)
    assert_array_equal(codes, [2, 0, -1, 2])
    assert values.tolist() == ["z", "a", "m"]


def test_values_that_are_numbers_are_the_places_of_the_prompts_and_unknown_ones_stay_unknown():
    unnamed = PromptValues([AXES[:1], AXES[1:2], AXES[2:3]], None)
    codes, values = match_prompts("s", np.array([1, 0, -1]), np.array([0, 2]), unnamed)
    assert_array_equal(codes, [2, 0, -1])
    assert_array_equal(values, [0, 1, 2])
    codes, values = match_prompts("s", np.array([-1, -1]), np.array([]), unnamed)
    assert_array_equal(codes, [-1, -1])
    assert_array_equal(values, [0, 1, 2])


def read(X, values, prompts, target=None):
    """Values completed from prompts; where no target is given, no class has prompts."""
    nothing = ResolvedTarget(np.zeros(len(X), dtype=int), np.arange(1), [], None, has_text=False)
    return resolve_sensitive(
        X, values, prompts, target or nothing, kind="auto", terms="each", missing_label=None
    ).columns


@pytest.mark.parametrize(
    ("codes", "gone"), [([0, 1, 2], "[3]"), ([0, 1], "[2, 3]"), ([0], None), ([0, 1, 2, 3], None)]
)
def test_values_that_no_row_is_read_as_are_named_unless_one_is_left(codes, gone):
    X = AXES[np.tile(codes, 3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        columns = read(X, None, AXES)
    named = [str(w.message) for w in caught if w.category is VanishedLabelWarning]
    assert len(named) == (gone is not None)
    assert all(f"no row is predicted as {gone}" in message for message in named)
    if len(codes) == 1:
        assert columns == []
        assert [w.category for w in caught] == [ConstantSensitiveWarning]
    else:
        assert_array_equal(columns[0].codes, np.tile(codes, 3))


# Shares that are kept -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "kept"), [(1, 20), (0.5, 10), (0.125, 2), (0.01, 1)])
def test_a_share_of_a_class_is_kept_and_one_row_at_least(share, kept):
    codes = np.repeat([0, 1, -1], [20, 7, 5])
    assert _sizes({"a": share}, codes, np.array(["a", "b"])) == {0: kept, 1: 7}
    assert _sizes([share, 1], codes, np.array(["a", "b"])) == {0: kept, 1: 7}


def test_a_balanced_share_is_of_the_smallest_class_that_has_rows():
    codes, classes = np.repeat([0, 1, -1], [20, 8, 5]), np.array(["a", "b", "c"])
    assert _sizes("balanced", codes, classes) == {0: 8, 1: 8}
    assert _sizes("balanced:0.5", codes, classes) == {0: 4, 1: 4}
    assert _sizes("balanced:0.01", codes, classes) == {0: 1, 1: 1}


# Prompts --------------------------------------------------------------------------------------------------


def test_prompts_of_one_attribute_are_by_value_where_the_keys_are_its_values():
    by_value = {"f": AXES[0], "m": AXES[1]}
    assert sensitive_prompts(by_value, 4, {"sex": ["f", "m"]})["sex"].values == ("f", "m")
    assert sensitive_prompts(by_value, 4, None)["s"].values == ("f", "m")
    by_name = {"sex": by_value, "age": AXES[:3]}
    found = sensitive_prompts(by_name, 4, None)
    assert (list(found), found["sex"].values, found["age"].values) == (["sex", "age"], ("f", "m"), None)
    assert len(found["age"].groups) == 3
    both = sensitive_prompts(by_name, 4, {"sex": ["f", "m"], "age": [0, 1]})
    assert list(both) == ["sex", "age"]
    with pytest.raises(PromptError):
        sensitive_prompts(by_value, 4, {"sex": ["f", "m"], "age": [0, 1]})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (AXES[:1], PromptError),
        ([AXES[0], np.ones((2, 3))], ShapeError),
        ([AXES[0], np.ones((0, 4))], ShapeError),
        ([AXES[[0, 3]], AXES[1], AXES[[2, 3]]], PromptError),  # two classes share a prompt
    ],
)
def test_prompts_that_do_not_make_classes_are_refused(text, error):
    with pytest.raises(error):
        prompt_groups(text, 4, "text")


def test_margins_are_the_best_cosine_minus_the_second():
    X = np.array([[3.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0], [1.0, 0.0, 0.0, 0.0]])
    codes, margins = zero_shot(X, [AXES[:1], AXES[1:2], AXES[2:3]])
    assert codes[[0, 2]].tolist() == [1, 0]
    assert_allclose(margins, [0.8 - 0.6, 0.0, 1.0], atol=1e-7)


def test_angles_are_measured_from_the_origin():
    X, origin = np.array([[2.0, 1.0, 0.0, 0.0]]), np.array([2.0, 0.0, 0.0, 0.0])
    assert zero_shot(X, [AXES[:1], AXES[1:2]])[0].tolist() == [0]
    codes, margins = zero_shot(X, [AXES[:1] + origin, AXES[1:2] + origin], origin)
    assert codes.tolist() == [1]
    assert_allclose(margins, [1.0], atol=1e-7)


# The target -----------------------------------------------------------------------------------------------


def test_known_labels_are_those_that_are_no_guesses():
    codes, rows = np.array([0, 1, 2]), np.array([False, True, False])
    groups = [AXES[:2], AXES[2:3], AXES[3:]]
    guessed = ResolvedTarget(codes, np.arange(3), groups, Guess(rows, np.zeros(3)))
    assert_array_equal(guessed.known, [0, -1, 2])
    assert_array_equal(ResolvedTarget(codes, np.arange(3), groups, None).known, codes)
    listed, class_of = guessed.listed_prompts()
    assert_array_equal(listed, AXES)
    assert_array_equal(class_of, [0, 0, 1, 2])


def test_class_means_are_weighted_and_leave_out_rows_without_a_label(monkeypatch):
    monkeypatch.setattr("fairerclip.data.row_pass.BLOCK_ROWS", 2)
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(7, 4)), rng.uniform(0.5, 1.5, size=7)
    y = [0, 1, None, 1, 0, None, 1]
    known = np.array([-1 if label is None else label for label in y])
    found = resolve_target(X, y, None, w)
    for k in (0, 1):
        expected = w[known == k] @ X[known == k] / w[known == k].sum()
        assert_allclose(found.prompts[k], expected[None], rtol=1e-12)
    assert_array_equal(found.guess.rows, known < 0)
    middle = np.concatenate(found.prompts).mean(axis=0)
    closest = zero_shot(X, found.prompts, middle)[0]
    assert_array_equal(found.codes, np.where(known < 0, closest, known))
    assert not found.has_text


@pytest.mark.parametrize(
    ("X", "y", "w"),
    [
        (AXES, [0, 1, 2, 0], np.array([1.0, 0.0, 1.0, 1.0])),  # the rows of class 1 weigh nothing
        (AXES, [0, 0, 0, 0], np.ones(4)),
        (np.linspace(1, 2, 3001)[:, None], np.arange(3001), np.ones(3001)),
    ],
)
def test_no_class_without_a_mean_and_two_to_three_thousand_of_them(X, y, w):
    with pytest.raises(LabelError):
        resolve_target(X, y, None, w)
    assert (
        len(resolve_target(X[:3000], np.arange(len(X[:3000])), None, np.ones(len(X[:3000]))).classes) <= 3000
    )


def test_rows_of_one_class_are_an_error_where_something_learns_and_a_warning_where_nothing_does():
    X = AXES[[0, 0, 0]]
    with pytest.raises(LabelError):
        resolve_target(X, [0, 0, 0], AXES[:3], ones(3))
    with pytest.raises(LabelError):
        resolve_target(X, None, AXES[:3], ones(3))
    with pytest.warns(VanishedLabelWarning):
        resolve_target(X, [0, 0, 0], AXES[:3], ones(3), learns=False)
    with pytest.warns(VanishedLabelWarning):
        resolve_target(AXES[[0, 1, 1]], [0, 1, 1], AXES[:3], ones(3))


def test_cosines_are_those_of_every_block(monkeypatch):
    monkeypatch.setattr("fairerclip.data.row_pass.BLOCK_ROWS", 3)
    X = np.random.default_rng(0).normal(size=(8, 4))
    X[5] *= 1e30  # squares of this row do not fit in float32
    X[6] = 0
    expected = (X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9))[:, :2]
    centred = prompts.zero_shot_scores(X, AXES[:2], centred=True)
    assert_allclose(centred, expected - expected.mean(axis=1, keepdims=True), atol=1e-6)
    assert_allclose(prompts.zero_shot_scores(X, AXES[:2], centred=False), expected, atol=1e-6)
