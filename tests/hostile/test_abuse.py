"""Hostile files are refused with one line, in under a second and with little memory, whatever reads them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from abuse import CASES, faults

GOOD = {"kind": "refused", "message": "one line", "seconds": 0.5, "megabytes": 100.0}


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


@pytest.mark.parametrize(
    "change",
    [{"kind": "taken"}, {"kind": "killed"}, {"seconds": 1.5}, {"megabytes": 250.0}, {"message": "a\nb"}],
)
def test_the_limits_can_be_missed(change):
    one = CASES["npz_of_zeros"]
    assert faults(one, GOOD) == []
    assert len(faults(one, GOOD | change)) == 1
