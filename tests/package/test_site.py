"""The documentation builds without a warning, names everything public, and its Python runs."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import fairerclip
import fairerclip.data
from fairerclip import EmbeddingMitigator, FairerCLIP
from light import fewer_fits, lighter_audits

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = {"_build", "gallery", "commands", "generated", "__pycache__"}
PAGES = {
    str(page.relative_to(DOCS)): re.findall(
        r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
    )
    for page in sorted(DOCS.rglob("*.md"))
    if not set(page.relative_to(DOCS).parts) & GENERATED
}
TESTED_ELSEWHERE = {"explanation/report.md", "how-to/export.md", "how-to/notebooks.md", "how-to/serving.md"}
NOT_RUN = {
    "how-to/datasets.md": "needs the data sets",
    "how-to/embeddings.md": "needs stores and tables",
    "how-to/encoders.md": "needs weights",
    "how-to/prompts.md": "needs an encoder",
    "how-to/scale.md": "needs a cluster",
    "how-to/search.md": "needs a store and its index",
    "reference/format.md": "the second needs the network",
}
"""Pages whose Python is only read: its imports must exist."""
RUN = [
    name for name, blocks in PAGES.items() if blocks and name not in TESTED_ELSEWHERE and name not in NOT_RUN
]
EXTENSIONS = (
    "sphinx",
    "myst_parser",
    "numpydoc",
    "pydata_sphinx_theme",
    "sphinx_copybutton",
    "sphinx_design",
)

light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)
few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)
FOLDERS = "benchmarks,development,explanation,gallery,how-to,reproduction"
LEFT_OUT = [
    *("-D", f"exclude_patterns=_*,pictures,reference/[!gt]*,{FOLDERS}"),
    *("-D", "suppress_warnings=config.cache,myst.header,myst.xref_missing,toc,ref"),
]
"""Options that leave out all pages but the first ones and two of the reference, and what is said of links to them."""


@pytest.fixture
def build(tmp_path):
    """Build the site with options of Sphinx; returns the folder of its pages."""
    missing = [name for name in (*EXTENSIONS, "sphinx_gallery", "matplotlib") if find_spec(name) is None]
    if missing:
        pytest.skip(f"the extra docs is not installed: {', '.join(missing)}")
    source = tmp_path / "docs"
    shutil.copytree(DOCS, source, ignore=shutil.ignore_patterns(*GENERATED))
    for entry in ROOT.iterdir():  # pages include and link to what is beside them
        if entry.suffix == ".md":
            shutil.copy(entry, tmp_path)
        elif entry.name != "docs" and not entry.name.startswith("."):
            (tmp_path / entry.name).symlink_to(entry)

    def run(*options):
        # Examples are executed by make docs.
        unexecuted = ["-D", "plot_gallery=0"] if any(tmp_path.glob("examples/gallery/plot_*.py")) else []
        words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", *unexecuted, *options]
        html = tmp_path / "html"
        done = subprocess.run([*words, source, html], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return html

    return run


def check_mathematics(html):
    math = (html / "math.html").read_text(encoding="utf-8")
    assert math.count("<math") > 1000
    assert '<script src="http' not in math


def test_the_first_pages_of_the_site_build_without_a_warning(build, tmp_path):
    (tmp_path / "examples").unlink()  # to make pages of them takes longer than the rest
    html = build(*LEFT_OUT)
    pages = {page.relative_to(html) for page in html.rglob("*.html")}
    assert {Path(name).with_suffix(".html") for name in PAGES if "/" not in name} <= pages
    assert Path("reference/generated/fairerclip.FairerCLIPSearch.html") in pages
    check_mathematics(html)


@pytest.mark.timeout(600)
def test_the_site_builds_without_a_warning(build):
    html = build()
    pages = {page.relative_to(html) for page in html.rglob("*.html")}
    assert len(pages) > 150
    assert {Path(name).with_suffix(".html") for name in PAGES} <= pages
    check_mathematics(html)


def test_every_public_name_is_in_the_reference():
    reference = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    listed = set()
    for module, names in re.findall(r"\.\. currentmodule:: (\S+)\n(.*?)```", reference, re.DOTALL):
        listed |= {f"{module}.{name}" for name in re.findall(r"^   (\w+)$", names, re.MULTILINE)}
    here = {name.rpartition(".")[2] for name in listed if name.count(".") == 1 or ".names." in name}
    for package in ("", "data", "metrics", "baselines", "encoders", "auditing", "report", "export"):
        module = import_module(f"fairerclip.{package}".rstrip("."))
        absent = [
            name
            for name in module.__all__
            if f"{module.__name__}.{name}" not in listed and name not in here and not name.startswith("__")
        ]
        assert absent == [], module.__name__
    for name in listed:
        home, _, last = name.rpartition(".")
        assert hasattr(import_module(home), last), name


def test_the_reference_has_the_rooms_in_the_order_of_the_architecture():
    index = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    rooms = index.partition(":caption: Python")[2].partition("```")[0].split()[2:]
    source = {folder.name for folder in (ROOT / "src" / "fairerclip").iterdir() if folder.is_dir()}
    assert set(rooms) - {"errors"} <= source
    assert rooms.index("data") < rooms.index("metrics") < rooms.index("model") < rooms.index("report")


@pytest.fixture(scope="module")
def names():
    """What snippets use without saying where it is from: rows, labels, prompts and a fitted model."""
    task = fairerclip.data.simulate("waterbirds", seed=1, scale=0.05, width=48)
    place = task.sensitive_attribute()
    train, val, test = task.train, task.val, task.test
    some = train.y.astype(object)
    some[::2] = None
    model = FairerCLIP(random_state=0, n_features=60)
    model.fit(train.X, train.y, text=task.text_target, sensitive_text=place.text)
    classes = np.array(["cat", "dog"])
    return {
        "FairerCLIP": FairerCLIP,
        "EmbeddingMitigator": EmbeddingMitigator,
        "fairerclip": fairerclip,
        **{"task": task, "X": train.X, "y": train.y, "s": train.sensitive(), "y_with_none": some},
        **{"T": task.text_target, "TS": place.text, "t0": task.text_target[0], "t1": task.text_target[1]},
        **{"X_val": val.X, "y_val": val.y, "s_val": val.sensitive(), "animals": classes[train.y]},
        **{"X_test": test.X, "y_test": test.y, "s_test": test.sensitive(), "X_new": test.X},
        **{"model": model, "scores": model.scores(test.X)[:, 1], "groups": test.sensitive()},
    }


@pytest.mark.parametrize("page", RUN)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_python_of_a_page_runs_as_printed(page, names, tmp_path, monkeypatch):
    small = functools.partial(fairerclip.data.simulate, scale=0.05, width=48)
    monkeypatch.setattr(fairerclip.data, "simulate", small)
    monkeypatch.chdir(tmp_path)
    fairerclip.data.save_task(names["task"], "mine.npz")
    known = dict(names)
    for block in PAGES[page]:  # each continues the one before
        exec(block, known)  # noqa: S102 - our own documentation


@pytest.mark.parametrize("page", NOT_RUN)
def test_names_that_a_page_imports_are_there(page):
    for block in PAGES[page]:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("fairerclip"):
                for alias in node.names:
                    assert hasattr(import_module(node.module), alias.name), (page, alias.name)
