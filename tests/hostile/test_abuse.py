"""Hostile files are refused with one line, in under a second and with little memory, whatever reads them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from abuse import CASES, faults

pytestmark = pytest.mark.linux


def test_hostile_files_are_refused_at_once():
    assert_refused(list(CASES))


def test_some_hostile_files_are_refused_at_once():
    assert_refused(list(CASES)[::5])


def assert_refused(names):
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("abuse.py"), "--json", *names],
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(done.stdout)
    assert set(answers) == set(names)
    assert {name: wrong for name, came in answers.items() if (wrong := faults(CASES[name], came))} == {}
