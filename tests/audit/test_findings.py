"""What is said of results: no more than the intervals allow, and the price beside the gain."""

import copy

import pytest

from fairerclip import FairerCLIP
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.auditing.verdict import judge
from fairerclip.data import simulate
from fairerclip.experiment import Experiment


@pytest.fixture(scope="module")
def audited():
    experiment = Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))
    model = FairerCLIP(n_features=200, class_weight="balanced", random_state=0)
    return audit_task(experiment, AuditOptions(permutations=19, seeds=1), model=model)[0]


@pytest.fixture
def results(audited):
    return copy.deepcopy(audited)


def said(results, level=None):
    return [f["text"] for f in judge(results)["findings"] if level in (None, f["level"])]


def change(results, figure, **values):
    next(c for c in results["groups"]["changes"] if c["figure"] == figure).update(values)


def quiet(results):
    """Results in which no group and no prompt changed clearly."""
    for group in results["groups"]["group_changes"]:
        group.update(difference=0.0, low=-0.03, high=0.03, clear=False)
    for query in results["retrieval"]["queries"]:
        query["changes"]["max_skew"].update(difference=0.0, low=-0.1, high=0.1)
        query["clear"] = False
    return results


def test_a_gain_within_its_interval_is_not_called_one(results):
    quiet(results)
    change(results, "worst_group", low=-0.02, high=0.3)
    text = judge(results)["verdict"][1]
    assert "does not clearly change" in text
    assert text in said(results, "caution")
    change(results, "worst_group", low=0.02, high=0.3)
    assert "raises" in judge(results)["verdict"][1]
    change(results, "worst_group", low=-0.3, high=-0.02)
    assert judge(results)["verdict"][1] in said(results, "problem")


def test_groups_that_pay_are_named_when_that_is_clear_for_all_of_them(results):
    groups = results["groups"]["group_changes"]
    for group in groups:
        group.update(difference=-0.03, low=-0.06, high=-0.001, clear=False)
    assert not any("worse off" in text for text in said(results))
    groups[0].update(clear=True)
    (text,) = [text for text in said(results, "problem") if "worse off" in text]
    assert text.startswith("1 of 4 groups is worse off")
    assert groups[0]["name"] in text


def test_groups_that_gain_are_named_though_the_worst_group_does_not(results):
    quiet(results)
    change(results, "worst_group", low=-0.02, high=0.03)
    gaining = results["groups"]["group_changes"][2]
    gaining.update(difference=0.042, low=0.029, high=0.055, clear=True)
    (text,) = [text for text in said(results, "good") if "better off" in text]
    assert text.startswith("1 of 4 groups is better off")
    assert f"{gaining['name']} +4.2 points [+2.9, +5.5]" in text


def test_a_prompt_that_is_more_skewed_is_named_before_what_is_gained(results):
    quiet(results)
    change(results, "worst_group", low=0.1, high=0.3)
    results["retrieval"]["mean"]["changes"]["max_skew"].update(difference=0.045, low=-0.01, high=0.1)
    first, second = results["retrieval"]["queries"]
    first["changes"]["max_skew"].update(difference=0.294, low=0.2, high=0.4)
    first["clear"] = True
    second["changes"]["max_skew"].update(difference=-0.204, low=-0.3, high=-0.1)
    second["clear"] = True
    verdict = judge(results)["verdict"]
    assert f"1 of 2 prompts: “{first['name']}” +0.294 [+0.200, +0.400]" in verdict[1]
    assert "raises the worst group" in verdict[2]
    assert verdict[1] in said(results, "problem")
    assert any(f"“{second['name']}” −0.204 [−0.300, −0.100]" in text for text in said(results, "good"))
    everything = said(results)
    assert everything.index(verdict[1]) < everything.index(verdict[2])


def test_rows_that_were_fitted_or_chosen_on_are_no_evidence(results):
    for split, words in (("train", "it was fitted on"), ("val", "it was chosen on")):
        results["settings"]["split"] = split
        assert words in judge(results)["verdict"][-1]
    results["model"]["source"] = "given"
    assert "too good" not in " ".join(judge(results)["verdict"])


def test_a_model_chosen_on_few_rows_is_said(results):
    results["plane"]["groups"][2].update(n=8, small=True)
    assert any("8: another draw of rows" in text for text in said(results, "caution"))


def test_no_difference_is_not_given_a_direction(results):
    results["groups"]["before"]["intervals"]["eod"] = [0.0, 0.2]
    assert any(text.startswith("Zero-shot shows no clear difference") for text in said(results, "note"))


def test_wordings_are_apart_only_beyond_their_intervals(results):
    worst = [t["worst_group"] for t in results["wording"]["templates"]]
    for k, w in enumerate(worst):
        w.update(value=0.4 + 0.05 * k, low=0.2, high=0.9)
    assert any("no more apart than the intervals allow" in text for text in said(results, "note"))
    worst[0].update(low=0.35, high=0.45)
    worst[-1].update(low=0.5, high=0.9)
    assert any("words alone move it" in text for text in said(results, "caution"))


def test_what_got_worse_in_retrieval_is_in_the_verdict(results):
    results["retrieval"]["mean"]["changes"]["max_skew"].update(difference=0.1, low=0.05, high=0.15)
    assert any("With FairerCLIP MaxSkew" in text for text in judge(results)["verdict"])
    for query in results["retrieval"]["queries"]:
        query["drift"] = None
    assert any("With FairerCLIP MaxSkew" in text for text in said(results, "problem"))


def test_notes_are_passed_on(results):
    assert {"level": "note", "text": "something"} in judge(results, ["something"])["findings"]
