"""Rows on a cluster: results are those of one process, whatever happens to a worker; see `tests/cluster_checks.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairerclip.data.distribution import _groups, _part_rows

CHECKS = Path(__file__).resolve().parents[1] / "cluster_checks.py"


FEW = (
    *("fits_on_a_cluster", "a_mitigator_is_fitted", "rows_come_in_the_order", "chosen_rows_of_a_store"),
    *("a_row_that_is_not_finite", "an_address_without", "bad_arguments"),
)
"""Words in the names of the checks that make test runs: no worker is killed, for which another would have to start."""


def passed(*words):
    """Run checks on a cluster of processes, assert that all pass, and return how many there were."""
    pytest.importorskip("distributed", reason="needs the extra dask")
    done = subprocess.run(
        [sys.executable, CHECKS, *words], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    failed = "\n".join(f"{name}: {how}" for name, how in found.items() if how is not None)
    assert not failed, failed
    return len(found)


@pytest.mark.linux
def test_rows_on_a_cluster_of_processes_pass_every_check():
    assert passed() >= 25


def test_rows_on_a_cluster_of_processes_pass_some_checks():
    assert passed(*FEW) == len(FEW)


@pytest.mark.parametrize(
    ("rows", "threads", "expected"),
    [(400_000_000, 256, 520_834), (300_000, 2, 100_000), (50_000, 2, 25_000), (100, 2, 100), (1, 64, 1)],
)
def test_parts_are_few_and_every_thread_has_one(rows, threads, expected):
    assert _part_rows(rows, threads) == expected


def test_small_chunks_are_joined_and_large_ones_are_not_divided():
    assert _groups([4, 4, 4, 9], 8) == [slice(0, 2), slice(2, 3), slice(3, 4)]
    assert _groups([5], 8) == [slice(0, 1)]
