"""What is said of results: no more than the intervals allow, and the price beside the gain."""

import pytest

from fairerclip import FairerCLIP
from fairerclip.auditing.findings import find
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.data import simulate
from fairerclip.experiment import Experiment


@pytest.fixture(scope="module")
def results():
    experiment = Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))
    model = FairerCLIP(n_features=200, class_weight="balanced", random_state=0)
    return audit_task(experiment, AuditOptions(permutations=19, seeds=1), model=model)[0]


def said(results, level=None):
    return [found.finding.text for found in find(results) if level in (None, found.level)]


def verdict(results):
    return recommend(results).sentences


def but(part, path, **values):
    """A copy of results with other values at a place, such as "plane.groups.2"; "*" is every place."""
    key, _, rest = path.partition(".")
    if not path:
        return part.model_copy(update=values)
    if isinstance(part, tuple):
        return tuple(
            but(item, rest, **values) if key in ("*", str(i)) else item for i, item in enumerate(part)
        )
    return part.model_copy(update={key: but(getattr(part, key), rest, **values)})


def change(results, figure, **values):
    place = [found.figure for found in results.groups.changes].index(figure)
    return but(results, f"groups.changes.{place}", **values)


def quiet(results):
    """Results in which no group and no prompt changed clearly."""
    results = but(results, "groups.group_changes.*", difference=0.0, low=-0.03, high=0.03, clear=False)
    results = but(results, "retrieval.queries.*.changes.max_skew", difference=0.0, low=-0.1, high=0.1)
    return but(results, "retrieval.queries.*", clear=False)


def test_a_gain_within_its_interval_is_not_called_one(results):
    unclear = change(quiet(results), "worst_group", low=-0.02, high=0.3)
    text = verdict(unclear)[1]
    assert "does not clearly change" in text
    assert text in said(unclear, "caution")
    assert "raises" in verdict(change(quiet(results), "worst_group", low=0.02, high=0.3))[1]
    worse = change(quiet(results), "worst_group", low=-0.3, high=-0.02)
    assert verdict(worse)[1] in said(worse, "problem")
    assert recommend(worse).change.level == "problem"


def test_groups_that_pay_are_named_when_that_is_clear_for_all_of_them(results):
    paying = {"difference": -0.03, "low": -0.06, "high": -0.001}
    results = but(results, "groups.group_changes.*", **paying, clear=False)
    assert not any("worse off" in text for text in said(results))
    results = but(results, "groups.group_changes.0", clear=True)
    (text,) = [text for text in said(results, "problem") if "worse off" in text]
    assert text.startswith("1 of 4 groups is worse off")
    assert results.groups.group_changes[0].name in text


def test_groups_that_gain_are_named_though_the_worst_group_does_not(results):
    results = change(quiet(results), "worst_group", low=-0.02, high=0.03)
    results = but(results, "groups.group_changes.2", difference=0.042, low=0.029, high=0.055, clear=True)
    (text,) = [text for text in said(results, "good") if "better off" in text]
    assert text.startswith("1 of 4 groups is better off")
    assert f"{results.groups.group_changes[2].name} +4.2 points [+2.9, +5.5]" in text


def test_a_prompt_that_is_more_skewed_is_named_before_what_is_gained(results):
    results = change(quiet(results), "worst_group", low=0.1, high=0.3)
    results = but(results, "retrieval.mean.changes.max_skew", difference=0.045, low=-0.01, high=0.1)
    for place, ends in ((0, (0.294, 0.2, 0.4)), (1, (-0.204, -0.3, -0.1))):
        moved = dict(zip(("difference", "low", "high"), ends, strict=True))
        results = but(results, f"retrieval.queries.{place}.changes.max_skew", **moved)
        results = but(results, f"retrieval.queries.{place}", clear=True)
    first, second = results.retrieval.queries
    sentences = verdict(results)
    assert f"1 of 2 prompts: “{first.name}” +0.294 [+0.200, +0.400]" in sentences[1]
    assert "raises the accuracy of the worst group" in sentences[2]
    assert sentences[1] in said(results, "problem")
    assert any(f"“{second.name}” −0.204 [−0.300, −0.100]" in text for text in said(results, "good"))
    everything = said(results)
    assert everything.index(sentences[1]) < everything.index(sentences[2])


def test_rows_that_were_fitted_or_chosen_on_are_no_evidence(results):
    for split, words in (("train", "it was fitted on"), ("val", "it was chosen on")):
        results = but(results, "settings", split=split)
        assert words in verdict(results)[-1]
    assert "too optimistic" not in " ".join(verdict(but(results, "model", source="given")))


def test_a_model_chosen_on_few_rows_is_said(results):
    few = but(results, "plane.groups.2", n=8, small=True)
    assert any("n=8: other rows might" in text for text in said(few, "caution"))


def test_no_difference_is_not_given_a_direction(results):
    intervals = {**results.groups.before.intervals, "eod": (0.0, 0.2)}
    results = but(results, "groups.before", intervals=intervals)
    assert any(text.startswith("Zero-shot shows no clear difference") for text in said(results, "note"))


def test_wordings_are_apart_only_beyond_their_intervals(results):
    for k in range(len(results.wording.templates)):
        near = {"value": 0.4 + 0.05 * k, "low": 0.2, "high": 0.9}
        results = but(results, f"wording.templates.{k}.worst_group", **near)
    assert any("the intervals overlap" in text for text in said(results, "note"))
    results = but(results, "wording.templates.0.worst_group", low=0.35, high=0.45)
    results = but(results, f"wording.templates.{k}.worst_group", low=0.5, high=0.9)
    assert any("the wording alone changes it" in text for text in said(results, "caution"))


def test_what_got_worse_in_retrieval_is_in_the_verdict(results):
    results = but(results, "retrieval.mean.changes.max_skew", difference=0.1, low=0.05, high=0.15)
    assert any("With FairerCLIP, MaxSkew" in text for text in verdict(results))
    without = but(results, "retrieval.queries.*", drift=None)
    assert any("With FairerCLIP, MaxSkew" in text for text in said(without, "problem"))


def test_the_verdict_and_findings_of_an_audit_are_those_of_its_sections(results):
    assert results.verdict == verdict(results)
    assert [finding.text for finding in results.findings] == said(results)
    bare = but(
        results, "", model=None, groups=None, retrieval=None, probes=None, dependence=None, wording=None
    )
    assert recommend(bare).sentences[:2] == (
        "There are no labelled rows to judge by.",
        "No mitigated model was audited: `--mitigate` fits one, `--after MODEL` or `model=` takes a fitted one.",
    )
