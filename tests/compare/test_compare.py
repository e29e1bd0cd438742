"""Methods on the same rows, tuned alike: what they may see, what is chosen, files, failures and resuming."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.compare import study
from fairerclip.compare.methods import BUDGET, GRADIENT_FITS, METHODS, chosen_methods, make
from fairerclip.compare.run import fit_arguments, run_method
from fairerclip.compare.study import CompareOptions, compare
from fairerclip.data import Split, simulate
from fairerclip.errors import LabelError, ParameterError
from fairerclip.metrics import shrunken_worst_group
from fairerclip.tuning import search
from fairerclip.workflow import Experiment

BY_KEY = {method.key: method for method in METHODS}
FAST = ("zero-shot", "orth-proj", "probe")


@pytest.fixture(scope="module")
def experiment():
    return Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))


@pytest.fixture(scope="module")
def results(experiment):
    return compare(experiment, CompareOptions(methods=FAST, seeds=2, jobs=2))


def test_no_method_tries_more_than_its_share():
    for method in METHODS:
        assert len(method.candidates) <= (GRADIENT_FITS if method.gradient else BUDGET), method.key
    assert len({method.key for method in METHODS}) == len(METHODS)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
def test_every_method_sees_the_labels_it_may_and_no_more(method, experiment):
    arguments = fit_arguments(method, experiment)
    assert (arguments["y"] is None) == (method.labels == "none")
    assert (arguments.get("sensitive_features") is not None) == (method.labels == "all")
    if not method.needs_sensitive:
        assert arguments.get("sensitive_text") is None
    for parameters in method.candidates:
        model = make(method, parameters, 5, 7.0)
        given = model.get_params()
        recipe = given.get("recipe") or {}
        for name, value in {**method.fixed, **parameters}.items():
            assert (recipe if name in recipe else given)[name] == value
        if method.gradient:
            assert (recipe or given)["max_seconds"] == 7.0


def test_rows_hold_what_the_models_do(results, experiment):
    rows = {row["method"]: row for row in results["rows"]}
    assert list(rows) == list(FAST)
    test = experiment.task.test
    report = experiment.report(test, experiment.zero_shot(test))
    zero_shot = rows["zero-shot"]["figures"]
    assert zero_shot["average"]["mean"] == pytest.approx(report.average)
    assert zero_shot["worst_group"]["mean"] == pytest.approx(report.worst.accuracy)
    assert (zero_shot["worst_group"]["low"], zero_shot["worst_group"]["high"]) == pytest.approx(
        report.intervals["worst_group"]
    )
    assert len(rows["zero-shot"]["runs"]) == 1  # no seed changes it
    assert rows["probe"]["parameters"] == 2 * 48 + 2
    assert rows["probe"]["seconds"] > 0
    assert json.loads(json.dumps(results, allow_nan=False)) == results


def test_the_setting_is_chosen_on_validation_rows(experiment):
    method = BY_KEY["probe"]
    run = run_method(method, experiment, 0)
    val, scores = experiment.task.val, {}
    for parameters in method.candidates:
        model = make(method, parameters, 0)
        arguments = fit_arguments(method, experiment)
        model.fit(arguments.pop("X"), arguments.pop("y"), **arguments)
        report = experiment.report(val, model.predict(val.X))
        hits = np.array([[g.correct for g in report.groups]])
        counts = np.array([[g.n for g in report.groups]])
        scores[parameters["C"]] = float(shrunken_worst_group(hits, counts))
    assert run["validation_score"] == pytest.approx(max(scores.values()))
    assert scores[run["chosen"]["C"]] == pytest.approx(max(scores.values()))
    assert run["settings"] == len(method.candidates)


def test_test_rows_do_not_influence_the_choice(experiment):
    task = experiment.task
    other = Experiment.of(
        replace(task, splits={**task.splits, "test": Split(-task.test.X, 1 - task.test.y, task.test.s)})
    )
    for key in ("probe-group", "fairerclip-target"):
        method = replace(BY_KEY[key], candidates=BY_KEY[key].candidates[:3])
        assert run_method(method, experiment, 0)["chosen"] == run_method(method, other, 0)["chosen"]


def test_without_validation_the_first_setting_is_taken(experiment):
    task = experiment.task
    bare = Experiment.of(replace(task, splits={k: v for k, v in task.splits.items() if k != "val"}))
    run = run_method(BY_KEY["probe"], bare, 0)
    assert run["settings"] == 1
    assert run["chosen"] == dict(BY_KEY["probe"].candidates[0])
    assert run["validation_score"] is None


@pytest.mark.parametrize("labels", ["none", "target", "all"])
def test_fairerclip_is_tuned_by_its_own_search(experiment, labels):
    method = replace(BY_KEY[f"fairerclip-{labels}"], fixed={"n_features": 100})
    run = run_method(method, experiment, 3)
    model = experiment.tune(FairerCLIP(n_features=100, random_state=3), labels)
    tuning, test = model.diagnostics_["tuning"], experiment.task.test
    assert run["chosen"] == {"n_features": 100, **tuning["chosen"]["parameters"]}
    assert run["report"] == experiment.report(test, model.predict(test.X)).as_dict()
    assert run["settings"] == tuning["fits"] <= BUDGET  # all points of one factorisation are one fit
    assert run["seconds"] < run["seconds_in_all"] / 2  # of one fit, not of the search
    json.dumps(run, allow_nan=False)


def test_fairerclip_without_validation_rows_has_its_defaults(experiment):
    task = experiment.task
    bare = Experiment.of(replace(task, splits={k: v for k, v in task.splits.items() if k != "val"}))
    run = run_method(BY_KEY["fairerclip-target"], bare, 0)
    model = bare.fit(FairerCLIP(random_state=0), "target")
    assert run["report"] == bare.report(task.test, model.predict(task.test.X)).as_dict()
    assert (run["settings"], run["chosen"]) == (1, {})


def test_a_kept_run_depends_on_what_was_searched(monkeypatch):
    methods = [BY_KEY[key] for key in ("fairerclip-target", "probe")]
    before = [study._key(method, 0, "data", CompareOptions()) for method in methods]
    assert json.loads(json.dumps(before)) == before  # as it is compared with a file
    monkeypatch.setattr(search, "FITS", search.FITS[:2])
    after = [study._key(method, 0, "data", CompareOptions()) for method in methods]
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True]


def test_a_gradient_method_runs_within_its_cap(experiment):
    pytest.importorskip("torch")
    method = replace(BY_KEY["adapter"], candidates=[{"lr": 1e-2, "epochs": 3}])
    run = run_method(method, experiment, 0, max_seconds=30)
    assert run["report"]["average"] > 0.5


def test_methods_that_the_task_does_not_allow_are_left_out(experiment):
    task = experiment.task
    attribute = next(iter(task.sensitive.values()))
    silent = Experiment.of(replace(task, sensitive={attribute.name: replace(attribute, text=None)}))
    found = compare(silent, CompareOptions(methods=("zero-shot", "orth-proj"), seeds=1, jobs=1))
    assert [row["method"] for row in found["rows"]] == ["zero-shot"]
    assert "no prompts to read" in found["left_out"]["orth-proj"]
    unlabelled = Experiment.of(
        replace(task, splits={**task.splits, "train": Split(task.train.X, None, task.train.s)})
    )
    with pytest.raises(ParameterError, match="allows none of these methods"):
        compare(unlabelled, CompareOptions(methods=("probe",), seeds=1))
    with pytest.raises(LabelError, match="no target labels"):
        run_method(BY_KEY["probe"], unlabelled, 0)


def test_one_failing_method_does_not_stop_the_rest(experiment, monkeypatch):
    broken = replace(BY_KEY["probe"], candidates=[{"C": -1.0}])
    monkeypatch.setattr(study, "chosen_methods", lambda keys: [broken, BY_KEY["zero-shot"]])
    found = compare(experiment, CompareOptions(seeds=1, jobs=1))
    assert found["rows"][0]["figures"] is None
    assert found["rows"][0]["errors"][0].startswith("ParameterError: C must be a positive number")
    assert found["rows"][1]["figures"] is not None


def test_a_comparison_is_taken_up_again(experiment, tmp_path, monkeypatch):
    options = CompareOptions(methods=("zero-shot", "orth-proj"), seeds=1, jobs=1)
    first = compare(experiment, options, work=tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"zero-shot-0.json", "orth-proj-0.json"}
    (tmp_path / "orth-proj-0.json").write_text("{ damaged")
    seen = []
    run_calls = study.run_calls
    monkeypatch.setattr(
        study,
        "run_calls",
        lambda calls, *rest, **options: (
            seen.extend(call.arguments["method"].key for call in calls) or run_calls(calls, *rest, **options)
        ),
    )
    again = compare(experiment, options, work=tmp_path)
    assert seen == ["orth-proj"]
    for old, new in zip(first["rows"], again["rows"], strict=True):
        assert old["figures"] == new["figures"]
    other = Experiment.of(simulate("waterbirds", seed=2, scale=0.1, width=48))
    compare(other, options, work=tmp_path)  # other data: nothing of it is taken over
    assert seen == ["orth-proj", "zero-shot", "orth-proj"]


def test_bad_options_are_refused(experiment):
    with pytest.raises(ParameterError, match="no method 'magic'"):
        chosen_methods(["magic"])
    with pytest.raises(ParameterError, match="seeds"):
        compare(experiment, CompareOptions(seeds=0))
    with pytest.raises(ParameterError, match="max_seconds"):
        compare(experiment, CompareOptions(max_seconds=0))
