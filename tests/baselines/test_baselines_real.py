"""Baselines on real embeddings, where they are beside the project."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairerclip.baselines import DFR, LEACE, LinearProbe, OrthCali, OrthProj, ZeroShot
from fairerclip.data import load_task
from fairerclip.experiment import Experiment

pytestmark = pytest.mark.real


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


def test_a_probe_of_rows_where_class_and_style_go_together_falls_below_zero_shot(real_data, bench):
    # In the training rows of pacs nearly all dogs are paintings, all guitars sketches …; in test rows they are not.
    b = bench(real_data, "pacs")
    zero, plain = b.report(ZeroShot()), b.report(LinearProbe(C=0.01))
    assert plain.average < zero.average - 0.05
    assert plain.worst.accuracy < zero.worst.accuracy - 0.3


def test_a_probe_with_a_weak_penalty_is_where_a_much_tighter_one_is(real_data, bench):
    b = bench(real_data, "pacs")
    models = [LinearProbe(C=100.0, class_weight="group", tol=tol) for tol in (1e-4, 1e-7)]
    usual, tight = (b.report(model, "all") for model in models)
    assert [model.diagnostics_["converged"] for model in models] == [True, True]
    assert_allclose(models[0].coef_, models[1].coef_, atol=2e-4 * np.linalg.norm(models[1].coef_))
    assert usual.average == pytest.approx(tight.average, abs=0.001)
    one = 1 / tight.worst.n
    assert usual.worst.accuracy == pytest.approx(tight.worst.accuracy, abs=1.01 * one)


@pytest.mark.parametrize("labels", ["target", "all"])
@pytest.mark.parametrize(
    ("name", "gain"),
    [("celeba_blond", 0.2), ("pacs", 0.4), ("celeba_attractive", 0.1), ("celeba_cheekbones", 0.08)],
)
def test_balanced_groups_raise_the_worst_group_over_the_plain_probe(real_data, bench, name, gain, labels):
    b = bench(real_data, name)
    plain = b.report(LinearProbe(C=0.01))
    group = b.report(LinearProbe(C=0.01, class_weight="group"), labels)
    assert group.worst.accuracy > plain.worst.accuracy + gain


def test_dfr_raises_the_worst_group_over_the_plain_probe(real_data, bench):
    b = bench(real_data, "celeba_cheekbones")
    plain = b.report(LinearProbe(C=0.01))
    for variant in ("validation", "train"):
        assert (
            b.report(DFR(variant, C=0.1, random_state=0), "all").worst.accuracy > plain.worst.accuracy + 0.08
        )


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
