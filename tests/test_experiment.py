from dataclasses import replace

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.data import Split, simulate
from fairerclip.errors import LabelError, ParameterError, PromptError, TaskFileError
from fairerclip.experiment import Experiment
from fairerclip.metrics import group_report
from fairerclip.model.path import effective_strength
from paper import PAPER


@pytest.fixture(scope="module")
def birds():
    return simulate("waterbirds", scale=0.1, width=64)


@pytest.fixture(scope="module")
def gallery():
    return simulate("gallery", scale=0.2, width=64)


SEARCH = {"fits": [{}], "taus": [0.0, 0.5, 0.8], "zero_shots": [0.0, 0.5]}


def small(**params):
    return FairerCLIP(n_features=200, random_state=0, **params)


@pytest.mark.parametrize("labels", ["none", "target", "all"])
def test_a_fit_uses_only_the_labels_it_is_allowed(birds, labels):
    experiment = Experiment.of(birds)
    arguments = experiment.arguments(labels)
    assert (arguments["y"] is None) == (labels == "none")
    assert (arguments["sensitive_features"] is None) == (labels != "all")
    model = experiment.fit(small(class_weight="balanced", max_iter=1), labels)
    assert model.classes_.tolist() == list(birds.class_names)
    assert (model.pseudo_labels_ is None) == (labels != "none")


def test_the_positive_class_is_the_second_prompt_whatever_the_names(birds):
    renamed = replace(birds, class_names=("zebra", "aardvark"))  # sorted, they swap
    predicted = Experiment.of(birds).zero_shot(birds.test)
    expected = group_report(
        birds.test.y, np.array([0, 1])[(predicted == "waterbird").astype(int)], birds.test.sensitive()
    )
    swapped = {"landbird": "zebra", "waterbird": "aardvark"}
    report = Experiment.of(renamed).report(birds.test, np.array([swapped[p] for p in predicted]))
    assert report.eod == pytest.approx(expected.eod)
    assert report.average == pytest.approx(expected.average)


def test_the_train_weighted_average_uses_the_training_groups(birds):
    experiment = Experiment.of(birds)
    report = experiment.report(birds.test, experiment.zero_shot(birds.test))
    y, s = experiment.target(birds.train), experiment.groups(birds.train)
    expected = sum(g.accuracy * np.sum((y == g.y) & (s == g.s)) for g in report.groups) / len(y)
    assert report.train_weighted_average == pytest.approx(expected)


def test_tuning_looks_at_the_validation_split_only(birds):
    experiment = Experiment.of(birds)
    model = experiment.tune(small(), "target", search_space=SEARCH)
    other = replace(birds, splits={k: v for k, v in birds.splits.items() if k != "test"})
    same = Experiment.of(other).tune(small(), "target", search_space=SEARCH)
    assert same.get_params() == model.get_params()
    np.testing.assert_array_equal(same.predict(birds.test.X), model.predict(birds.test.X))
    report = experiment.report(birds.test, model.predict(birds.test.X))
    before = experiment.report(birds.test, experiment.zero_shot(birds.test))
    assert report.worst.accuracy > before.worst.accuracy


def test_skew_falls_for_the_attribute_that_is_mitigated(gallery):
    experiment = Experiment.of(gallery, ["sex"], ["good", "evil"])
    rows = experiment.skews(experiment.fit(small(max_iter=1), "none"), "test")
    assert [r.prompt for r in rows] == ["good", "evil"]
    assert np.mean([r.after for r in rows]) < np.mean([r.before for r in rows])


def test_lambda_eff_is_all_that_two_classes_depend_on(birds):
    experiment = Experiment.of(birds)
    for parameters in (PAPER, {}):
        a = experiment.fit(small(**{**parameters, "tau": 0.7, "tau_z": 0.7}), "target")
        lam = effective_strength(2, a.scaling, 0.7, 0.7)
        assert effective_strength(2, "paper", 0.7, 0.7) is None
        b = experiment.fit(small(**{**parameters, "tau": lam / (1 + lam), "tau_z": 0.0}), "target")
        assert np.mean(a.predict(birds.test.X) == b.predict(birds.test.X)) == 1.0


def test_unknown_names_are_errors_that_list_what_there_is(birds, gallery):
    with pytest.raises(ParameterError, match="landbird"):
        Experiment.of(birds, classes=["penguin", "landbird"])
    with pytest.raises(ParameterError, match="race"):
        Experiment.of(gallery)
    with pytest.raises(ParameterError, match="some"):
        Experiment.of(birds).arguments("some")
    with pytest.raises(LabelError):
        Experiment.of(birds, classes=["landbird"])


def test_what_a_task_lacks_is_said(birds, gallery):
    no_text = replace(birds, text_target=None)
    attribute = replace(birds.sensitive_attribute(), text=None)
    no_prompts = replace(birds, sensitive={attribute.name: attribute})
    few = replace(birds.train, s={attribute.name: np.where(np.arange(len(birds.train)) < 3, -1, 0)})
    no_val = replace(birds, splits={"train": birds.train})
    blind = replace(birds, splits={"train": birds.train, "val": replace(birds.val, s={})})
    unlabelled = replace(birds, splits={"train": replace(birds.train, y=None)})
    lacking = [
        replace(no_prompts, splits={"train": train})
        for train in (few, replace(birds.train, s={}), replace(birds.train, y=None))
    ]
    for error, call in (
        (LabelError, lambda: Experiment.of(gallery, ["sex"]).arguments("target")),
        (PromptError, lambda: Experiment.of(no_text).arguments("none")),
        (PromptError, lambda: Experiment.of(no_text).zero_shot(birds.test)),
        (PromptError, lambda: Experiment.of(no_prompts).arguments("target")),
        *((PromptError, lambda task=task: Experiment.of(task).arguments("none")) for task in lacking),
        (PromptError, lambda: Experiment.of(lacking[0]).arguments("all")),
        (TaskFileError, lambda: Experiment.of(no_val).tune(small(), "target")),
        (LabelError, lambda: Experiment.of(blind).tune(small(), "target")),
        (LabelError, lambda: Experiment.of(gallery, ["sex"]).tune(small(), "none", cv=2)),
        (
            LabelError,
            lambda: Experiment.of(unlabelled).report(unlabelled.train, np.full(len(birds.train), "")),
        ),
    ):
        with pytest.raises(error):
            call()
    Experiment.of(no_prompts).arguments("all")
    assert Experiment.of(no_val).evaluation_split() == "train"
    assert Experiment.of(unlabelled).evaluation_split() is None


def test_rows_without_labels_are_left_out_of_the_report(birds):
    y = birds.test.y.copy()
    y[:40] = -1
    s = {name: np.where(np.arange(len(y)) < 60, -1, values) for name, values in birds.test.s.items()}
    split = replace(birds.test, y=y, s=s)
    experiment = Experiment.of(birds)
    report = experiment.report(split, experiment.zero_shot(split))
    assert report.dropped == 60
    assert report.n == len(y) - 60
    assert len(report.groups) == 4


def test_a_split_whose_labels_are_all_unknown_is_not_reported_on():
    task = simulate("waterbirds", seed=1, scale=0.05, width=48)
    test = task.test
    task.splits["test"] = Split(test.X, np.full(len(test), -1), test.s)
    experiment = Experiment.of(task)
    assert not experiment.is_labelled("test")
    assert experiment.is_labelled("val")
    assert not experiment.is_labelled("nowhere")
    assert experiment.evaluation_split() == "val"


def test_a_handful_of_validation_rows_chooses_nothing_by_itself():
    task = simulate("waterbirds", seed=0)
    assert Experiment.of(task).can_tune()
    val = task.val
    few = replace(val, X=val.X[:5], y=val.y[:5], s={k: v[:5] for k, v in val.s.items()}, ids=None)
    assert not Experiment.of(replace(task, splits={**task.splits, "val": few})).can_tune()
    unlabelled = replace(val, y=np.full(len(val), -1))
    assert not Experiment.of(replace(task, splits={**task.splits, "val": unlabelled})).can_tune()
