"""The audit of an `EmbeddingMitigator`: what it is, rankings by prompts and by free queries, and its findings."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip import audit, load
from fairerclip.auditing.findings import find
from fairerclip.auditing.mitigator_facts import mitigator_section
from fairerclip.auditing.recommendation import recommend
from fairerclip.auditing.results import read_results, write_results
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.auditing.sections import query_section as section_module
from fairerclip.auditing.sections.query_section import queries_section
from fairerclip.baselines.mitigated_zero_shot import MitigatedZeroShot
from fairerclip.data import simulate
from fairerclip.data.task import Sentences
from fairerclip.errors import PromptError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.metrics import average_precision, correlation_inside_groups, max_skew
from fairerclip.report.query_tables import ordered_queries, query_tables, rises
from fairerclip.study.fit_mitigator import fit_mitigator
from light import lighter_audits
from small_models import small

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
    assert measured(experiment, experiment.fit(small(), "none")) == section  # it answers no free queries


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


def test_accuracy_and_average_precision_are_measured_where_classes_are_known():
    birds = simulate("waterbirds", seed=1, scale=0.01, width=32)
    birds = replace(birds, queries=Sentences(birds.text_target, ("a", "b")))
    experiment = Experiment.of(birds)
    mitigator = fit_mitigator(experiment).mitigator
    X, y, s = birds.test.X, birds.test.y, birds.test.sensitive()
    results = audit(
        X, y, text=birds.text_target, sensitive_features=s, model=mitigator, permutations=19
    ).results
    right = (mitigator.transform(X) @ unit(birds.text_target).T).argmax(axis=1) == y
    assert results.groups.after.average == pytest.approx(right.mean())
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
    table = query_tables(found, most=1)[-1]
    assert table.rows[0][0] == "evil (more skew)"


def test_the_model_section_says_what_a_mitigator_is(results, mitigator, portraits):
    section = results.model.mitigator
    assert results.model.method == "EmbeddingMitigator"
    assert section.rows == len(portraits.train)
    assert section.strengths == {"sex": mitigator.strength}
    assert section.remaining["sex"] == pytest.approx(mitigator.fitted_.remaining[0])
    assert section.attributes["sex"].labelled_rows == len(portraits.val)


def test_the_mitigated_ranking_is_that_of_the_mitigated_embeddings(results, mitigator, portraits):
    scores = mitigator.transform(portraits.test.X) @ unit(portraits.text_target[:2]).T
    expected = max_skew(scores, portraits.test.s["sex"], results.retrieval.k)
    assert [q.after.max_skew.value for q in results.retrieval.queries] == pytest.approx(expected.tolist())


def test_probes_read_s_from_embeddings_before_and_after(results):
    found = {(probe.probe, probe.stage): probe.value for probe in results.probes}
    assert set(found) == {(p, s) for p in ("linear", "kernel") for s in ("before", "after")}
    assert found["linear", "after"] < found["linear", "before"] - 0.1


def test_a_saved_mitigator_is_described_alike_and_results_are_read_back(
    mitigator, portraits, results, tmp_path
):
    again = load(mitigator.save(tmp_path / "m"))
    assert mitigator_section(again, portraits.test.X) == results.model.mitigator
    assert read_results(write_results(results, tmp_path / "r.json")) == results


def test_rows_unlike_those_of_the_fit_are_noticed(mitigator, portraits):
    far = simulate("gallery", seed=2, scale=0.08, width=48).test.X
    section = mitigator_section(mitigator, far)
    assert section.drift
    assert all(isinstance(message, str) for message in section.drift)
    assert mitigator_section(mitigator, portraits.test.X).drift == ()


def test_a_mitigator_that_does_not_fit_the_task_is_refused(mitigator, portraits):
    wider = simulate("gallery", seed=1, scale=0.05, width=64)
    for task, error in ((wider, ShapeError), (replace(portraits, text_target=None), PromptError)):
        with pytest.raises(error):
            audit_task(Experiment.of(task, ["sex"]), model=mitigator, fitted=True)
