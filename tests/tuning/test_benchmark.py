"""The benchmark's figures of a tuned model are those of the public search."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.data import simulate
from fairerclip.tuning import search
from fairerclip.workflow import Experiment


@pytest.fixture(scope="module")
def resampled():
    file = Path(__file__).parents[2] / "benchmarks" / "resampled.py"
    spec = importlib.util.spec_from_file_location("resampled", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("key", "objective"), [("fairerclip-target", "worst_group"), ("eod-none", "eod")])
def test_a_tuned_model_of_the_benchmark_is_that_of_the_public_search(resampled, key, objective, monkeypatch):
    monkeypatch.setattr(search, "FITS", search.FITS[:1])
    made = simulate("waterbirds", seed=3, scale=0.1, width=48)
    # Codes of a file need not be in the order of the names: here they are not.
    attribute = made.sensitive_attribute()
    renamed = replace(attribute, names=tuple(f"{9 - i} {name}" for i, name in enumerate(attribute.names)))
    experiment = Experiment.of(replace(made, sensitive={attribute.name: renamed}))
    found = resampled.run_own(key, experiment, seed=7)  # beyond the splits without groups
    model = experiment.tune(FairerCLIP(random_state=7), key.split("-")[1], objective)
    rule = "eod" if objective == "eod" else "tuned"
    test = experiment.task.test
    right = model.predict(test.X) == experiment.target(test)
    expected = [[int(right[(test.y == k) & (test.sensitive() == g)].sum()) for g in (0, 1)] for k in (0, 1)]
    assert found["cells"][rule] == expected
    assert found["chosen"][rule] == model.diagnostics_["tuning"]["chosen"]["parameters"]
    if rule == "tuned":
        assert set(found["cells"]) >= {"default", "raw maximum", "expected maximum, offsets"}
        assert len(found["every"]) == model.diagnostics_["tuning"]["candidates"]
        assert np.array(found["every"]).shape[1:] == (2, 2)
