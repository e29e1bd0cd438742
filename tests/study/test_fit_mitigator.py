"""A mitigator fitted on a task: what it reads the sensitive values from, its strength, and its figures."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairerclip import EmbeddingMitigator
from fairerclip.data import simulate
from fairerclip.data.stores import EmbeddingStore
from fairerclip.data.task import Sentences
from fairerclip.errors import LabelError, PromptError
from fairerclip.experiment import Experiment
from fairerclip.metrics import correlation_inside_groups, max_skew
from fairerclip.study.fit_mitigator import (
    fit_mitigator,
    measure_rankings,
    mitigator_result,
    queries_of,
)


@pytest.fixture(scope="module")
def portraits():
    task = simulate("gallery", seed=1, scale=0.05, width=48)
    return replace(task, queries=None)


def unlabelled(task, split, *names):
    """Return a task whose split has no labels of some attributes."""
    rows = task.splits[split]
    kept = {name: codes for name, codes in rows.s.items() if name not in names}
    return replace(task, splits={**task.splits, split: replace(rows, s=kept)})


def unprompted(task, *names):
    values = {name: replace(s, text=None) if name in names else s for name, s in task.sensitive.items()}
    return replace(task, sensitive=values)


def test_sensitive_values_come_from_prompts_and_labelled_validation_rows(portraits):
    trained = fit_mitigator(Experiment.of(portraits, ["sex"]))
    expected = EmbeddingMitigator().fit(
        portraits.train.X,
        sensitive_text=dict(zip(("female", "male"), portraits.sensitive["sex"].text, strict=True)),
        labelled=(portraits.val.X, np.array(["female", "male"])[portraits.val.s["sex"]]),
    )
    assert_allclose(trained.mitigator.transform(portraits.test.X), expected.transform(portraits.test.X))
    assert str(len(portraits.val)) in trained.sentences[0]


def test_an_attribute_that_cannot_be_read_is_refused_with_what_helps(portraits):
    task = unprompted(unlabelled(portraits, "val", "sex"), "sex")
    with pytest.raises(PromptError):
        fit_mitigator(Experiment.of(task, ["sex"]))
    with pytest.raises(LabelError):
        fit_mitigator(Experiment.of(unlabelled(task, "train", "sex"), ["sex"]), labels="all")


def test_the_strength_is_chosen_on_validation_rows_and_recorded(portraits):
    trained = fit_mitigator(Experiment.of(portraits, ["sex"]), objective="max_skew", floor=0.99)
    path = trained.path
    point = path.best(floor=0.99)
    assert trained.mitigator.strength == point.strength < 1
    assert point.rank_correlation[0] >= 0.99
    record = trained.mitigator.diagnostics_["tuning"]
    assert (record["objective"], record["rows"]) == ("max_skew", len(portraits.val))
    assert record["max_skew"] == point.max_skew[0]


def test_rankings_are_measured_with_the_original_scores_as_the_reference(portraits):
    experiment = Experiment.of(portraits, ["sex", "race"])
    mitigator = fit_mitigator(experiment).mitigator
    sex, race = measure_rankings(experiment, mitigator, "test")
    X = portraits.test.X / np.linalg.norm(portraits.test.X, axis=1, keepdims=True)
    Q = portraits.text_target / np.linalg.norm(portraits.text_target, axis=1, keepdims=True)
    before, after = X @ Q.T, mitigator.transform(portraits.test.X) @ Q.T
    for row, name in ((sex, "sex"), (race, "race")):
        groups = portraits.test.s[name]
        assert row.before[0] == pytest.approx(max_skew(before, groups, row.k).mean())
        assert row.after[0] == pytest.approx(max_skew(after, groups, row.k).mean())
        correlations = correlation_inside_groups(before, after, groups)
        assert row.rank_correlation[0] == pytest.approx(correlations.mean())
        assert row.low_correlation == pytest.approx(np.quantile(correlations, 0.05))
        assert row.before[1] <= row.before[0] <= row.before[2]
        assert row.change[0] == pytest.approx(row.after[0] - row.before[0])
    assert sex.after[0] < sex.before[0]


def test_free_queries_are_measured_and_those_about_s_are_left_out(portraits):
    text = np.vstack([portraits.text_target[:3], portraits.sensitive["sex"].text[:1]])
    task = replace(portraits, queries=Sentences(text, ("a", "b", "c", "a woman")))
    experiment = Experiment.of(task, ["sex"])
    assert queries_of(experiment)[0] == ("a", "b", "c", "a woman")
    result = mitigator_result(experiment, fit_mitigator(experiment))
    assert (result.rankings[0].queries, result.rankings[0].left_alone) == (3, 1)
    assert any("not mitigated: 1" in note for note in result.notes)
    assert result.as_dict()["strength"] == {"sex": 0.93}


def test_a_collection_is_fitted_on_with_the_labelled_rows_of_the_task(portraits):
    experiment = Experiment.of(portraits, ["sex"])
    collection = EmbeddingStore.from_array(portraits.test.X)
    names = np.array(["female", "male"])
    for labels, splits in ((None, ("train", "val")), ("none", ("val",))):
        trained = fit_mitigator(experiment, labels=labels, collection=collection)
        rows = [portraits.splits[name] for name in splits]
        expected = EmbeddingMitigator().fit(
            portraits.test.X,
            sensitive_text=dict(zip(names, portraits.sensitive["sex"].text, strict=True)),
            labelled=(
                np.concatenate([split.X for split in rows]),
                names[np.concatenate([split.s["sex"] for split in rows])],
            ),
        )
        assert_allclose(trained.mitigator.transform(portraits.val.X), expected.transform(portraits.val.X))
        assert trained.mitigator.diagnostics_["rows"] == len(portraits.test)
