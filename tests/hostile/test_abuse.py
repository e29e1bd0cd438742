"""Hostile files are refused with one line, in under a second and with little memory, whatever reads them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from abuse import CASES, faults


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs /proc")
def test_hostile_files_are_refused_at_once():
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("abuse.py"), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(done.stdout)
    assert set(answers) == set(CASES)
    assert {name: wrong for name, came in answers.items() if (wrong := faults(CASES[name], came))} == {}
