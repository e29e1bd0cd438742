"""Docstrings have one form, and their examples run and give what they show."""

import ast
import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import fairerclip

MODULES = sorted(m.name for m in pkgutil.walk_packages(fairerclip.__path__, "fairerclip."))
if importlib.util.find_spec("torch") is None:
    NEED_TORCH = {f"fairerclip.baselines.gradient.{name}" for name in ("contrast", "loop", "nets")}
    NEED_TORCH |= {"fairerclip.data.device_rows"}
    NEED_TORCH |= {f"fairerclip.export.{name}" for name in ("mitigated_clip", "torch_module")}
    MODULES = [name for name in MODULES if name not in NEED_TORCH]
if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("prometheus_client") is None:
    FREE = {
        f"fairerclip.serving.{name}" for name in ("problems", "service_log", "service_settings", "supervisor")
    }
    MODULES = [name for name in MODULES if not name.startswith("fairerclip.serving.") or name in FREE]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert failed == 0


def test_there_are_examples_to_run():
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        example
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        for example in test.examples
    ]
    assert len(examples) > 100


SECTIONS = {"Parameters", "Other Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns"}
DESCRIBED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def entries_without_description(doc):
    """Entries of numpydoc's sections that have no indented line below them."""
    lines, section = doc.splitlines(), None
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if below.startswith("---"):
            section = line
        elif section in SECTIONS and line[:1] not in ("", " ", "-") and not below.startswith("    "):
            yield line


def test_every_entry_of_a_docstring_has_its_description_below_it():
    package, found = Path(fairerclip.__file__).parent, []
    for file in package.rglob("*.py"):
        nodes = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, DESCRIBED))
        docs = filter(None, map(ast.get_docstring, nodes))
        found += [(file.name, line) for doc in docs for line in entries_without_description(doc)]
    assert found == []
