"""docs/how-to/export.md does what it says."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "export.md"


@pytest.mark.slow
def test_the_python_of_the_documentation_runs_as_printed(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:  # the second continues the first
        exec(block, names)  # noqa: S102 - our own documentation
    same, difference = map(float, capsys.readouterr().out.split())
    assert same == 1.0
    assert difference < 1e-4
    assert names["found"]["scores"].shape == names["probabilities"].shape
