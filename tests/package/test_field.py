"""The page of all methods: its table is that of the code, and its figures are those of kept runs."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fairerclip.data import simulate
from fairerclip.experiment import Experiment
from fairerclip.study.compare import CompareOptions, compare
from fairerclip.study.comparison import write_comparison
from fairerclip.study.comparison_page import page
from fairerclip.study.methods import METHODS
from fairerclip.study.workers import guarded

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def field():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import field

        yield field
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_the_table_of_methods_is_that_of_the_code(field):
    text = (ROOT / "docs" / "field.md").read_text(encoding="utf-8")
    lines = field.methods_table()
    assert "\n".join(lines) in text, "write the table anew: python benchmarks/field.py methods"
    assert len(lines) == len(METHODS) + 3


def test_tables_are_made_of_kept_runs(field, tmp_path, monkeypatch):
    def inline(calls, answered, **_):
        for number, call in enumerate(calls):
            answered(number, guarded(call))

    monkeypatch.setattr("fairerclip.study.jobs.run_calls", inline)
    experiment = Experiment.of(simulate("waterbirds", seed=1, scale=0.1, width=48))
    options = CompareOptions(methods=("zero-shot", "orth-proj", "fairerclip-none"), splits=3, jobs=1)
    found = compare(experiment, options, work=tmp_path / "pacs" / "runs")
    write_comparison(found, page(found), tmp_path / "pacs")
    text = "\n".join(field.tables(tmp_path))
    by_key = {row.method: row for row in found.rows}
    worst = by_key["zero-shot"].figures.worst_group.mean
    assert f"| Zero-shot | no labels | 3 | {100 * worst:.1f} [" in text
    gains = [
        own.report.worst.accuracy - other.report.worst.accuracy
        for own, other in zip(by_key["fairerclip-none"].runs, by_key["orth-proj"].runs, strict=True)
    ]
    row = next(line for line in text.splitlines() if line.startswith("| Orth-Proj | no labels | 3 |"))
    assert f"| {100 * np.mean(gains):+.1f} [" in row
    # Another number of splits for one method is no harm.
    (tmp_path / "pacs" / "runs" / "orth-proj-split-2.json").unlink()
    assert "| Orth-Proj | no labels | 2 |" in "\n".join(field.tables(tmp_path))
