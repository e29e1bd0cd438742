"""The page of all methods: its table is that of the code, and its figures are those of kept runs."""

import json
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


@pytest.fixture(scope="module")
def kept(field, tmp_path_factory):
    """The study with its kept runs."""
    home = tmp_path_factory.mktemp("field")
    field.restore(home)
    return home


def test_the_pages_have_the_tables_of_the_code_and_of_kept_runs(field, kept):
    for path, text in field.pages(kept).items():
        assert path.read_text(encoding="utf-8") == text, (
            "write the tables anew: python benchmarks/field.py write FIELD"
        )
    assert len(field.methods_table(kept)) == len(METHODS) + 3


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
    assert "| objects × style (PACS) | 3 methods, 3 splits | – |" in field.splits_finished(tmp_path)
    (best, other) = field.against_others(tmp_path / "pacs")["none"]
    assert best.mean <= other.mean
    assert {one.title: one.mean for one in (best, other)}["Orth-Proj"] == pytest.approx(100 * np.mean(gains))
    own = [run.as_published.report.worst.accuracy for run in by_key["fairerclip-none"].runs]
    others = [run.as_published.report.worst.accuracy for run in by_key["orth-proj"].runs]
    unlabelled = text.partition("## Without any label")[2].partition("\n## ")[0]
    row = next(line for line in unlabelled.splitlines() if line.startswith("| **FairerCLIP, no labels** |"))
    assert f"| {100 * np.mean(own):.1f} / " in row
    found = field.against_others(tmp_path / "pacs", field.published_runs)["none"]
    expected = 100 * (np.mean(own) - np.mean(others))
    assert {one.title: one.mean for one in found}["Orth-Proj"] == pytest.approx(expected)
    # Another number of splits for one method is no harm.
    (tmp_path / "pacs" / "runs" / "orth-proj-split-2.json").unlink()
    assert "| Orth-Proj | no labels | 2 |" in "\n".join(field.tables(tmp_path))


def test_the_table_of_a_gallery_has_the_shortest_times_of_its_runs(field, kept):
    for attribute in ("sex", "race"):
        folder = kept / f"gallery-{attribute}"
        runs = [
            json.loads(file.read_text())["answer"]
            for file in folder.glob("runs/rotation-rankings-split-*.json")
        ]
        fit, choice = (min(run[name] for run in runs) for name in ("seconds", "seconds_in_all"))
        table = field.gallery_table(folder, attribute)
        (row,) = (line for line in table if line.startswith("| Closed-form rotation |"))
        assert f"| {fit:.2f} | {choice:.1f} | " in row


def test_differences_say_whether_they_are_told_apart(field):
    assert field.Against("one", -2.0, 1.0, 5).verdict == "worse"
    assert field.Against("one", 2.0, 1.0, 5).verdict == "better"
    assert field.Against("one", -1.0, 2.0, 5).verdict == "not told apart"
    assert field.Against("one", -1.0, 2.0, 5).shown == "−1.0 [−3.0, +1.0]"


def test_a_page_without_the_place_of_a_table_is_an_error(field):
    begin, end = "<!-- rows: written by benchmarks/field.py -->", "<!-- end of rows -->"
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    assert field.written(page, "rows", ["new", "er"]) == page.replace("old", "new\ner")
    with pytest.raises(SystemExit, match="no part"):
        field.written(page, "columns", [])


def test_packed_runs_are_restored_where_they_are_missing(field, tmp_path):
    runs = tmp_path / "one" / "pacs" / "runs"
    runs.mkdir(parents=True)
    for name in ("zero-shot-split-0.json", "zero-shot-split-1.json", "zero-shot-0.json"):
        (runs / name).write_text(f'"{name}"')
    (runs.parent / "comparison.json").write_text("{}")
    assert field.keep(tmp_path / "one", tmp_path / "kept") == field.keep(tmp_path / "one", tmp_path / "again")
    packed, again = (tmp_path / home / "pacs.tar.xz" for home in ("kept", "again"))
    assert packed.read_bytes() == again.read_bytes()
    other = tmp_path / "two" / "pacs" / "runs" / "zero-shot-split-1.json"
    other.parent.mkdir(parents=True)
    other.write_text('"newer"')
    field.restore(tmp_path / "two", tmp_path / "kept")
    assert other.read_text() == '"newer"'
    assert {path.name for path in other.parent.iterdir()} == {"zero-shot-split-0.json", other.name}
    assert (tmp_path / "two" / "pacs" / "comparison.json").read_text() == "{}"


def test_kept_runs_say_nothing_of_single_rows(kept):
    runs = [json.loads(file.read_text())["answer"] for file in kept.glob("*/runs/*.json")]
    assert runs
    assert not any(run.get("predicted") for run in runs)
