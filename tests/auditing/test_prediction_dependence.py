"""Dependence of predictions, by tables of counts, and of embeddings, by HSIC and KCC."""

from dataclasses import replace

import numpy as np
import pytest

from fairerclip.auditing.sections.dependence import (
    MEASURES,
    audit_dependence,
    audit_representation,
    prediction_dependence,
)
from fairerclip.data import simulate
from fairerclip.errors import LabelError, ParameterError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.metrics import dep, hsic, kcc, permutation_test

SLOW = {"dep": dep, "hsic": hsic, "kcc": kcc}


def drawn(c, k, n=300, tied=0.4, seed=5):
    rng = np.random.default_rng(seed)
    s = rng.integers(k, size=n)
    return np.where(rng.random(n) < tied, s % c, rng.integers(c, size=n)), s


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(("c", "k"), [(2, 2), (5, 3), (2, 7)])
def test_a_table_gives_what_the_rows_give(measure, c, k):
    p, s = drawn(c, k)
    found = prediction_dependence(p, s, measure=measure)
    assert found.value == pytest.approx(SLOW[measure](np.eye(c)[p], s), rel=1e-9)
    assert found.low < found.value < found.high
    assert (found.p_value, found.permutations, found.n) == (1 / 200, 199, 300)


@pytest.mark.parametrize("measure", MEASURES)
def test_p_values_agree_with_permuted_rows(measure):
    p, s = drawn(3, 2, n=60, tied=0.15, seed=2)
    fast = prediction_dependence(p, s, measure=measure, permutations=1999).p_value
    slow = permutation_test(np.eye(3)[p], s, statistic=measure, n_permutations=1999, random_state=9).p_value
    assert 0.01 < slow < 0.9
    assert fast == pytest.approx(slow, abs=0.05)


@pytest.mark.parametrize("measure", MEASURES)
def test_intervals_cover_and_reach_zero_where_nothing_depends(measure):
    rng = np.random.default_rng(17)
    covered = {0.0: 0, 0.3: 0}
    p, s = drawn(2, 2, n=400_000, tied=0.3, seed=18)
    truth = {0.0: 0.0, 0.3: prediction_dependence(p, s, measure=measure, permutations=1).value}
    for tied in covered:
        for seed in rng.integers(10**6, size=50):
            p, s = drawn(2, 2, n=150, tied=tied, seed=seed)
            found = prediction_dependence(p, s, measure=measure, permutations=1, random_state=int(seed))
            covered[tied] += found.low <= truth[tied] <= found.high
    assert min(covered.values()) >= 43  # 47.5 expected; fewer than 43 has a probability below 2 %


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"measure": "mutual"}, ParameterError),
        ({"permutations": 0}, ParameterError),
        ({"s": [0, 1]}, ShapeError),
        ({"s": [0, 0, 0]}, LabelError),
    ],
)
def test_bad_input_is_named(change, error):
    given = {"predicted": [0, 1, 1], "s": [0, 1, 0], **change}
    with pytest.raises(error):
        prediction_dependence(given.pop("predicted"), given.pop("s"), **given)


def test_an_audit_measures_all_rows_and_each_class():
    task = simulate("waterbirds", scale=0.1, width=64)
    experiment = Experiment.of(task)
    before = experiment.zero_shot(task.test)
    found = audit_dependence(experiment, task.test, {"before": before, "after": experiment.target(task.test)})
    by = {(e.stage, e.given, e.measure): e for e in found}
    assert set(by) == {
        (stage, given, measure)
        for stage in ("before", "after")
        for given in (None, "landbird", "waterbird")
        for measure in MEASURES
    }
    y = task.test.y
    for given, rows in ((None, y >= 0), ("landbird", y == 0), ("waterbird", y == 1)):
        entry = by["before", given, "dep"]
        one_hot = (before[:, None] == experiment.classes).astype(float)[rows]
        assert entry.value == pytest.approx(dep(one_hot, task.test.s["s"][rows]))
        assert entry.n == rows.sum()
    assert by["before", "waterbird", "kcc"].p_value == 1 / 200
    # Given the class, the class itself depends on nothing.
    assert by["after", "waterbird", "dep"].value == 0


def test_unknown_labels_and_classes_of_one_value_are_left_out():
    task = simulate("waterbirds", scale=0.1, width=64)
    experiment, rows = Experiment.of(task), task.test
    s = np.where(rows.y == 1, 0, rows.s["s"])
    s[:10] = -1
    found = audit_dependence(experiment, replace(rows, s={"s": s}), {"before": experiment.zero_shot(rows)})
    assert {e.given for e in found} == {None, "landbird"}
    assert {e.n for e in found if e.given is None} == {len(rows) - 10}


def test_figures_of_embeddings_are_those_of_the_metrics_of_rows_with_both_labels():
    task = simulate("waterbirds", scale=0.05, width=64)
    place = np.arange(len(task.test))
    y, s = np.where(place < 4, -1, task.test.y), np.where(place % 9 == 8, -1, task.test.s["s"])
    rows, known = replace(task.test, y=y, s={"s": s}), (y >= 0) & (s >= 0)
    (entry,) = audit_representation(Experiment.of(task), rows, {"before": rows.X}, permutations=19)
    for name, measure in (("hsic", hsic), ("kcc", kcc)):
        for letter, values in (("y", y), ("s", s)):
            found = getattr(entry, f"{name}_{letter}")
            expected = measure(rows.X[known], values[known], random_state=0)
            assert found.value == pytest.approx(expected, rel=1e-6)
            assert found.low <= found.value <= found.high
            assert found.p_value == 1 / 20


def test_embeddings_of_rows_without_labels_and_of_tasks_without_target():
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
