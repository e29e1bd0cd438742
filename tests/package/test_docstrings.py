"""The examples in docstrings run and give what they show."""

import doctest
import importlib
import importlib.util
import pkgutil

import pytest

import fairerclip

MODULES = sorted(m.name for m in pkgutil.walk_packages(fairerclip.__path__, "fairerclip."))
if importlib.util.find_spec("torch") is None:
    NEED_TORCH = {f"fairerclip.baselines.gradient.{name}" for name in ("contrast", "loop", "nets")}
    MODULES = [name for name in MODULES if name not in NEED_TORCH]
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
