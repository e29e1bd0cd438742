"""Examples of the gallery: scripts that the documentation site runs and shows with their plots."""

import ast
import re
import runpy
from importlib import import_module
from pathlib import Path

import pytest

GALLERY = Path(__file__).resolve().parents[2] / "examples" / "gallery"
SCRIPTS = sorted(GALLERY.glob("plot_*.py"))
PUBLIC = {
    "fairerclip",
    *(
        f"fairerclip.{part}"
        for part in ("baselines", "data", "encoders", "errors", "export", "metrics", "report")
    ),
}


def stem(file):
    return file.stem


def prose(text):
    """Sentences of a script: its docstring and its comment lines."""
    comments = [line for line in text.splitlines() if line.startswith("# ") and not line.startswith("# %%")]
    return "\n".join([ast.get_docstring(ast.parse(text)), *comments])


def test_there_are_ten_examples_and_a_page_above_them():
    assert len(SCRIPTS) >= 10
    assert (GALLERY / "GALLERY_HEADER.rst").read_text().startswith("Examples\n========\n")


@pytest.mark.parametrize("file", SCRIPTS, ids=stem)
def test_an_example_begins_with_its_title_and_draws(file):
    text = file.read_text()
    title, line = ast.get_docstring(ast.parse(text)).splitlines()[:2]
    assert line == "=" * len(title)
    assert "\n# %%\n" in text
    assert "plt.show()" in text


@pytest.mark.parametrize("file", SCRIPTS, ids=stem)
def test_an_example_imports_public_names_from_their_public_places(file):
    imported = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    own = [node for node in imported if node.module.split(".")[0] == "fairerclip"]
    assert own
    for node in own:
        assert node.module in PUBLIC
        home = import_module(node.module)
        assert [a.name for a in node.names if a.name not in getattr(home, "__all__", dir(home))] == []


@pytest.mark.parametrize("file", SCRIPTS, ids=stem)
def test_the_prose_of_an_example_quotes_no_result_and_promises_no_removal(file):
    words = prose(file.read_text()).replace("95 % interval", "interval")
    assert re.findall(r"\d+\.\d+|\d+ ?%|\d+ points", words) == []
    assert re.findall(r"(?i)\bremov\w+|\bdebias\w*|\bbias-free\b", words) == []


@pytest.mark.parametrize("file", SCRIPTS, ids=stem)
def test_an_example_runs_without_warnings_and_draws_figures(file, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("fairlearn")
    matplotlib.use("Agg")
    plt = import_module("matplotlib.pyplot")
    drawn = []
    monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()))
    try:
        runpy.run_path(str(file))
    finally:
        plt.close("all")
    assert drawn


def test_the_python_of_the_page_on_notebooks_runs_as_printed():
    page = (GALLERY.parents[1] / "docs" / "how-to" / "notebooks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 - our own documentation
    assert "<svg" in names["path"]._repr_html_()
    assert names["found"]._repr_html_().count("<table>") == 1
