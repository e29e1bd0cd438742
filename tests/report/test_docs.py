"""docs/explanation/report.md does what it says."""

import re
from pathlib import Path

import pytest

from fairerclip.data import save_task, simulate
from light import fewer_fits, lighter_audits

light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)
few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "report.md"


def test_the_python_of_the_documentation_runs_as_printed(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    save_task(simulate("waterbirds", seed=1, scale=0.05, width=32), tmp_path / "mine.npz")
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(block, {})  # noqa: S102 - our own documentation
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
