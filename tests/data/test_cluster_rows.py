"""Rows on a cluster: results are those of one process, whatever happens to a worker; see `tests/cluster_checks.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairerclip.data.distribution import _groups, _part_rows

CHECKS = Path(__file__).resolve().parents[1] / "cluster_checks.py"


def test_rows_on_a_cluster_of_processes_pass_every_check():
    pytest.importorskip("distributed", reason='needs "fairerclip[dask]"')
    done = subprocess.run([sys.executable, CHECKS], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    failed = "\n".join(f"{name}: {how}" for name, how in found.items() if how is not None)
    assert not failed, failed
    assert len(found) >= 25


@pytest.mark.parametrize(
    ("rows", "threads", "expected"),
    [(400_000_000, 256, 520_834), (300_000, 2, 100_000), (50_000, 2, 25_000), (100, 2, 100), (1, 64, 1)],
)
def test_parts_are_few_and_every_thread_has_one(rows, threads, expected):
    assert _part_rows(rows, threads) == expected


def test_small_chunks_are_joined_and_large_ones_are_not_divided():
    assert _groups([4, 4, 4, 9], 8) == [slice(0, 2), slice(2, 3), slice(3, 4)]
    assert _groups([5], 8) == [slice(0, 1)]
