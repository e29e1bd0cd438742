"""Rows on a cluster: results are those of one process, also if a worker is killed; see `cluster_checks.py`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairerclip.data.distribution import _groups, _part_rows


@pytest.mark.linux
@pytest.mark.slow
def test_results_on_a_cluster_of_processes_are_those_of_one_process():
    pytest.importorskip("distributed", reason="needs the extra dask")
    command = [sys.executable, Path(__file__).with_name("cluster_checks.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    failed = {name: how for name, how in json.loads(done.stdout).items() if how is not None}
    assert not failed, "\n".join(failed.values())


@pytest.mark.parametrize(
    ("rows", "threads", "expected"),
    [(400_000_000, 256, 520_834), (300_000, 2, 100_000), (50_000, 2, 25_000), (100, 2, 100), (1, 64, 1)],
)
def test_parts_are_few_and_every_thread_has_one(rows, threads, expected):
    assert _part_rows(rows, threads) == expected


def test_small_chunks_are_joined_and_large_ones_are_not_divided():
    assert _groups([4, 4, 4, 9], 8) == [slice(0, 2), slice(2, 3), slice(3, 4)]
    assert _groups([5], 8) == [slice(0, 1)]
