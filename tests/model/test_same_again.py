"""The same fit again: the same bytes, and how far other threads, another precision or an offset move it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from same_fit import fitted


@pytest.mark.slow
def test_another_process_writes_the_same_bytes(tmp_path):
    fitted().save(tmp_path / "here")
    script = f"from same_fit import fitted; fitted().save({str(tmp_path / 'there')!r})"
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": paths}  # one thread, as the tests have it
    subprocess.run([sys.executable, "-c", script], check=True, env=env, timeout=120)
    here, there = (sorted((tmp_path / name).iterdir()) for name in ("here", "there"))
    assert [file.name for file in here] == [file.name for file in there]
    assert [file.read_bytes() for file in here] == [file.read_bytes() for file in there]
