"""The search: its candidates are the models their parameters fit, and what cannot be fitted is said."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from tuning_inputs import SEARCH, prompts, small, task

from fairerclip.errors import NoSensitiveWarning, NoSolutionError, ParameterError
from fairerclip.inputs.prompts import zero_shot
from fairerclip.tuning import candidates as module
from fairerclip.tuning.candidates import FITS, gather, neighbours, search_space


def pool_of(t, model=None, y="train", search=SEARCH, max_seconds=None, progress=None, **given):
    """The candidates of a search, scored on the validation rows."""
    arguments = {**prompts(t), **given}
    labels = t.train.y if isinstance(y, str) else y
    return gather(
        model or small(),
        lambda m: m.fit(t.train.X, labels, **arguments),
        t.val.X,
        search=search,
        has_text=arguments.get("text") is not None,
        max_seconds=max_seconds,
        progress=progress,
    )


@pytest.mark.parametrize("name", ["waterbirds", "multiclass"])
@pytest.mark.parametrize("parameters", [{}, {"decision": "prompts"}, {"tau": 0.0, "refine": True}], ids=str)
@pytest.mark.parametrize("labels", ["train", None])
def test_the_zero_shot_candidate_predicts_what_zero_shot_does(name, parameters, labels):
    t = task(name)
    pool = pool_of(t, small(**parameters), labels, {**SEARCH, "fits": [{}], "zero_shots": [0.0]})
    codes, margins = zero_shot(t.val.X, [p[None] for p in t.text_target])
    predicted = pool.candidates[pool.zero_shot].scores.argmax(axis=1)
    clear = margins > 1e-3
    assert clear.mean() > 0.9
    assert_array_equal(predicted[clear], codes[clear])


@pytest.mark.parametrize("parameters", [{}, {"tau": 0.3, "gamma": 1e-2, "kernel": "linear"}], ids=str)
def test_given_is_the_model_as_it_came(parameters):
    t = task()
    pool = pool_of(t, small(**parameters))
    fitted = small(**parameters).fit(t.train.X, t.train.y, **prompts(t))
    assert pool.candidates[pool.given].parameters == {}
    assert_allclose(pool.candidates[pool.given].scores, fitted.scores(t.val.X), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["waterbirds", "multiclass"])
def test_points_of_the_grid_are_refits(name):
    t = task(name)
    pool = pool_of(t)
    assert {c.fit for c in pool.candidates} == {0, 1, 2, 3}
    chosen = np.random.default_rng(61).choice(len(pool.candidates), 6, replace=False)
    for candidate in (pool.candidates[i] for i in chosen):
        fitted = clone(small()).set_params(**candidate.parameters).fit(t.train.X, t.train.y, **prompts(t))
        scale = np.abs(candidate.scores).max()
        assert_allclose(candidate.scores, fitted.scores(t.val.X), atol=2e-4 * scale)


def test_every_fit_brings_its_grid_and_idle_criteria_are_left_out():
    pool = pool_of(task())
    points = [
        (c.parameters["tau"], c.parameters["criterion"], c.parameters["zero_shot"])
        for c in pool.candidates
        if c.fit == 2
    ]
    expected = {(0.0, "marginal", z) for z in (0.0, 0.5)} | {
        (0.8, k, z) for k in ("marginal", "conditional") for z in (0.0, 0.5)
    }
    assert len(points) == len(expected)
    assert set(points) == expected
    assert (pool.fits, pool.planned, pool.failures) == (4, 4, [])
    assert pool.seconds > 0
    assert pool.zero_shot == 1
    assert pool.candidates[1].parameters["tau"] == 0
    assert pool.candidates[1].parameters["zero_shot"] == 1


def test_the_zero_shot_classifier_is_there_though_no_tau_is_zero():
    pool = pool_of(task(), search={**SEARCH, "taus": [0.5], "zero_shots": [0.25]})
    first = pool.candidates[pool.zero_shot].parameters
    assert (first["tau"], first["zero_shot"]) == (0.0, 1.0)


def test_without_prompts_there_is_no_zero_shot():
    pool = pool_of(task(), text=None)
    assert pool.zero_shot is None
    assert pool.grid["zero_shots"] == [0.0]
    assert {c.parameters["zero_shot"] for c in pool.candidates if c.parameters} == {0.0}
    assert pool.planned == 3


def test_neighbours_differ_in_one_step():
    pool = pool_of(
        task(), search={**SEARCH, "fits": [{}], "taus": [0.0, 0.4, 0.8], "zero_shots": [0, 0.3, 0.6]}
    )
    by = {
        (c.parameters["tau"], c.parameters["criterion"], c.parameters["zero_shot"]): c
        for c in pool.candidates
        if c.fit == 2
    }
    found = neighbours(pool, by[0.4, "marginal", 0.3])
    expected = [(0.0, "marginal", 0.3), (0.8, "marginal", 0.3), (0.4, "conditional", 0.3)]
    expected += [(0.4, "marginal", 0.0), (0.4, "marginal", 0.6)]
    assert {id(c) for c in found} == {id(by[point]) for point in expected}
    corner = neighbours(pool, by[0.8, "conditional", 0.6])
    expected = [(0.4, "conditional", 0.6), (0.8, "marginal", 0.6), (0.8, "conditional", 0.3)]
    assert {id(c) for c in corner} == {id(by[point]) for point in expected}
    assert neighbours(pool, pool.candidates[pool.given]) == []


def test_a_budget_stops_early_but_not_before_one_own_fit(monkeypatch):
    class Clock:
        now = 0.0

        def perf_counter(self):
            Clock.now += 10.0
            return Clock.now

    monkeypatch.setattr(module, "time", Clock())
    seen = []
    pool = pool_of(task(), max_seconds=1.0, progress=lambda *done: seen.append(done))
    assert (pool.fits, pool.planned) == (3, 4)
    assert {c.fit for c in pool.candidates} == {0, 1, 2}
    assert seen == [(1, 4), (2, 4), (3, 4)]
    # Four readings are 40 s: a budget of all but the last fit stops before it, and a larger one does not.
    assert pool_of(task(), max_seconds=39.0).fits == 3
    assert pool_of(task(), max_seconds=1000.0).fits == 4


def test_settings_without_a_solution_are_collected():
    """S is the target itself: the penalty outweighs it from τ = 1/2 on."""
    t = task()
    given = {"text": None, "sensitive_text": None, "sensitive_features": t.train.y}
    search = {"fits": [{"tau": 0.0}, {"tau": 0.9}], "taus": [0.0, 0.9], "criteria": ["marginal"]}
    pool = pool_of(t, small(tau=0.9), search=search, **given)
    assert pool.given is None
    assert pool.zero_shot is None
    assert [c.parameters["tau"] for c in pool.candidates] == [0.0]
    assert len(pool.failures) == 2
    assert all("no direction has a positive objective at tau=0.9" in failure for failure in pool.failures)
    with pytest.raises(NoSolutionError, match="no setting of the search has a solution: no direction"):
        pool_of(t, small(tau=0.9), search={**search, "fits": [{"gamma": 1e-2}]}, **given)


def test_a_fit_whose_whole_grid_has_no_solution_is_collected():
    t = task()
    given = {"text": None, "sensitive_text": None, "sensitive_features": t.train.y}
    search = {"fits": [{"gamma": 1e-2}], "taus": [0.9, 0.95], "criteria": ["marginal"]}
    pool = pool_of(t, small(tau=0.0), search=search, **given)
    assert [c.fit for c in pool.candidates] == [0]
    (failure,) = pool.failures
    assert failure.startswith("no point of the grid has a solution: no direction")


@pytest.mark.parametrize("sensitive", ["none", "continuous"])
def test_default_weights_by_group_need_groups_and_are_left_out_without(sensitive):
    t = task()
    given = {"sensitive_text": None}
    grid = {"taus": [0.0], "zero_shots": [0.5]}
    if sensitive == "continuous":
        given["sensitive_features"] = t.train.X[:, 0].astype(np.float64)
        pool = pool_of(t, search=grid, **given)
    else:
        with pytest.warns(NoSensitiveWarning, match="nothing is mitigated"):
            pool = pool_of(t, search=grid, **given)
    by_group = [i for i, f in enumerate(FITS) if f["class_weight"] == "group"]
    assert {c.fit for c in pool.candidates} == set(range(2 + len(FITS))) - {2 + i for i in by_group}
    assert len(pool.failures) == len(by_group)
    assert all("class_weight='group' needs a categorical sensitive attribute" in f for f in pool.failures)


def test_weights_by_group_that_were_asked_for_need_groups():
    t = task()
    given = {"sensitive_text": None, "sensitive_features": t.train.X[:, 0].astype(np.float64)}
    with pytest.raises(ParameterError, match="class_weight='group' needs"):
        pool_of(t, search=SEARCH, **given)
    with pytest.raises(ParameterError, match="class_weight='group' needs"):
        pool_of(t, small(class_weight="group"), search={"taus": [0.0]}, **given)


def test_what_a_search_does_not_say_is_the_default():
    fits, grid = search_space(None)
    assert fits == list(FITS)
    assert grid == {
        "taus": list(module.TAUS),
        "zero_shots": list(module.ZERO_SHOTS),
        "criteria": list(module.CRITERIA),
    }
    fits, other = search_space({"taus": np.array([0.1, 0.2])})
    assert fits == list(FITS)
    assert other == {**grid, "taus": [0.1, 0.2]}


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"tau": [0.1]}, r"unknown entries \['tau'\]; there are fits, taus, zero_shots, criteria"),
        ({"fits": []}, "list of mappings from parameter to value, one at least"),
        ({"fits": [3]}, "list of mappings"),
        ({"fits": {"gamma": 1.0}}, "list of mappings"),
        ({"fits": 3}, r"search_space\['fits'\] must be a list; got 3"),
        ({"taus": []}, r"search_space\['taus'\] must have one value at least"),
        ({"taus": 0.5}, r"search_space\['taus'\] must be a list; got 0.5"),
        ({"criteria": "marginal"}, r"search_space\['criteria'\] must be a list; got 'marginal'"),
        ("taus", "search_space must be a mapping with any of fits, taus, zero_shots, criteria; got 'taus'"),
        ([("taus", [0.1])], "search_space must be a mapping"),
    ],
    ids=str,
)
def test_a_search_that_cannot_be_is_named(search, message):
    with pytest.raises(ParameterError, match=message):
        search_space(search)


@pytest.mark.parametrize(
    ("fits", "message"),
    [
        ([{"gamma": 1e-3}, {"gama": 1.0}], r"search_space\['fits'\] names \['gama'\]"),
        ([{"offsets": [0.0, 1.0]}], r"names \['offsets'\]; .* parameters of FairerCLIP to values"),
        ([{"gamma": -1.0}], r"gamma must be a number in \[1e-30.*got -1.0"),
        ([{"kernel": "cubic"}], "kernel must be one of"),
    ],
    ids=str,
)
def test_parameters_that_cannot_be_are_named_before_the_first_fit(fits, message):
    with pytest.raises(ParameterError, match=message):
        gather(
            small(),
            lambda m: pytest.fail("a model was fitted"),
            np.zeros((2, 2)),
            search={"fits": fits},
            has_text=True,
            max_seconds=None,
            progress=None,
        )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"taus": [1.0]}, r"tau must be a number in \[0, 1\)"),
        ({"taus": ["much"]}, "taus must be a number or a list of numbers"),
        ({"zero_shots": [1.5]}, r"zero_shots must be numbers in \[0, 1\]"),
        ({"criteria": ["joint"]}, "criterion must be one of"),
    ],
    ids=str,
)
def test_a_grid_out_of_range_is_named(entry, message):
    with pytest.raises(ParameterError, match=message):
        pool_of(task(), search={**SEARCH, **entry})
