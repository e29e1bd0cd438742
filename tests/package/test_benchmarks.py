"""The quick benchmarks run in the smallest sizes, and fail where a target is missed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
TINY = [
    "closed_form --scale 0.02 --width 48 --features 40 --points 2 --repeats 1",
    "folds --scale 0.02 --width 48 --features 40 --repeats 1",
    "probe_path --rows 60 --width 12 --penalties 3 --repeats 1",
    "bootstrap --rows 500 --replicates 5 --repeats 1",
    "transform --rows 400 --width 48",
    "predict --rows 400 --width 48 --features 40 --repeats 1",
    "serve --rows 8 --requests 20 --connections 2 --width 48 --features 40 --repeats 1",
    "join --rows 300",
    "fit_large --rows 400 --width 48 --features 40 --covariance 40 --without-labels 40 --automatic 40 --repeats 1",
    "imports --repeats 1",
]


@pytest.mark.slow
@pytest.mark.linux
@pytest.mark.parametrize("line", TINY, ids=lambda line: line.split()[0])
def test_a_benchmark_keeps_its_figures_and_its_exit_code_says_whether_a_target_was_missed(line, tmp_path):
    name, *options = line.split()
    command = [sys.executable, str(FOLDER / f"{name}.py"), *options, "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    (file,) = tmp_path.glob(f"{name}*.json")
    figures = json.loads(file.read_text())["figures"]
    assert figures
    assert done.returncode == any(figure["met"] is False for figure in figures)
