"""Hostile files are refused with one line, in under a second and with little memory, whatever reads them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from abuse import CASES, faults

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs /proc"),
    pytest.mark.xdist_group("abuse"),
]


@pytest.fixture(scope="module")
def answers():
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("abuse.py"), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_hostile_file_is_refused_at_once(name, answers):
    assert faults(CASES[name], answers[name]) == [], answers[name]["message"]


def test_the_limits_can_be_missed(answers):
    one, came = CASES["npz_of_zeros"], answers["npz_of_zeros"]
    for change in ({"kind": "taken"}, {"seconds": 1.5}, {"megabytes": 250.0}, {"message": "a\nb"}):
        assert len(faults(one, came | change)) == 1
