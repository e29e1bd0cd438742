"""What is said of results: no more than the intervals allow, and the price beside the gain."""

from contextlib import contextmanager

import pytest

from fairerclip import FairerCLIP
from fairerclip.auditing.advice import Evaluated, rows_to_collect
from fairerclip.auditing.findings import find
from fairerclip.auditing.group_results import MeasuredChange
from fairerclip.auditing.model_facts import ModelFacts
from fairerclip.auditing.ranking_answer import NO_SKEW, Rankings, rankings_answer
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.data import simulate
from fairerclip.experiment import Experiment
from light import fewer_fits, lighter_audits


@pytest.fixture(scope="module")
def results():
    experiment = Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))
    model = FairerCLIP(n_features=100, class_weight="balanced", random_state=0)
    with contextmanager(lighter_audits)(), contextmanager(fewer_fits)():
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


def test_groups_are_named_as_better_or_worse_off_where_that_is_clear_for_all_of_them(results):
    results = but(quiet(results), "groups.group_changes.*", difference=-0.03, low=-0.06, high=-0.001)
    assert not any("worse off" in text for text in said(results))
    results = but(results, "groups.group_changes.0", clear=True)
    results = but(results, "groups.group_changes.2", difference=0.042, low=0.029, high=0.055, clear=True)
    names = [group.name for group in results.groups.group_changes]
    (text,) = [text for text in said(results, "problem") if "worse off" in text]
    assert f"{names[0]} −3.0 points [−6.0, −0.1]" in text
    (text,) = [text for text in said(results, "good") if "better off" in text]
    assert f"{names[2]} +4.2 points [+2.9, +5.5]" in text


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


def test_a_mean_skew_that_clearly_rises_is_a_problem(results):
    for low, high, level in ((0.05, 0.15, "problem"), (-0.15, -0.05, "good"), (-0.05, 0.15, "note")):
        moved = {"difference": (low + high) / 2, "low": low, "high": high}
        found = but(results, "retrieval.mean.changes.max_skew", **moved)
        assert sum("With FairerCLIP, MaxSkew" in text for text in said(found, level)) == 1


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
    assert (answer.action, answer.better, answer.worse) == ("use", (), ())
    assert "goes from 50.0 % right answers to 70.0 %" in answer.sentence
    names = [group.name for group in better.groups.group_changes]
    for place, moved in ((0, (0.2, 0.1, 0.3)), (1, (-0.04, -0.06, -0.02)), (2, (-0.08, -0.1, -0.02))):
        ends = dict(zip(("difference", "low", "high"), moved, strict=True))
        better = but(better, f"groups.group_changes.{place}", **ends, clear=True)
    answer = recommend(change(better, "average", difference=-0.02, low=-0.03, high=-0.01))
    assert (answer.action, answer.better, answer.worse) == ("use", (names[0],), (names[2], names[1]))
    assert f"lower accuracy for {names[2]} and {names[1]}" in answer.advice
    assert "The average falls by 2.0 points" in answer.advice


def test_rows_seen_before_are_measured_again_before_use(results):
    better = change(quiet(results), "worst_group", low=0.1, high=0.3)
    for split in ("train", "val"):
        assert recommend(but(better, "settings", split=split)).action == "measure"
    given = but(but(better, "settings", split="train"), "model", source="given")
    assert recommend(given).action == "use"


def test_a_clear_loss_keeps_zero_shot(results):
    answer = recommend(change(quiet(results), "worst_group", low=-0.3, high=-0.02))
    assert (answer.action, answer.group, answer.rows) == ("keep", None, None)


def test_an_unclear_change_of_a_small_group_asks_for_rows(results):
    worst = results.groups.before.worst
    place = [group.name for group in results.groups.group_changes].index(worst.name)
    unclear = change(quiet(results), "worst_group", low=-0.1, high=0.3)
    wide = but(unclear, f"groups.group_changes.{place}", n=20, low=-0.1, high=0.2)
    answer = recommend(wide)
    assert (answer.action, answer.group, answer.rows) == ("collect", worst.name, 160)
    assert "which may be chance" in answer.sentence
    narrow = but(unclear, f"groups.group_changes.{place}", n=2000, low=-0.01, high=0.02)
    assert recommend(narrow).action == "keep"
    same = change(narrow, "worst_group", before=0.5, after=0.5, difference=0.0, low=-0.1, high=0.1)
    assert "chance" not in recommend(same).sentence


def test_the_group_that_is_lowest_afterwards_may_need_the_rows(results):
    """The first worst group gains clearly; rows of it would not settle whether the new worst group does."""
    groups, first = results.groups.group_changes, results.groups.before.worst
    last = next(group for group in results.groups.after.groups if group.name != first.name)
    place = {group.name: f"groups.group_changes.{i}" for i, group in enumerate(groups)}
    unclear = change(quiet(results), "worst_group", low=-0.1, high=0.3)
    unclear = but(unclear, "groups.after", worst=last)
    unclear = but(unclear, place[first.name], difference=0.4, low=0.35, high=0.45, clear=True)
    unclear = but(unclear, place[last.name], n=20, low=-0.1, high=0.2)
    answer = recommend(unclear)
    assert (answer.action, answer.group, answer.rows) == ("collect", last.name, 160)


def test_the_rows_to_collect_give_the_wanted_interval():
    for n, width in ((10, 0.4), (37, 0.11), (1000, 0.06), (5, 0.9)):
        rows = rows_to_collect(n, -width, width)
        # Both widths are of proportions, which fall with the square root of the rows; two digits are kept.
        assert width * (n / (n + rows)) ** 0.5 <= 0.05 + 1e-12
        assert width * (n / (n + 0.9 * rows)) ** 0.5 > 0.05
    assert rows_to_collect(100, -0.05, 0.05) == rows_to_collect(100, None, 0.5) == 0


def test_both_worse_than_guessing_is_neither(results):
    intervals = {**results.groups.before.intervals, "worst_group": (0.1, 0.3)}
    one = but(results, "groups.before", intervals=intervals)
    assert recommend(one).action != "neither"
    assert recommend(but(one, "groups.after", intervals=intervals)).action == "neither"


def test_files_that_lack_figures_have_an_answer(results):
    for stage in ("before", "after"):
        assert recommend(but(results, f"groups.{stage}", intervals={})).action != "neither"
    untested = recommend(but(results, "groups", group_changes=None))
    assert untested.action == "compare"  # not "clearly better or worse for no group"
    alone = recommend(but(results, "groups", before=None, changes=None, group_changes=None))
    assert alone.action == "compare"
    unknown = but(results, "", groups=None, model=None)
    unknown = but(unknown, "retrieval.mean", after=None, changes=None)
    unknown = but(unknown, "retrieval.mean.before.max_skew", value=None, low=None, high=None)
    answer = recommend(unknown)
    assert (answer.action, answer.sentence) == ("label", NO_SKEW)  # not "0.0 % too often"


def rankings_advice(unit, total, rows, low, high):
    evaluated = Evaluated(ModelFacts("FairerCLIP", None, None), False, "test", None)
    delta = MeasuredChange(before=0.3, after=0.2, difference=-0.1, low=low, high=high)
    answer = rankings_answer(evaluated, Rankings(unit, total, *rows, (0.3, 0.2), delta))
    return answer.action, answer.rows, answer.advice


def test_free_queries_are_judged_by_their_number():
    """Their intervals are over queries, so that more rows would not narrow them."""
    for total, low, high, action, asked in (
        (1, -0.1, -0.1, "collect", "5 more queries"),
        (5, -0.2, -0.1, "collect", "1 more query"),
        (10, -0.3, 0.1, "collect", "150 more queries"),
        (10, -0.2, -0.1, "use", ""),
    ):
        found = rankings_advice("query", total, (10, 40), low, high)
        assert found[:2] == (action, None)
        assert asked in found[2]


def test_more_rows_of_a_ranking_need_more_results():
    """At a fixed k the interval would hardly narrow."""
    action, rows, advice = rankings_advice("prompt", 2, (1000, 5000), -0.2, 0.0)
    assert (action, rows) == ("collect", 15000)
    assert "the first 4000 results" in advice


def test_without_a_model_a_clear_gap_asks_for_one(results):
    alone = but(but(results, "groups", after=None, changes=None, group_changes=None), "", model=None)
    for gap, action in (((0.1, 0.3), "mitigate"), ((0.0, 0.01), "keep")):
        intervals = {**alone.groups.before.intervals, "gap": gap}
        unclear = but(alone, "groups.before", intervals=intervals)
        assert recommend(but(unclear, "groups.before.worst", low=0.40, high=0.44)).action == action
    answer = recommend(but(unclear, "groups.before.worst", n=50, low=0.3, high=0.6))
    assert (answer.action, answer.rows) == ("collect", 400)


def test_a_kept_zero_shot_says_why(results):
    same = but(results, "groups.group_changes.*", clear=False)
    kept = recommend(but(same, "model", method="zero-shot"))
    assert (kept.action, "because nothing was clearly better" in kept.sentence) == ("keep", True)
    untuned = recommend(but(same, "model", method="zero-shot", tuning=None))
    assert "By its parameters the model is zero-shot" in untuned.sentence


def test_rankings_alone_are_answered_by_prompt(results):
    rankings = but(results, "", groups=None)
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
    clear = but(found, "retrieval.queries.0", clear=True)
    clear = but(clear, "retrieval.queries.0.changes.max_skew", difference=0.2, low=0.1, high=0.3)
    answer = recommend(clear)
    assert (answer.better, answer.worse) == ((), (rankings.retrieval.queries[0].name,))


def test_without_labels_the_answer_asks_for_them(results):
    nothing = dict.fromkeys(("model", "groups", "retrieval", "probes", "dependence", "wording"))
    bare = but(results, "", **nothing)
    assert recommend(bare).action == "label"
    prompts = but(bare, "", retrieval=but(results.retrieval, "mean", after=None, changes=None))
    for (value, low, high), action in (((0.3, 0.2, 0.4), "mitigate"), ((0.03, 0.0, 0.1), "keep")):
        skew = but(prompts, "retrieval.mean.before.max_skew", value=value, low=low, high=high)
        assert recommend(skew).action == action
