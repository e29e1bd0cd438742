"""Probes read what is there, do not read what is not, and say how sure they are."""

import numpy as np
import pytest

from fairerclip.auditing.sections.probes import CROSSED, KINDS, audit_probes, probe_sensitive
from fairerclip.data import simulate
from fairerclip.errors import LabelError, NonFiniteError, ParameterError, ShapeError
from fairerclip.experiment import Experiment
from fairerclip.metrics.intervals import mover


def noise(n=300, p=10, seed=3):
    return np.random.default_rng(seed).normal(size=(n, p))


def labels(n=300, values=2, seed=11):
    return np.random.default_rng(seed).integers(values, size=n)


@pytest.mark.parametrize("kind", KINDS)
def test_an_attribute_that_is_in_the_embeddings_is_read_perfectly(kind):
    X, s = noise(), labels()
    X[:, 4] = 6.0 * s + 0.1 * X[:, 4]
    probe = probe_sensitive(X, s, kind=kind)
    assert probe.value > 0.99
    assert probe.low > 0.95
    assert (probe.chance, probe.n, probe.folds) == (0.5, 300, 5)


@pytest.mark.slow
def test_intervals_at_chance_miss_about_as_seldom_as_they_say():
    missed = narrow = 0
    for seed in range(40):
        probe = probe_sensitive(noise(100, 8, seed), labels(100, 2, seed + 500), random_state=seed)
        missed += not probe.low <= 0.5 <= probe.high
        narrow += abs(probe.value - 0.5) > (probe.value - probe.low) / CROSSED
    assert missed <= 6  # 2 expected; more than 6 has a probability below 1 %
    assert narrow > missed  # the widening is needed


def test_the_interval_is_that_of_independent_recalls_widened_for_crossing():
    X, s = noise(), labels()
    X[:, 0] += s
    probe = probe_sensitive(X, s)
    right, n = [right for _, right, _ in probe.recalls], [n for _, _, n in probe.recalls]
    low, high = mover([0.5, 0.5], right, n, 0.95)
    assert probe.value == pytest.approx(np.mean(np.divide(right, n)))
    assert probe.low == pytest.approx(probe.value - CROSSED * (probe.value - low))
    assert probe.high == pytest.approx(probe.value + CROSSED * (high - probe.value))
    wider = probe_sensitive(X, s, confidence=0.99)
    assert wider.low < probe.low < probe.high < wider.high


def test_the_kernel_probe_reads_one_column_where_the_linear_one_cannot():
    x = noise(600, 1)
    s = (np.abs(x[:, 0]) > 0.67).astype(int)
    assert probe_sensitive(x, s, kind="linear").value < 0.6
    assert probe_sensitive(x, s, kind="kernel").low > 0.9


def test_many_rows_are_subsampled_and_small_values_kept_whole():
    s = np.repeat([0, 1, 2], [5000, 2000, 40])
    X = noise(len(s), 3)
    X[:, 0] += 10 * s
    probe = probe_sensitive(X, s, max_rows=1000)
    assert [n for _, _, n in probe.recalls] == [480, 480, 40]
    assert probe.n == 1000
    assert probe_sensitive(X, s, max_rows=1000) == probe
    assert probe_sensitive(X, s, max_rows=5).n == 6  # two of each at least


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": "cubic"}, ParameterError),
        ({"folds": 1}, ParameterError),
        ({"s": labels(299)}, ShapeError),
        ({"s": np.zeros(300, dtype=int)}, LabelError),
        ({"s": np.repeat([0, 1], [299, 1])}, LabelError),
        ({"X": noise()[:, :0]}, ShapeError),
        ({"X": np.where(noise() > 2, np.nan, 0.0)}, NonFiniteError),
    ],
)
def test_bad_input_is_named(change, error):
    given = {"X": noise(), "s": labels(), **change}
    with pytest.raises(error):
        probe_sensitive(given.pop("X"), given.pop("s"), **given)


def test_an_audit_probes_each_attribute_before_and_after():
    task = simulate("gallery", scale=0.02, width=48)
    experiment = Experiment.of(task, ["sex", "race"])
    rows = task.test
    entries, notes = audit_probes(experiment, rows, {"before": rows.X, "after": rows.X[:, :1]})
    assert notes == []
    assert [(e.attribute, e.stage, e.probe) for e in entries] == [
        (attribute, stage, kind)
        for attribute in ("sex", "race")
        for stage in ("before", "after")
        for kind in ("linear", "kernel")
    ]
    by = {(e.attribute, e.stage, e.probe): e for e in entries}
    assert by["sex", "before", "linear"].low > by["sex", "after", "linear"].high
