"""The section on free queries, its findings, and every form of report that shows it."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.auditing.findings import find
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.auditing.sections import query_section as section_module
from fairerclip.auditing.sections.query_section import queries_section
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.data import simulate
from fairerclip.data.task import Sentences
from fairerclip.experiment import Experiment
from fairerclip.metrics import average_precision, correlation_inside_groups, max_skew
from fairerclip.report.query_tables import ordered_queries, query_tables, remark, rises
from fairerclip.study.fit_mitigator import fit_mitigator
from light import lighter_audits

light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)


PROMPTS = ("good", "evil", "smart", "a <b>woman</b>")


@pytest.fixture(scope="module")
def portraits():
    task = simulate("gallery", seed=1, scale=0.08, width=48)
    text = np.vstack([task.text_target[:3], task.sensitive["sex"].text[:1]])
    return replace(task, queries=Sentences(text, PROMPTS))


@pytest.fixture(scope="module")
def experiment(portraits):
    return Experiment.of(portraits, ["sex"], ["good", "evil"])


@pytest.fixture(scope="module")
def mitigator(experiment):
    return fit_mitigator(experiment).mitigator


@pytest.fixture(scope="module")
def results(experiment, mitigator):
    return audit_task(experiment, AuditOptions(permutations=19), model=mitigator, fitted=True)[0]


def measured(experiment, model=None, k=None):
    return queries_section(experiment, "test", model, k, seed=0, confidence=0.95)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_figures_are_those_of_the_mitigators_scores(results, mitigator, portraits):
    section, groups = results.queries, portraits.test.s["sex"]
    Q = portraits.queries.text[:3]
    before, after = unit(portraits.test.X) @ unit(Q).T, mitigator.scores(portraits.test.X, Q)
    queries = section.queries[:3]
    assert [q.prompt for q in section.queries] == list(PROMPTS)
    skews = [max_skew(scores, groups, section.k) for scores in (before, after)]
    assert [q.before.max_skew.value for q in queries] == pytest.approx(skews[0].tolist())
    assert [q.after.max_skew.value for q in queries] == pytest.approx(skews[1].tolist())
    inside = correlation_inside_groups(before, after, groups)
    assert [q.correlation for q in queries] == pytest.approx(inside.mean(axis=1).tolist())
    assert section.mean.queries == 3
    assert section.mean.before.value == pytest.approx(skews[0].mean())
    assert section.mean.change.difference == pytest.approx((skews[1] - skews[0]).mean())
    assert section.mean.low_correlation == pytest.approx(np.quantile(inside, 0.05))
    tops = [np.argsort(-scores, axis=0)[: section.k] for scores in (before, after)]
    kept = [len(np.intersect1d(tops[0][:, j], tops[1][:, j])) / section.k for j in range(3)]
    assert [q.kept for q in queries] == pytest.approx(kept)


def test_a_query_about_s_is_left_alone_and_out_of_the_means(results):
    query = results.queries.queries[3]
    assert (query.about, query.clear, query.change.difference, query.kept) == ("sex", False, 0.0, 1.0)
    assert query.share > 0.9
    assert query.before.counts == query.after.counts


def test_without_a_mitigator_only_before_is_measured(experiment, results):
    section = measured(experiment)
    assert [q.after for q in section.queries] == [None] * 4
    assert [q.before for q in section.queries] == [q.before for q in results.queries.queries]
    assert [q.about for q in section.queries] == [None, None, None, "sex"]
    assert (section.mean.before, section.mean.after) == (results.queries.mean.before, None)


def test_a_model_without_free_queries_is_measured_before(experiment, results):
    model = experiment.fit(FairerCLIP(n_features=20, tau=0.5, zero_shot=0.5, random_state=0), "none")
    section = measured(experiment, model)
    assert section == measured(experiment)


def test_of_many_queries_evenly_spaced_ones_are_measured(experiment, monkeypatch):
    monkeypatch.setattr(section_module, "MOST_QUERIES", 2)
    section = measured(experiment)
    assert ([q.prompt for q in section.queries], section.total) == ([PROMPTS[0], PROMPTS[3]], 4)


def test_all_queries_about_s_have_no_mean(experiment, portraits):
    text = portraits.sensitive["sex"].text
    task = replace(portraits, queries=Sentences(text, ("woman", "man")))
    section = measured(replace(experiment, task=task))
    assert section.mean is None
    assert {q.about for q in section.queries} == {"sex"}


def test_average_precision_inside_groups_is_measured_where_classes_are_known():
    birds = simulate("waterbirds", seed=1, scale=0.01, width=32)
    birds = replace(birds, queries=Sentences(birds.text_target, ("a", "b")))
    experiment = Experiment.of(birds)
    mitigator = fit_mitigator(experiment).mitigator
    section = measured(experiment, MitigatedZeroShot.of(mitigator, experiment.named_text))
    relevant, place = birds.test.y[:, None] == np.arange(2), birds.test.sensitive()
    T = unit(birds.text_target)
    tables = unit(birds.test.X) @ T.T, mitigator.transform(birds.test.X) @ T.T
    before, after = (average_precision(table, relevant, place).mean() for table in tables)
    found = section.precision
    assert (found.before, found.after) == pytest.approx((before, after))
    assert found.low <= found.difference <= found.high


def harmed(results):
    """Return results in which the skew of the second query clearly rises."""
    section = results.queries
    risen = section.queries[1].change.model_copy(update={"difference": 0.3, "low": 0.2, "high": 0.4})
    query = section.queries[1].model_copy(update={"change": risen, "clear": True})
    queries = (section.queries[0], query, *section.queries[2:])
    return results.model_copy(update={"queries": section.model_copy(update={"queries": queries})})


def test_a_query_with_more_skew_is_a_harm_in_the_verdict(results):
    found = harmed(results)
    harm = next(f for f in find(found) if f.topic == "query harm")
    assert harm.level == "problem"
    assert "“evil” +0.300" in harm.finding.text
    assert recommend(found).worse


def test_drift_of_the_rows_is_a_caution(results):
    drifted = results.model.mitigator.model_copy(update={"drift": ("these rows differ: fit again",)})
    model = results.model.model_copy(update={"mitigator": drifted})
    found = find(results.model_copy(update={"model": model}))
    assert [f.level for f in found if "rows differ" in f.finding.text] == ["caution"]


def test_queries_are_listed_by_fall_and_rises_are_marked_and_never_left_out(results):
    found = harmed(results)
    section = found.queries
    assert ordered_queries(section)[-1].about == "sex"
    assert rises(section)[0].prompt == "evil"
    assert remark(section.queries[1]) == "more skew"
    table = query_tables(found, most=1)[-1]
    assert table.rows[0][0] == "evil (more skew)"
