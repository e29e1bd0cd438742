"""Baselines on real embeddings, where they are beside the project."""

import numpy as np
import pytest

from fairerclip.baselines import LEACE, LinearProbe, OrthCali, OrthProj, ZeroShot
from fairerclip.data import load_task
from fairerclip.experiment import Experiment

pytestmark = [pytest.mark.real, pytest.mark.slow]


class Bench:
    """A task, and a way to fit on its training rows and report on its test rows."""

    def __init__(self, folder, name):
        self.task = load_task(folder / f"{name}.npz")
        self.experiment = Experiment.of(self.task)

    def report(self, model, labels="target"):
        e, task = self.experiment, self.task
        given = e.arguments(labels)
        X, y = given.pop("X"), given.pop("y")
        model.fit(X, y, validation=(task.val.X, e.target(task.val), e.groups(task.val)), **given)
        return e.report(task.test, model.predict(task.test.X))


@pytest.fixture(scope="module")
def bench():
    made = {}

    def get(folder, name):
        return made.setdefault(name, Bench(folder, name))

    return get


def test_a_probe_beats_zero_shot_on_average_but_not_in_the_worst_group(real_data, bench):
    b = bench(real_data, "celeba_blond")
    zero, plain = b.report(ZeroShot()), b.report(LinearProbe(C=0.01))
    assert plain.average > zero.average + 0.04
    assert plain.worst.accuracy < zero.worst.accuracy - 0.2


@pytest.mark.parametrize(("name", "gain"), [("celeba_blond", 0.2), ("pacs", 0.4)])
def test_balanced_groups_raise_the_worst_group_over_the_plain_probe(real_data, bench, name, gain):
    b = bench(real_data, name)
    plain = b.report(LinearProbe(C=0.01))
    group = b.report(LinearProbe(C=0.01, class_weight="group"), "all")
    assert group.worst.accuracy > plain.worst.accuracy + gain


def test_prompt_methods_keep_the_average(real_data, bench):
    b = bench(real_data, "pacs")
    zero = b.report(ZeroShot())
    for model in (OrthProj(), OrthCali()):
        report = b.report(model)
        assert abs(report.average - zero.average) < 0.01
        assert report.worst.accuracy > zero.worst.accuracy + 0.05


def test_erasure_is_exact_on_real_rows(real_data, bench):
    b = bench(real_data, "celeba_attractive")
    model = LEACE()
    b.report(model, "all")
    rows, s = model.transform(b.task.train.X), b.experiment.groups(b.task.train)
    means = np.stack([rows[s == value].mean(axis=0) for value in np.unique(s)])
    assert np.abs(means - rows.mean(axis=0)).max() < 1e-10
