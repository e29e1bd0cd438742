"""A method trained for use: the setting of a comparison, and the same answers after it is saved."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import fairerclip
from fairerclip.data import simulate
from fairerclip.errors import ParameterError
from fairerclip.experiment import Experiment
from fairerclip.study import fit_method as module
from fairerclip.study.fit_method import fit_method
from fairerclip.study.methods import FITTABLE
from fairerclip.study.run_method import run_method


@pytest.fixture(scope="module")
def birds():
    return simulate("waterbirds", seed=1, scale=0.05, width=32)


@pytest.fixture
def few(monkeypatch):
    """The first candidates of every method, so that the choice takes no time."""
    short = {key: replace(method, candidates=method.candidates[:4]) for key, method in FITTABLE.items()}
    monkeypatch.setattr(module, "FITTABLE", short)
    return short


@pytest.mark.parametrize("key", ["zero-shot", "orth-cali", "leace", "probe-group", "dfr-validation"])
def test_a_method_answers_as_in_a_comparison_also_after_it_is_saved(key, birds, few, tmp_path):
    experiment = Experiment.of(birds)
    trained = fit_method(key, experiment, seed=2)
    run = run_method(few[key], experiment, 2)
    assert dict(trained.parameters) == dict(run.chosen)
    assert trained.model.offsets_.tolist() == list(run.offsets)
    predicted = np.array(experiment.classes)[list(run.predicted)]
    assert_array_equal(trained.model.predict(birds.test.X), predicted)
    loaded = fairerclip.load(trained.model.save(tmp_path / "model"))
    assert_array_equal(loaded.scores(birds.test.X), trained.model.scores(birds.test.X))
    assert loaded.diagnostics_["tuning"]["strategy"] == run.strategy


def test_without_validation_labels_a_method_without_labels_has_its_published_setting(birds):
    bare = replace(birds, splits={name: split for name, split in birds.splits.items() if name != "val"})
    trained = fit_method("orth-cali", Experiment.of(bare))
    assert dict(trained.parameters) == {"lam": 1000.0}
    assert not trained.model.offsets_.any()
    assert "tuning" not in trained.model.diagnostics_


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("prob", {}, "probe"),
        ("probe", {"labels": "some"}, "some"),
    ],
)
def test_contradictions_name_the_choices(name, given, word, birds):
    with pytest.raises(ParameterError, match=word):
        fit_method(name, Experiment.of(birds), **given)
