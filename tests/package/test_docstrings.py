"""Examples of docstrings run and give what they show."""

import doctest
import importlib
import pkgutil

import pytest

import fairerclip
from fairerclip.errors import MissingExtraError

MODULES = sorted(m.name for m in pkgutil.walk_packages(fairerclip.__path__, "fairerclip."))
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("fairerclip"):
            raise
        pytest.skip(f"needs {missing.name}")
    try:
        doctest.testmod(module, optionflags=FLAGS, raise_on_error=True)
    except doctest.UnexpectedException as unexpected:
        if isinstance(unexpected.exc_info[1], MissingExtraError):
            pytest.skip(str(unexpected.exc_info[1]))
        raise
