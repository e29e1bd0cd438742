"""The same fit again: the same bytes, and how far other threads, another precision or an offset move it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from same_fit import fitted
from threadpoolctl import threadpool_limits

from fairerclip import FairerCLIP
from fairerclip.data import simulate
from small_models import small


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(tmp_path):
    fitted().save(tmp_path / "here")
    script = f"from same_fit import fitted; fitted().save({str(tmp_path / 'there')!r})"
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}  # one thread, as the tests have it
    subprocess.run([sys.executable, "-c", script], check=True, env=env, timeout=120)
    here, there = (sorted((tmp_path / name).iterdir()) for name in ("here", "there"))
    assert [file.name for file in here] == [file.name for file in there]
    assert [file.read_bytes() for file in here] == [file.read_bytes() for file in there]


@pytest.mark.slow
def test_two_threads_differ_from_one_by_what_is_promised():
    dtype, promised = "float32", 1e-5
    task = simulate("waterbirds", scale=0.05, width=48)
    X, Xt, text, sensitive_text = (
        a.astype(dtype)
        for a in (task.train.X, task.test.X, task.text_target, task.sensitive_attribute().text)
    )
    scores = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = FairerCLIP(n_features=513, random_state=0, dtype=dtype)
            model.fit(X, task.train.y, text=text, sensitive_text=sensitive_text)
            scores.append(model.scores(Xt))
    assert np.abs(scores[0] - scores[1]).max() <= promised * np.abs(scores[0]).max()


def test_an_offset_of_linear_features_moves_the_unit_of_gamma_alone():
    task = simulate("waterbirds", scale=0.1, width=48)
    X, y, s = task.train.X.astype(np.float64), task.train.y, task.train.sensitive()

    def fit(offset, gamma, gamma_text):
        model = small(kernel="linear", normalize=False, gamma=gamma, gamma_text=gamma_text)
        return model.fit(X + offset, y, sensitive_features=s)

    plain, moved = fit(0.0, 1e-3, 1e-4), fit(0.1, 1e-3, 1e-4)
    units = [
        (getattr(plain, name).scale / getattr(moved, name).scale) ** 2
        for name in ("features_", "text_features_")
    ]
    same = fit(0.1, 1e-3 * units[0], 1e-4 * units[1])
    expected = plain.decision_function(X)
    np.testing.assert_allclose(same.decision_function(X + 0.1), expected, atol=1e-6 * np.abs(expected).max())
    assert np.abs(moved.decision_function(X + 0.1) - expected).max() > 0.01 * np.abs(expected).max()
