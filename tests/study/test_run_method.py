"""One run of a comparison: what a method may see, the rows that judge its candidates, and what is chosen."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip import FairerCLIP
from fairerclip.auditing.group_results import StageReport
from fairerclip.data import Split, simulate
from fairerclip.errors import NonFiniteError
from fairerclip.experiment import Experiment
from fairerclip.judging.objectives import Objective, judge_scores
from fairerclip.study import choose_model as module
from fairerclip.study.choose_model import choose_model, fit_arguments
from fairerclip.study.method import make
from fairerclip.study.method_settings import CANDIDATES, CHECKPOINTS, SEARCH
from fairerclip.study.methods import METHODS
from fairerclip.study.run_method import run_method

BY_KEY = {method.key: method for method in METHODS}
WORST = Objective("worst_group")
FEW = [{"C": C} for C in (1.0, 1e-4, 1e-2, 30.0)]


@pytest.fixture(scope="module")
def experiment():
    return Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))


@pytest.fixture
def judged(monkeypatch):
    """What the latest choice was made by: rows, scores (g, n, c), evidence and the place of the reference."""
    kept = {}
    find, choose = module.find_rows, module.choose

    def found(*args, **options):
        kept["found"] = find(*args, **options)
        return kept["found"]

    def chosen(scores, evidence, objective, reference):
        kept.update(scores=scores, evidence=evidence, objective=objective, reference=reference)
        return choose(scores, evidence, objective, reference)

    monkeypatch.setattr(module, "find_rows", found)
    monkeypatch.setattr(module, "choose", chosen)
    return kept


def report_of(experiment, predicted):
    return StageReport.model_validate(experiment.report(experiment.task.test, predicted).as_dict())


def with_split(experiment, name, split):
    task = experiment.task
    splits = {k: v for k, v in task.splits.items() if k != name}
    return Experiment.of(replace(task, splits=splits if split is None else {**splits, name: split}))


def fitted(method, parameters, experiment, rows=None):
    """A plain fit of one setting on some of the training rows."""
    arguments = fit_arguments(method, experiment)
    X, y = arguments.pop("X"), arguments.pop("y")
    columns = arguments.get("sensitive_features")
    rows = np.arange(len(X)) if rows is None else rows
    if isinstance(columns, dict):
        arguments["sensitive_features"] = {name: column[rows] for name, column in columns.items()}
    elif columns is not None:
        arguments["sensitive_features"] = columns[rows]
    return make(method, parameters, 0).fit(X[rows], y[rows], **arguments)


# Candidates -----------------------------------------------------------------------------------------


def test_every_method_has_as_many_candidate_models_or_the_one_that_it_has(experiment):
    for method in METHODS:
        models = len(method.candidates) * (CHECKPOINTS if method.gradient else 1)
        distinct = {json.dumps(c, sort_keys=True) for c in method.candidates}
        assert len(distinct) == len(method.candidates), method.key
        assert models in (1, CANDIDATES), method.key
        assert (models == 1) == (method.is_own or method.key in ("zero-shot", "orth-proj", "prism-mini"))
    # What FairerCLIP searches: its defaults are a point of the grid, so that they are no further model.
    run = run_method(replace(BY_KEY["fairerclip-target"], fixed={"n_features": 50}), experiment, 0)
    assert run.candidates == CANDIDATES


def test_every_method_sees_the_labels_it_may_and_no_more(experiment):
    for method in METHODS:
        arguments = fit_arguments(method, experiment)
        assert (arguments["y"] is None) == (method.fit_labels == "none"), method.key
        known = arguments.get("sensitive_features") is not None
        assert known == (method.labels in ("all", "prediction")), method.key
        for parameters in method.candidates:
            given = make(method, parameters, 5, 7).get_params()
            recipe = given.get("recipe") or {}
            for name, value in {**method.fixed, **parameters}.items():
                assert (recipe if name in recipe else given)[name] == value, method.key
            if method.gradient:
                assert (recipe or given)["max_steps"] == 7, method.key


# The rows that judge --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["probe-group-true", "wise"])
def test_a_baseline_is_judged_on_training_rows_out_of_fold_and_on_validation_rows(key, experiment, judged):
    settings = FEW[:2] if key != "wise" else BY_KEY[key].candidates[:2]
    method = replace(BY_KEY[key], candidates=settings)
    chosen = choose_model(method, experiment, 0)
    train, val = experiment.task.train, experiment.task.val
    found, n = judged["found"], len(train.y)
    assert (found.trained_rows, found.validation_rows, len(found.splits)) == (n, len(val.y), 4)
    assert_array_equal(np.sort(np.concatenate([split.scored for split in found.splits])), np.arange(n))
    names = list(chosen.model.classes_)
    for parameters, scores in zip(settings, judged["scores"], strict=True):
        expected = np.empty_like(scores)
        for fitted_on, scored in found.splits:
            assert_array_equal(np.intersect1d(fitted_on, scored), [])
            expected[scored] = fitted(method, parameters, experiment, fitted_on).scores(train.X[scored])
        expected[n:] = fitted(method, parameters, experiment).scores(val.X)
        assert_allclose(scores, expected, atol=1e-3 * np.abs(expected).max())
    truth = np.concatenate([experiment.target(train), experiment.target(val)])
    assert_array_equal(judged["evidence"].y, [names.index(label) for label in truth])


def test_groups_of_training_rows_are_known_to_methods_that_know_them_and_doubtful_to_others(
    experiment, judged
):
    n = len(experiment.task.train.y)
    for key, certain in (("probe-group-true", True), ("probe-group", False), ("probe", False)):
        choose_model(replace(BY_KEY[key], candidates=FEW[:1]), experiment, 0)
        P = judged["evidence"].groups
        assert np.isin(P[n:], (0, 1)).all()  # validation rows have labels
        assert np.isin(P[:n], (0, 1)).all() == certain
        likely = judged["found"].judged.groups[:n] == experiment.groups(experiment.task.train)
        assert likely.mean() > (0.999 if certain else 0.8)


def test_what_learns_from_validation_rows_is_chosen_on_rows_it_did_not_learn_from(experiment, judged):
    method = replace(BY_KEY["dfr-validation"], candidates=[{"C": 1.0}, {"C": 100.0}])
    chosen = choose_model(method, experiment, 0)
    val = experiment.task.val
    seen = chosen.model.scores(val.X) + chosen.offsets
    # The fit on all validation rows knows them; the choice did not see that.
    assert chosen.value < judge_scores(judged["evidence"], WORST, seen[None]).mean() - 0.01
    whole = make(method, chosen.parameters, 0)
    arguments = fit_arguments(method, experiment)
    whole.fit(
        arguments.pop("X"), arguments.pop("y"), validation=(val.X, *experiment.labels(val)), **arguments
    )
    assert_array_equal(whole.coef_, chosen.model.coef_)


def test_test_rows_do_not_influence_the_choice(experiment):
    task = experiment.task
    other = Experiment.of(
        replace(task, splits={**task.splits, "test": Split(-task.test.X, 1 - task.test.y, task.test.s)})
    )
    for key in ("probe-group", "fairerclip-target"):
        method = replace(BY_KEY[key], candidates=BY_KEY[key].candidates[:3])
        if method.is_own:
            method = replace(method, fixed={"n_features": 100})
        assert run_method(method, experiment, 0).chosen == run_method(method, other, 0).chosen


# The choice -----------------------------------------------------------------------------------------


def test_a_baseline_is_chosen_by_the_rule_and_with_the_offsets_of_fairerclip(experiment, judged):
    method = replace(BY_KEY["probe"], candidates=FEW)
    chosen = choose_model(method, experiment, 0)
    draws = judge_scores(judged["evidence"], WORST, judged["scores"])
    place = FEW.index(chosen.parameters)
    moved = judge_scores(judged["evidence"], WORST, judged["scores"][place][None] + chosen.offsets)[0]
    assert chosen.value == pytest.approx(moved.mean(), abs=1e-6)
    assert np.any(chosen.offsets)  # a plain probe on spurious data gains by them
    lower = [(own - draws[0]).mean() - 1.5 * (own - draws[0]).std() for own in (*draws, moved)]
    assert lower[-1] == max(lower) > 0
    assert chosen.candidates == 4
    val = experiment.task.val
    predicted = (chosen.model.scores(val.X) + chosen.offsets).argmax(axis=1)
    assert_array_equal(chosen.predict(val.X), chosen.model.classes_[predicted])
    # The chosen setting is fitted once more, on all training rows.
    assert_array_equal(chosen.model.coef_, fitted(method, chosen.parameters, experiment).coef_)


def test_beside_it_stands_what_the_authors_would_have_taken(experiment, judged):
    chosen = choose_model(replace(BY_KEY["probe"], candidates=FEW), experiment, 0).as_published
    evidence = judged["evidence"]
    worst = []
    for scores in judged["scores"]:
        right = (scores.argmax(axis=1) == evidence.y)[:, None] * evidence.groups
        worst.append(min((right[evidence.y == k].sum(axis=0) / evidence.counts[k]).min() for k in (0, 1)))
    assert worst[FEW.index(chosen.parameters)] == pytest.approx(max(worst))
    # What takes no labels was published with one setting.
    assert choose_model(BY_KEY["orth-cali"], experiment, 0).as_published.parameters == {"lam": 1000.0}


def test_without_validation_rows_labels_of_training_rows_choose(experiment, judged):
    bare = with_split(experiment, "val", None)
    run = run_method(replace(BY_KEY["probe"], candidates=FEW), bare, 0)
    assert (judged["found"].validation_rows, judged["found"].trained_rows) == (0, len(bare.task.train.y))
    assert run.candidates == 4
    assert run.validation_value is not None
    assert "no validation rows" in BY_KEY["dfr-validation"].why_not(bare)
    unused = choose_model(replace(BY_KEY["probe"], candidates=FEW), experiment, 0, use_validation=False)
    assert (unused.parameters, unused.value) == ({"C": run.chosen["C"]}, run.validation_value)


@pytest.mark.parametrize("labels", ["none", "target"])
def test_fairerclip_is_tuned_by_its_own_search(experiment, labels):
    method = replace(BY_KEY[f"fairerclip-{labels}"], fixed={"n_features": 50})
    run = run_method(method, experiment, 3)
    model = experiment.tune(FairerCLIP(n_features=50, random_state=3), labels, search_space=SEARCH)
    tuning, test = model.diagnostics_["tuning"], experiment.task.test
    assert run.chosen == {"n_features": 50, **tuning["chosen"]["parameters"]}
    assert run.report == report_of(experiment, model.predict(test.X))


# Training by gradient -------------------------------------------------------------------------------


def test_a_training_by_gradient_gives_the_models_of_its_epochs_within_a_cap_in_steps(experiment):
    pytest.importorskip("torch")
    method = replace(BY_KEY["adapter"], candidates=[{"lr": 1e-2, "epochs": 8}])
    run = run_method(method, experiment, 0, max_steps=10)
    steps = -(-len(experiment.task.train) // 128)
    epochs = -(-10 // steps)
    assert run.candidates == epochs < 8
    assert run.notes == ("stopped: max_steps",)
    assert 1 <= run.chosen["epoch"] <= epochs
    alone = replace(method, candidates=[{"lr": 1e-2, "epochs": run.chosen["epoch"]}])
    last = choose_model(alone, with_split(experiment, "val", None), 0)
    test = experiment.task.test
    codes = (last.model.scores(test.X) + np.array(run.offsets)).argmax(axis=1)
    assert tuple(codes) == run.predicted


def test_a_setting_that_diverges_is_left_out(experiment):
    pytest.importorskip("torch")
    method = replace(BY_KEY["probe-sgd"], candidates=[{"lr": 1e30, "epochs": 3}, {"lr": 1e-2, "epochs": 3}])
    run = run_method(method, experiment, 0)
    assert run.chosen["lr"] == 1e-2
    assert not run.strategy.startswith("given")  # the published setting is the one that diverged
    assert any("training diverged" in note for note in run.notes)
    with pytest.raises(NonFiniteError):
        run_method(replace(method, candidates=method.candidates[:1]), experiment, 0)
