"""The Python of the documentation runs."""

from __future__ import annotations

import ast
import functools
import re
from importlib import import_module
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
TESTED_ELSEWHERE = {"how-to/export.md", "how-to/search.md", "how-to/serving.md"}
NOT_RUN = {
    "how-to/datasets.md": "needs the data sets",
    "how-to/embeddings.md": "needs stores and tables",
    "how-to/encoders.md": "needs weights",
    "how-to/prompts.md": "needs an encoder",
    "how-to/scale.md": "needs a cluster",
    "reference/format.md": "the second needs the network",
}
"""Pages whose Python is only read: its imports must exist."""
RUN = [
    name for name, blocks in PAGES.items() if blocks and name not in TESTED_ELSEWHERE and name not in NOT_RUN
]
light_audits = pytest.fixture(scope="module", autouse=True)(lighter_audits)
few_fits = pytest.fixture(scope="module", autouse=True)(fewer_fits)


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


@pytest.mark.slow
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
