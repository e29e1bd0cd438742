"""The README's example and the 100-line example run, and agree with the package."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from fairerclip import FairerCLIP, load
from fairerclip.data import save_task, simulate
from light import fewer_fits, lighter_audits
from paper import PAPER

ROOT = Path(__file__).resolve().parents[2]
light_audits = pytest.fixture(lighter_audits)
few_fits = pytest.fixture(fewer_fits)


def test_the_readme_example_runs_and_prints_what_it_computes():
    codes = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        for code in codes:  # the second continues the first
            exec(code, names)  # noqa: S102 - our own README
    rows = names["task"].test.X
    assert len(names["ranking"].indices) == 20
    assert names["index"].shape == rows.shape
    np.testing.assert_allclose(
        names["ranking"].scores,
        (names["index"] @ names["task"].text_target[0])[names["ranking"].indices],
        atol=1e-5,
    )
    average, worst = map(float, re.findall(r"average ([\d.]+), worst group ([\d.]+)", printed.getvalue())[0])
    assert 0.8 < average < 1
    assert 0.75 < worst < average


def test_the_commands_of_the_readme_run(run, light_audits, few_fits, tmp_path, monkeypatch):
    lines = re.findall(r"^(fairerclip .*?)\s+#", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["audit", "report", "fit"]
    monkeypatch.chdir(tmp_path)
    save_task(simulate("waterbirds", scale=0.1, width=48), "mine.npz")
    for line in lines:
        code, _, err = run(*line.split()[1:])
        assert code == 0, (line, err)
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert load("model").classes_.tolist() == ["landbird", "waterbird"]


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(ROOT / "examples" / "fairerclip_in_100_lines.py"))


@pytest.mark.parametrize(("classes", "values"), [(2, 2), (4, 3)])
def test_the_100_line_example_agrees_with_the_package(example, embeddings, classes, values):
    e = embeddings(seed=3, n=300, n_classes=classes, n_sensitive=values, correlation=0.6)
    same = {"tau": 0.6, "tau_z": 0.5, "gamma": 1e-3, "gamma_text": 1e-3}
    model = FairerCLIP(**{**PAPER, **same, "n_features": 80, "dtype": "float64", "random_state": 0})
    model.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    scores, eigenvalues = example["fairerclip"](
        e.X, e.text, e.y, e.s, tau=0.6, tau_z=0.5, gamma=1e-3, phi=model.features_.transform
    )
    np.testing.assert_allclose(eigenvalues, model.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(scores(e.X), model.scores(e.X), atol=1e-5 * np.abs(scores(e.X)).max())


def test_the_100_line_example_runs(example):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(ROOT / "examples" / "fairerclip_in_100_lines.py"), run_name="__main__")
    worst = [float(v) for v in re.findall(r"worst group ([\d.]+)", printed.getvalue())]
    assert len(worst) == 3
    assert worst[0] < worst[1] < worst[2]
