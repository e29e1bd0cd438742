"""JTT: the second probe is a probe on rows in which the errors of the first are repeated."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import JTT, LinearProbe, load_baseline
from fairerclip.baselines.class_folds import class_folds
from fairerclip.baselines.shared_solutions import first_stage, shared_solutions
from fairerclip.data import simulate
from fairerclip.errors import LabelError, ParameterError
from fairerclip.metrics import group_report

TIGHT = {"tol": 1e-9}


def worst(model, rows):
    return group_report(rows.y, model.predict(rows.X), next(iter(rows.s.values()))).worst.accuracy


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_the_probe_on_rows_whose_errors_are_repeated(embeddings, n_classes):
    e = embeddings(seed=1, n_classes=n_classes)
    first = LinearProbe(C=1e-3, **TIGHT).fit(e.X, e.y)
    wrong = first.predict(e.X) != e.y
    assert 0 < wrong.sum() < len(e.y) / 2
    model = JTT(4.0, C=0.3, **TIGHT).fit(e.X, e.y)
    rows = np.repeat(np.arange(len(e.y)), np.where(wrong, 4, 1))
    repeated = LinearProbe(C=0.3 * len(e.y) / len(rows), **TIGHT).fit(e.X[rows], e.y[rows])
    assert_allclose(model.coef_, repeated.coef_, atol=1e-6)
    assert_allclose(model.intercept_, repeated.intercept_, atol=1e-6)
    assert model.diagnostics_["errors"] == wrong.sum()


@pytest.mark.parametrize("parameters", [{"C": 0.1}, {"class_weight": "balanced"}, {"C": (0.01, 1.0)}])
def test_a_factor_of_one_is_the_probe(embeddings, parameters):
    e = embeddings(seed=2)
    given = {"validation": (e.X, e.y, e.s)}
    model = JTT(1.0, **parameters).fit(e.X, e.y, **given)
    assert_allclose(model.coef_, LinearProbe(**parameters).fit(e.X, e.y, **given).coef_, atol=1e-12)


def test_without_errors_it_is_the_probe_and_says_so(embeddings):
    e = embeddings(seed=3, n=40, p=100)
    model = JTT(50.0, first_C=100.0).fit(e.X, e.y)
    assert model.diagnostics_["errors"] == 0
    assert "this is the plain probe" in model.diagnostics_["note"]
    assert_allclose(model.coef_, LinearProbe().fit(e.X, e.y).coef_, atol=1e-12)
    assert "note" not in JTT().fit(e.X, e.y).diagnostics_


def test_rows_of_weight_zero_are_as_good_as_gone(embeddings):
    e = embeddings(seed=4)
    weight = (np.arange(len(e.y)) % 3 > 0).astype(float)
    kept = weight > 0
    model, other = JTT(9.0).fit(e.X, e.y, sample_weight=weight), JTT(9.0).fit(e.X[kept], e.y[kept])
    assert_allclose(model.coef_, other.coef_, rtol=1e-3)
    assert model.diagnostics_["errors"] == other.diagnostics_["errors"]


def test_the_first_stage_is_computed_once_for_the_same_rows_and_settings(embeddings, monkeypatch):
    e, f = embeddings(seed=5), embeddings(seed=6)
    alone = JTT(5.0).fit(e.X, e.y).coef_
    fits, plain = [], JTT._fit_probe

    def counted(self, *rows):
        fits.append(self.C)
        return plain(self, *rows)

    monkeypatch.setattr(JTT, "_fit_probe", counted)
    with shared_solutions():
        for X, y, upweight, first in [
            (e.X, e.y, 5.0, 1e-3),
            (e.X, e.y, 50.0, 1e-3),
            (e.X, e.y, 5.0, 1e-2),
            (f.X, f.y, 5.0, 1e-3),
        ]:
            JTT(upweight, first_C=first).fit(X, y)
        assert fits == [1e-3, 1.0, 1.0, 1e-2, 1.0, 1e-3, 1.0]
        assert_array_equal(JTT(5.0).fit(e.X, e.y).coef_, alone)
        assert len(fits) == 8
        results = [first_stage(lambda k=k: k, "few", k) for k in (*range(20), 19, 0)]
        assert results == [*range(20), 19, 0]


def test_folds_spread_every_class():
    y = np.repeat([0, 1, 2], [11, 4, 1])
    fold = class_folds(y, 3, 0)
    for k in range(3):
        counts = np.bincount(fold[y == k], minlength=3)
        assert counts.max() - counts.min() <= 1
    assert not np.array_equal(fold, class_folds(y, 3, 1))
    assert_array_equal(fold, class_folds(y, 3, 0))
    with pytest.raises(ParameterError, match="random_state"):
        class_folds(y, 3, "x")


def test_bad_parameters_and_absent_classes_are_refused(embeddings):
    e = embeddings()
    with pytest.raises(ParameterError, match=r"upweight must be a number in \[1, "):
        JTT(0.5).fit(e.X, e.y)
    with pytest.raises(ParameterError, match="first_C must be a positive number"):
        JTT(first_C=0).fit(e.X, e.y)
    with pytest.raises(LabelError, match=r"classes \[2\] have neither labelled rows nor prompts"):
        JTT().fit(e.X, e.y, classes=[0, 1, 2])


def test_it_helps_the_worst_group_and_is_saved(tmp_path):
    task = simulate("waterbirds", scale=0.3, seed=1)
    model = JTT(20.0, C=0.01).fit(task.train.X, task.train.y)
    assert (
        worst(model, task.test) > worst(LinearProbe(C=0.01).fit(task.train.X, task.train.y), task.test) + 0.1
    )
    back = load_baseline(model.save(tmp_path / "model"))
    assert_array_equal(back.scores(task.test.X), model.scores(task.test.X))
    assert back.get_params() == model.get_params()
