"""What is said of results: no more than the intervals allow, and the price beside the gain."""

import pytest

from fairerclip import FairerCLIP
from fairerclip.auditing.advice import GIVE_LABELS, MITIGATE, Evaluated, rows_to_collect
from fairerclip.auditing.findings import find
from fairerclip.auditing.group_results import MeasuredChange
from fairerclip.auditing.model_facts import ModelFacts
from fairerclip.auditing.ranking_answer import NO_SKEW, Rankings, rankings_answer
from fairerclip.auditing.recommendation import NO_STATE, recommend
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


def changed(results, topic="change"):
    (found,) = [found.finding for found in find(results) if found.topic == topic]
    return found


def test_a_gain_within_its_interval_is_not_called_one(results):
    unclear = changed(change(quiet(results), "worst_group", low=-0.02, high=0.3))
    assert (unclear.level, "does not clearly change" in unclear.text) == ("caution", True)
    better = changed(change(quiet(results), "worst_group", low=0.02, high=0.3))
    assert (better.level, "raises" in better.text) == ("good", True)
    worse = changed(change(quiet(results), "worst_group", low=-0.3, high=-0.02))
    assert (worse.level, "lowers" in worse.text) == ("problem", True)


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
    harm = changed(results, "prompt harm")
    assert harm.level == "problem"
    assert f"1 of 2 prompts: “{first.name}” +0.294 [+0.200, +0.400]" in harm.text
    assert any(f"“{second.name}” −0.204 [−0.300, −0.100]" in text for text in said(results, "good"))
    everything = said(results)
    assert everything.index(harm.text) < everything.index(changed(results).text)


def test_rows_that_were_fitted_or_chosen_on_are_no_evidence(results):
    for split, words in (("train", "it was fitted on"), ("val", "it was chosen on")):
        results = but(results, "settings", split=split)
        assert any(words in text for text in said(results, "caution"))
    given = but(results, "model", source="given")
    assert "its figures are too optimistic." not in " ".join(said(given, "caution"))


def test_what_got_worse_in_retrieval_is_a_problem(results):
    results = but(results, "retrieval.mean.changes.max_skew", difference=0.1, low=0.05, high=0.15)
    without = but(results, "retrieval.queries.*", drift=None)
    for version in (results, without):
        assert any("With FairerCLIP, MaxSkew" in text for text in said(version, "problem"))


def test_the_verdict_and_findings_of_an_audit_are_those_of_its_sections(results):
    answer = recommend(results)
    assert results.recommendation == answer
    assert results.verdict == (answer.sentence, answer.advice)
    assert [finding.text for finding in results.findings] == said(results)


# The answer: every case has its action, and names who gains and who loses


def test_a_clear_gain_is_used_and_its_price_is_named(results):
    better = change(quiet(results), "worst_group", before=0.5, after=0.7, low=0.1, high=0.3)
    better = change(better, "average", difference=0.0, low=-0.01, high=0.01)
    answer = recommend(better)
    assert (answer.action, answer.advice) == ("use", "Use the mitigated model, FairerCLIP.")
    assert "not clearly better or worse for any group" in answer.sentence
    assert "goes from 50.0 % right answers to 70.0 %" in answer.sentence
    assert "chance" not in answer.sentence
    names = [group.name for group in better.groups.group_changes]
    paid = but(better, "groups.group_changes.0", difference=0.2, low=0.1, high=0.3, clear=True)
    paid = but(paid, "groups.group_changes.1", difference=-0.04, low=-0.06, high=-0.02, clear=True)
    paid = but(paid, "groups.group_changes.2", difference=-0.08, low=-0.1, high=-0.02, clear=True)
    paid = change(paid, "average", difference=-0.02, low=-0.03, high=-0.01)
    answer = recommend(paid)
    assert (answer.action, answer.better, answer.worse) == ("use", (names[0],), (names[2], names[1]))
    assert (
        f"clearly better for {names[0]} (+20.0 points), and worse for {names[2]} (−8.0 points)"
        in answer.sentence
    )
    assert f", if lower accuracy for {names[2]} and {names[1]} can be accepted." in answer.advice
    assert answer.advice.endswith("The average falls by 2.0 points.")


def test_rows_seen_before_are_measured_again_before_use(results):
    better = change(quiet(results), "worst_group", low=0.1, high=0.3)
    for split, words in (("train", "it was fitted on these"), ("val", "it was chosen on these")):
        answer = recommend(but(better, "settings", split=split))
        assert answer.action == "measure"
        assert words in answer.advice
    given = but(but(better, "settings", split="train"), "model", source="given")
    assert recommend(given).action == "use"


def test_a_clear_loss_keeps_zero_shot(results):
    answer = recommend(change(quiet(results), "worst_group", low=-0.3, high=-0.02))
    assert (answer.action, answer.group, answer.rows) == ("keep", None, None)
    assert "clearly less accurate for its worst group" in answer.advice


def test_an_unclear_change_of_a_small_group_asks_for_rows(results):
    worst = results.groups.before.worst
    place = [group.name for group in results.groups.group_changes].index(worst.name)
    unclear = change(quiet(results), "worst_group", low=-0.1, high=0.3)
    wide = but(unclear, f"groups.group_changes.{place}", n=20, low=-0.1, high=0.2)
    answer = recommend(wide)
    assert (answer.action, answer.group, answer.rows) == ("collect", worst.name, 160)
    assert f"collect about 160 more test rows of {worst.name} (now 20)" in answer.advice
    assert "which may be chance" in answer.sentence
    narrow = but(unclear, f"groups.group_changes.{place}", n=2000, low=-0.01, high=0.02)
    answer = recommend(narrow)
    assert (answer.action, answer.advice) == ("keep", "Keep zero-shot: no group clearly gains.")
    other = (place + 1) % 4
    lost = but(narrow, f"groups.group_changes.{other}", difference=-0.1, low=-0.2, high=-0.05, clear=True)
    assert recommend(lost).advice.endswith(f", and {lost.groups.group_changes[other].name} clearly loses.")


def test_the_rows_to_collect_give_the_wanted_interval():
    for n, width in ((10, 0.4), (37, 0.11), (1000, 0.06), (5, 0.9)):
        rows = rows_to_collect(n, -width, width)
        # Both widths are of proportions, which fall with the square root of the rows; two digits are kept.
        assert width * (n / (n + rows)) ** 0.5 <= 0.05 + 1e-12
        assert width * (n / (n + 0.9 * rows)) ** 0.5 > 0.05
    assert rows_to_collect(100, -0.05, 0.05) == rows_to_collect(100, None, 0.5) == 0


def test_both_worse_than_guessing_is_neither(results):
    intervals = {**results.groups.before.intervals, "worst_group": (0.1, 0.3)}
    worse = but(but(results, "groups.before", intervals=intervals), "groups.after", intervals=intervals)
    answer = recommend(worse)
    assert answer.action == "neither"
    assert "less often than guessing (50.0 %)" in answer.advice

    other = but(worse, "groups.after", worst=worse.groups.after.groups[0])
    first, last = other.groups.before.worst.name, other.groups.after.worst.name
    assert first != last
    assert f"zero-shot for {first} and FairerCLIP for {last} are right less often" in recommend(other).advice


def test_the_group_that_is_lowest_afterwards_may_need_the_rows(results):
    """The first worst group gains clearly; rows of it would not settle whether the new worst group does."""
    groups, first = results.groups.group_changes, results.groups.before.worst
    last = next(group for group in results.groups.after.groups if group.name != first.name)
    place = {group.name: i for i, group in enumerate(groups)}
    unclear = change(quiet(results), "worst_group", low=-0.1, high=0.3)
    unclear = but(unclear, "groups.after", worst=last)
    unclear = but(
        unclear, f"groups.group_changes.{place[first.name]}", difference=0.4, low=0.35, high=0.45, clear=True
    )
    unclear = but(unclear, f"groups.group_changes.{place[last.name]}", n=20, low=-0.1, high=0.2)
    answer = recommend(unclear)
    assert (answer.action, answer.group, answer.rows) == ("collect", last.name, 160)


def test_an_equal_worst_group_is_not_called_chance(results):
    equal = change(quiet(results), "worst_group", before=0.5, after=0.5, difference=0.0, low=-0.1, high=0.1)
    answer = recommend(equal)
    assert "has 50.0 % right answers with both." in answer.sentence
    assert "chance" not in answer.sentence


def test_files_that_lack_figures_have_an_answer(results):
    for stage in ("before", "after"):
        assert recommend(but(results, f"groups.{stage}", intervals={})).action != "neither"
    untested = recommend(but(results, "groups", group_changes=None))
    assert untested.action == "compare"  # not "clearly better or worse for no group"
    nameless = but(but(results, "settings", split=None), "groups", after=None)
    assert "of the rows, and for" in recommend(but(nameless, "", model=None)).sentence
    unknown = but(results, "", groups=None, model=None)
    unknown = but(unknown, "retrieval.mean", after=None, changes=None)
    unknown = but(unknown, "retrieval.mean.before.max_skew", value=None, low=None, high=None)
    answer = recommend(unknown)
    assert (answer.action, answer.sentence) == ("label", NO_SKEW)  # not "0.0 % too often"


def test_free_queries_are_judged_by_their_number():
    """Their intervals are over queries, so that more rows would not narrow them."""
    evaluated = Evaluated(ModelFacts("EmbeddingMitigator", None, None), False, "test", None)

    def advice(total, low, high):
        delta = MeasuredChange(before=0.3, after=0.2, difference=-0.1, low=low, high=high)
        return rankings_answer(evaluated, Rankings("query", total, 10, 40, (0.3, 0.2), delta))

    few = advice(1, -0.1, -0.1)
    assert (few.action, few.rows) == ("collect", None)
    assert few.advice.endswith("ask at least 5 more queries: 1 is too few to judge by.")
    assert advice(5, -0.2, -0.1).advice.endswith("ask at least 1 more query: 5 are too few to judge by.")
    unclear = advice(10, -0.3, 0.1)
    assert (unclear.action, unclear.rows) == ("collect", None)
    assert "ask about 150 more queries" in unclear.advice
    assert advice(10, -0.2, -0.1).action == "use"


def test_more_rows_of_a_ranking_need_more_results():
    """At a fixed k the interval would hardly narrow."""
    evaluated = Evaluated(ModelFacts("FairerCLIP", None, None), False, "test", None)
    delta = MeasuredChange(before=0.3, after=0.2, difference=-0.1, low=-0.2, high=0.0)
    answer = rankings_answer(evaluated, Rankings("prompt", 2, 1000, 5000, (0.3, 0.2), delta))
    assert answer.rows == 15000
    assert "collect about 15000 more rows (now 5000) and compare the first 4000 results" in answer.advice


def test_without_a_model_a_clear_gap_asks_for_one(results):
    alone = but(but(results, "groups", after=None, changes=None, group_changes=None), "", model=None)
    for gap, action in (((0.1, 0.3), "mitigate"), ((0.0, 0.01), "keep")):
        intervals = {**alone.groups.before.intervals, "gap": gap}
        narrow = but(alone, "groups.before.worst", low=0.40, high=0.44)
        assert recommend(but(narrow, "groups.before", intervals=intervals)).action == action
    wide = but(
        but(alone, "groups.before", intervals=intervals), "groups.before.worst", n=50, low=0.3, high=0.6
    )
    answer = recommend(wide)
    assert (answer.action, answer.rows) == ("collect", 400)
    assert "to know its accuracy to ±5 points" in answer.advice


def test_a_kept_zero_shot_and_a_model_alone_have_their_answers(results):
    same = but(results, "groups.group_changes.*", clear=False)
    kept = recommend(but(same, "model", method="zero-shot"))
    assert (kept.action, kept.advice) == ("keep", "Keep zero-shot.")
    assert kept.sentence.startswith("Zero-shot is kept, because nothing was clearly better.")
    untuned = recommend(but(same, "model", method="zero-shot", tuning=None))
    assert untuned.sentence.startswith("By its parameters the model is zero-shot. It is right for")
    other_prompts = recommend(but(results, "model", method="zero-shot", source="given"))
    assert other_prompts.sentence.startswith("The kept zero-shot classifier is clearly better for")
    alone = recommend(but(results, "groups", before=None, changes=None, group_changes=None))
    assert alone.action == "compare"
    assert alone.sentence.startswith("FairerCLIP is right for")


def test_rankings_alone_are_answered_by_prompt(results):
    rankings = but(results, "", groups=None)
    name = rankings.retrieval.queries[0].name
    rankings = but(rankings, "retrieval.queries.*", clear=False)
    for ends, action in (
        ((-0.2, -0.3, -0.1), "use"),
        ((0.2, 0.1, 0.3), "keep"),
        ((0.0, -0.3, 0.3), "collect"),
        ((0.0, -0.01, 0.01), "keep"),
    ):
        moved = dict(zip(("difference", "low", "high"), ends, strict=True))
        found = but(rankings, "retrieval.mean.changes.max_skew", before=0.1, after=0.0, **moved)
        answer = recommend(found)
        assert answer.action == action, ends
        assert "appears 0.0 % too often instead of 10.5 %" in answer.sentence
    far = but(found, "retrieval.mean.changes.max_skew", difference=0.0, low=-0.6, high=0.6)
    assert recommend(far).advice.endswith("rows are far too few to measure a change.")
    clear = but(found, "retrieval.queries.0", clear=True)
    clear = but(clear, "retrieval.queries.0.changes.max_skew", difference=0.2, low=0.1, high=0.3)
    answer = recommend(clear)
    assert (answer.better, answer.worse) == ((), (name,))
    assert f"; 0 prompts clearly more even, “{name}” less even; " in answer.sentence
    one = but(clear, "retrieval.queries.0.changes.max_skew", difference=-0.2, low=-0.3, high=-0.1)
    assert "; 1 prompt clearly more even, none less even; " in recommend(one).sentence
    untested = but(clear, "retrieval.queries.*", clear=None)
    assert "even" not in recommend(untested).sentence  # a file may not say which prompts changed clearly


def test_without_labels_the_answer_asks_for_them(results):
    bare = but(
        results, "", model=None, groups=None, retrieval=None, probes=None, dependence=None, wording=None
    )
    answer = recommend(bare)
    assert (answer.action, answer.sentence, answer.advice) == ("label", NO_STATE, GIVE_LABELS)
    prompts = but(bare, "", retrieval=but(results.retrieval, "mean", after=None, changes=None))
    skew = but(prompts, "retrieval.mean.before.max_skew", value=0.3, low=0.2, high=0.4)
    assert (recommend(skew).action, recommend(skew).advice) == ("mitigate", MITIGATE)
    even = but(prompts, "retrieval.mean.before.max_skew", value=0.03, low=0.0, high=0.1)
    assert recommend(even).action == "keep"
