"""The audit of an `EmbeddingMitigator`: what it is, and the rows that differ from those of its fit."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip import audit, load
from fairerclip.auditing.mitigator_facts import mitigator_section
from fairerclip.auditing.results import read_results, write_results
from fairerclip.auditing.run import AuditOptions, audit_task
from fairerclip.data import simulate
from fairerclip.errors import PromptError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.metrics import max_skew
from fairerclip.study.fit_mitigator import fit_mitigator
from light import lighter_audits

light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)


QUICK = AuditOptions(permutations=19)


@pytest.fixture(scope="module")
def portraits():
    return replace(simulate("gallery", seed=1, scale=0.05, width=48), queries=None)


@pytest.fixture(scope="module")
def mitigator(portraits):
    return fit_mitigator(Experiment.of(portraits, ["sex"])).mitigator


@pytest.fixture(scope="module")
def results(portraits, mitigator):
    experiment = Experiment.of(portraits, ["sex"], ["good", "evil"])
    return audit_task(experiment, QUICK, model=mitigator, fitted=True)[0]


def test_the_model_section_says_what_a_mitigator_is(results, mitigator, portraits):
    section = results.model.mitigator
    assert results.model.method == "EmbeddingMitigator"
    assert section.rows == len(portraits.train)
    assert section.strengths == {"sex": mitigator.strength}
    assert section.remaining["sex"] == pytest.approx(mitigator.fitted_.remaining[0])
    assert section.attributes["sex"].labelled_rows == len(portraits.val)


def test_the_mitigated_ranking_is_that_of_the_mitigated_embeddings(results, mitigator, portraits):
    T = portraits.text_target[:2]
    Q = T / np.linalg.norm(T, axis=1, keepdims=True)
    scores = mitigator.transform(portraits.test.X) @ Q.T
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


def test_a_mitigator_of_a_classification_task_is_audited_by_group_from_python():
    birds = simulate("waterbirds", seed=1, scale=0.01, width=32)
    mitigator = fit_mitigator(Experiment.of(birds)).mitigator
    X, y, s = birds.test.X, birds.test.y, birds.test.sensitive()
    found = audit(X, y, text=birds.text_target, sensitive_features=s, model=mitigator, permutations=19)
    T = birds.text_target / np.linalg.norm(birds.text_target, axis=1, keepdims=True)
    right = ((mitigator.transform(X) @ T.T).argmax(axis=1) == y).mean()
    assert found.results.groups.after.average == pytest.approx(right)


def test_rows_unlike_those_of_the_fit_are_noticed(mitigator, portraits):
    far = simulate("gallery", seed=2, scale=0.05, width=48).test.X
    section = mitigator_section(mitigator, far)
    assert section.drift
    assert all(isinstance(message, str) for message in section.drift)
    assert mitigator_section(mitigator, portraits.test.X).drift == ()


def test_a_mitigator_that_does_not_fit_the_task_is_refused(mitigator, portraits):
    other = simulate("gallery", seed=1, scale=0.05, width=64)
    with pytest.raises(ShapeError, match="width 48"):
        audit_task(Experiment.of(other, ["sex"]), QUICK, model=mitigator, fitted=True)
    with pytest.raises(PromptError):
        audit_task(
            Experiment.of(replace(portraits, text_target=None), ["sex"]), QUICK, model=mitigator, fitted=True
        )
