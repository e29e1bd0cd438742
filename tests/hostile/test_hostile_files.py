"""Hostile files are refused in one line, at once and with little memory, whatever they are read by."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_files import FILES

pytestmark = [pytest.mark.slow, pytest.mark.linux]
SECONDS = 2
"""Of the processor: the second that is promised, and one for a busy machine."""


@pytest.fixture(scope="module")
def outcomes():
    """What became of each file in one child, until something ended it."""
    for library in ("pyarrow", "openpyxl", "PIL"):
        pytest.importorskip(library)
    script = Path(__file__).with_name("hostile_files.py")
    child = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    return {found.pop("name"): found for found in map(json.loads, child.stdout.splitlines())}, child.stderr


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_is_refused_at_once(outcomes, name):
    found, said = outcomes
    assert name in found, f"the process ended: {said[-500:]}"
    assert (found[name]["kind"] == "refused") or name.startswith("tar_"), found[name]  # a tar is told by item
    assert found[name]["kind"] in ("refused", "taken")
    assert "\n" not in found[name]["message"]
    assert found[name]["seconds"] < SECONDS
