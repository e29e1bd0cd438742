"""Every method that `fit` trains, fitted, saved and applied on the command line, on one tiny task."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
from odd_tasks import plain

import fairerclip
from fairerclip.data import load_task, save_task
from fairerclip.study.methods import FITTABLE
from light import smaller_forests

pytestmark = pytest.mark.slow
small_forests = pytest.fixture(scope="module", autouse=True)(smaller_forests)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return save_task(plain(rows=(48, 48, 48)), tmp_path_factory.mktemp("task") / "t.npz")


@pytest.mark.parametrize("key", FITTABLE)
def test_every_method_is_fitted_and_applied(run, task, tmp_path, monkeypatch, key):
    method = FITTABLE[key]
    if method.gradient and find_spec("torch") is None:
        pytest.skip("training by gradient needs torch")
    monkeypatch.setitem(FITTABLE, key, replace(method, candidates=method.candidates[:1]))
    budget = ("--max-steps", 2) if method.gradient else ()
    code, _, err = run("fit", task, "-o", tmp_path / "m", "--method", key, *budget)
    assert (code, err) == (0, "")
    model, X = fairerclip.load(tmp_path / "m"), load_task(task).test.X
    assert type(model).__name__ == method.home
    code, _, err = run("apply", tmp_path / "m", task, "-o", tmp_path / "out.npz")
    assert (code, err) == (0, "")
    with np.load(tmp_path / "out.npz") as out:
        assert out["prediction"].tolist() == model.predict(X).tolist()
        np.testing.assert_allclose(out["score"], model.scores(X), rtol=1e-4, atol=1e-5)
        assert ("embedding" in out) == model.changes_embeddings
