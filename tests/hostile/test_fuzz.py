"""Damaged files end with a value or an error of ours, whatever reads them; `make fuzz` tries many more."""

import importlib.util

import pytest
from fuzz import INSTRUMENTED, MEGABYTES, run
from readers import READERS

CASES = 10
pytestmark = pytest.mark.linux


@pytest.mark.parametrize("name", sorted(READERS))
def test_nothing_but_our_errors_escapes_a_reader(name):
    found = run([name], CASES, seed=0)[name]
    assert (dict(found.escapes), found.hangs) == ({}, 0)
    assert found.megabytes < MEGABYTES
    assert found.cases == CASES
    assert found.refused < CASES  # the good file is taken
    assert found.refused > 0 or name == "image-tar"  # what is wrong in a tar is told item by item


@pytest.mark.parametrize("name", INSTRUMENTED)
def test_what_guided_fuzzing_watches_is_there(name):
    assert importlib.util.find_spec(f"fairerclip.{name}") is not None
