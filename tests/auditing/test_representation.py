"""HSIC and KCC of embeddings with target and sensitive attribute."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip.auditing.sections.dependence import audit_representation
from fairerclip.data import simulate
from fairerclip.experiment import Experiment
from fairerclip.metrics import hsic, kcc


@pytest.fixture(scope="module")
def task():
    return simulate("waterbirds", scale=0.05, width=64)


def test_the_figures_are_those_of_the_metrics(task):
    experiment, rows = Experiment.of(task), task.test
    (entry,) = audit_representation(experiment, rows, {"before": rows.X}, permutations=19)
    assert entry.stage == "before"
    assert entry.space == "image embeddings (64 wide)"
    for name, measure in (("hsic", hsic), ("kcc", kcc)):
        for letter, values in (("y", rows.y), ("s", rows.s["s"])):
            found = getattr(entry, f"{name}_{letter}")
            assert found.value == pytest.approx(measure(rows.X, values, random_state=0), rel=1e-6)
            assert found.low <= found.value <= found.high
            assert found.p_value == 1 / 20


def test_embeddings_without_the_attribute_hold_less_of_it(task):
    experiment, rows = Experiment.of(task), task.test
    noise = np.random.default_rng(6).normal(size=(len(rows), 1))
    before, after = audit_representation(
        experiment, rows, {"before": rows.X, "after": noise}, permutations=99
    )
    assert after.space == "mitigated embeddings (1 wide)"
    assert after.kcc_s.value < before.kcc_s.value
    assert after.hsic_s.p_value > 0.05 > before.hsic_s.p_value


def test_rows_without_labels_and_tasks_without_target():
    task = simulate("gallery", scale=0.02, width=64)
    experiment = Experiment.of(task, ["sex", "race"])
    s = {**task.test.s, "sex": np.where(np.arange(len(task.test)) < 5, -1, task.test.s["sex"])}
    (entry,) = audit_representation(
        experiment, replace(task.test, s=s), {"before": task.test.X}, permutations=9
    )
    assert entry.hsic_y is entry.kcc_y is None
    crossed = s["sex"][5:] * 7 + s["race"][5:]
    assert entry.hsic_s.value == pytest.approx(hsic(task.test.X[5:], crossed, random_state=0), rel=1e-6)
    none = replace(task.test, s={})
    assert audit_representation(experiment, none, {"before": task.test.X}) is None
