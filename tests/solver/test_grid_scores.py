"""Scores of all points of a grid at once are those of Algorithm 1 at each point."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fairerclip import FairerCLIP
from fairerclip.errors import NoSolutionError, TextCollapseError, VanishedLabelWarning
from fairerclip.inputs.sensitive_columns import SoftValues
from fairerclip.model.automatic import start_values
from fairerclip.model.fit_inputs import read_inputs
from fairerclip.model.path import path_grid
from fairerclip.solver.grid import grid_scores
from sample_rows import Embeddings

TAUS, SHARES = (0.0, 0.5, 0.98), (0.0, 0.3, 1.0)
CRITERIA = ("marginal", "conditional")


def prepared_of(e, *, text=True, sensitive=None, y=None, sample_weight=None, **parameters):
    """A factored problem of the rows, and its parameters without "auto"."""
    own = {"n_features": 50, "dtype": "float64", "random_state": 0, "max_iter": 100, **parameters}
    params = start_values(FairerCLIP(**own).get_params(), 1.0)
    data = read_inputs(
        params,
        e.X,
        e.y if y is None else y,
        sensitive_features=e.s if sensitive is None else sensitive,
        text=e.text if text is True else text,
        sample_weight=sample_weight,
        classes=None if text is not None else range(int(e.y.max()) + 1),
    ).data
    return data.prepare(params["class_weight"], params["gamma"]), params


def grid_of(prepared, params, taus=TAUS, shares=SHARES, criteria=CRITERIA, tau_zs=None):
    setting = prepared.setting(params)
    return path_grid(setting, taus, tau_zs, criteria, shares, has_text=prepared.target.has_text)


def never(setting):
    raise AssertionError(f"{setting} took the general way")


def at_once(prepared, grid, solve=never):
    """Scores (n, c) of the training rows at every point, or None."""
    sides = prepared.problem.sides(prepared.y)
    return grid_scores(sides, grid, sides.image_rows, solve)


def one_by_one(prepared, grid):
    """The same by Algorithm 1, through encoders in feature space."""
    out = []
    rows = prepared.problem.rows
    for setting in grid:
        try:
            encoders = prepared.solve(setting, refine=False).last.encoders()
        except (NoSolutionError, TextCollapseError):
            out.append(None)
            continue
        Z = rows.project(encoders.mean, encoders.components) + encoders.intercept
        out.append(encoders.decision.scores(Z))
    return out


def assert_same(found, expected, rtol=1e-9):
    assert [scores is None for scores in found] == [scores is None for scores in expected]
    for got, want in zip(found, expected, strict=True):
        if want is not None:
            assert_allclose(got, want, rtol=0, atol=rtol * np.abs(want).max())


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("text", [True, None], ids=["text", "no text"])
def test_every_point_has_the_scores_of_algorithm_1(n_classes, text):
    e = Embeddings(seed=n_classes, n_classes=n_classes, n_sensitive=3, correlation=0.6)
    prepared, params = prepared_of(e, text=text)
    grid = grid_of(prepared, params)
    assert len(grid) == (18 if text else 6)
    found = at_once(prepared, grid)
    assert all(scores.shape == (len(e.y), n_classes) for scores in found)
    assert_same(found, one_by_one(prepared, grid))
    assert (
        len({scores.tobytes() for scores in found}) >= len(grid) - len(grid) // 6
    )  # τ = 0 has one criterion


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    n=st.integers(30, 90),
    n_classes=st.integers(2, 4),
    n_sensitive=st.integers(2, 4),
    text=st.booleans(),
    class_weight=st.sampled_from([None, "balanced", "group"]),
    weighted=st.booleans(),
)
def test_random_problems_have_the_scores_of_algorithm_1(
    seed, n, n_classes, n_sensitive, text, class_weight, weighted
):
    e = Embeddings(seed, n, 8, n_classes, n_sensitive, correlation=0.3)
    e.y[:n_classes], e.s[:n_sensitive] = np.arange(n_classes), np.arange(n_sensitive)
    # Sign errors of prompts and rows would be the embeddings' own fault, and a warning.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w = np.random.default_rng(seed).uniform(0, 2, size=n) * (np.arange(n) % 5 > 0 if weighted else 1)
        w[: max(n_classes, n_sensitive)] = 1.0
        options = {"text": True if text else None, "class_weight": class_weight}
        prepared, params = prepared_of(e, sample_weight=w if weighted else None, **options)
    grid = grid_of(prepared, params, taus=(0.0, 0.8), shares=(0.0, 0.5))
    solve = lambda setting: prepared.solve(setting, refine=False).last  # noqa: E731
    assert_same(at_once(prepared, grid, solve), one_by_one(prepared, grid), 1e-8)


def test_text_strengths_that_follow_the_image_side_are_part_of_the_point():
    e = Embeddings(n_classes=4, correlation=0.6)
    prepared, params = prepared_of(e, tau_text=None, tau_z_text=None)
    grid = grid_of(prepared, params, taus=(0.0, 0.2, 0.4), shares=(0.2,), tau_zs=(0.0, 0.5, 0.9))
    solved = []

    def solve(setting):
        solved.append(setting)
        return prepared.solve(setting, refine=False).last

    assert_same(at_once(prepared, grid, solve), one_by_one(prepared, grid))
    assert len(solved) < len(grid)


@pytest.mark.parametrize("scaling", ["spectral", "paper"])
def test_scalings_and_several_prompts_per_class_agree_with_algorithm_1(scaling):
    e = Embeddings(n_classes=3, correlation=0.6)
    rng = np.random.default_rng(0)
    text = {k: e.text[k] + 0.1 * rng.normal(size=(2 + k, e.text.shape[1])) for k in range(3)}
    prepared, params = prepared_of(e, text=text, scaling=scaling)
    taus = TAUS if scaling == "spectral" else (0.0, 0.5, 2.0)
    grid = grid_of(prepared, params, taus=taus)
    assert_same(at_once(prepared, grid), one_by_one(prepared, grid))


@pytest.mark.parametrize("sensitive", ["two attributes", "a quantity", "probabilities"])
def test_every_kind_of_sensitive_attribute_agrees_with_algorithm_1(sensitive):
    e = Embeddings(n_classes=3, correlation=0.6)
    rng = np.random.default_rng(1)
    given_values = {
        "two attributes": {"first": e.s, "second": rng.integers(3, size=len(e.s))},
        "a quantity": e.s + rng.normal(size=len(e.s)),
        "probabilities": SoftValues(rng.dirichlet([1, 1], size=len(e.s)), ["a", "b"]),
    }[sensitive]
    prepared, params = prepared_of(e, sensitive=given_values)
    grid = grid_of(prepared, params)
    assert_same(at_once(prepared, grid), one_by_one(prepared, grid))


def test_a_class_without_rows_has_the_zero_shot_part_of_the_scores_alone():
    e = Embeddings(n_classes=4, correlation=0.6)
    left = np.flatnonzero(e.y != 2)
    e.X, e.y, e.s = e.X[left], e.y[left], e.s[left]
    with pytest.warns(VanishedLabelWarning):
        prepared, params = prepared_of(e)
    grid = grid_of(prepared, params)
    assert grid[0].n_components == 2
    found = at_once(prepared, grid)
    assert_same(found, one_by_one(prepared, grid))
    # Its scores follow the prompt even where the share of zero-shot scores is zero.
    cosines = e.X @ e.text[2]
    assert np.corrcoef(found[0][:, 2], cosines)[0, 1] > 0.2


@pytest.mark.parametrize(
    "other", [{"decision": "prompts"}, {"alignment": "rbf"}, {"n_components": 1}, {"n_components": 3}]
)
def test_settings_without_the_short_form_take_the_general_way(other):
    e = Embeddings(n_classes=3, correlation=0.6)
    prepared, params = prepared_of(e, **other)
    grid = grid_of(prepared, params, taus=(0.0, 0.8), shares=(0.0, 0.5), criteria="marginal")
    solved = []

    def solve(setting):
        solved.append(setting)
        return prepared.solve(setting, refine=False).last

    found = at_once(prepared, grid, solve)
    assert solved == grid
    assert_same(found, one_by_one(prepared, grid))


def test_a_setting_without_a_solution_gives_none_and_the_others_stay():
    # With scaling="paper" a large strength outweighs the target in every direction.
    e = Embeddings(n_classes=2, correlation=0.95)
    e.s = e.y.copy()  # the S term is the target itself
    prepared, params = prepared_of(e, scaling="paper")
    grid = grid_of(prepared, params, taus=(0.0, 50.0, 0.2), shares=(0.0,), criteria="marginal")
    found = at_once(prepared, grid)
    assert [scores is None for scores in found] == [False, True, False]
    assert_same(found, one_by_one(prepared, grid))


def test_a_text_side_that_collapses_gives_none():
    e = Embeddings(n_classes=2)
    e.s = e.y.copy()
    prepared, params = prepared_of(e, scaling="paper", tau_text=50.0, tau_z_text=0.0)
    collapsed, *_ = grid_of(prepared, params, taus=(0.0,), shares=(0.0,), criteria="marginal")
    whole = replace(collapsed, tau_text=0.1)
    solve = lambda setting: prepared.solve(setting, refine=False).last  # noqa: E731
    found = at_once(prepared, [collapsed, whole], solve)
    assert [scores is None for scores in found] == [True, False]
    with pytest.raises(TextCollapseError):
        prepared.solve(collapsed, refine=False)


def test_rows_that_the_fit_did_not_see_get_the_scores_of_its_model():
    e, other = Embeddings(seed=1, n_classes=3), Embeddings(seed=2, n=40, n_classes=3)
    used = {"tau": 0.7, "zero_shot": 0.4, "gamma": 1e-3, "criterion": "conditional", "guess_weight": 1.0}
    model = FairerCLIP(n_features=50, dtype="float64", random_state=0, class_offsets=None, **used)
    model.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    prepared, setting = model.state.prepared, model.state.setting
    sides = prepared.problem.sides(prepared.y)
    P = (model.features_.transform(other.X) - sides.image.mean) @ sides.image.reduced.basis
    (found,) = grid_scores(sides, [setting], P, never)
    assert_allclose(found, model.scores(other.X), rtol=1e-9, atol=1e-10)
