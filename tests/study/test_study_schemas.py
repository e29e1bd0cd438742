"""The published schemas of what `compare` and `reproduce` write, and files that the first versions wrote."""

import json
from pathlib import Path

import pydantic
import pytest

from fairerclip.errors import ResultsFileError
from fairerclip.study.comparison import Comparison
from fairerclip.study.jobs import read_stored
from fairerclip.study.paper.entry_result import EntryResult
from fairerclip.study.ranking_comparison import RankingComparison

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
FIRST = {
    "source": "Simulated tasks",
    "format": "fairerclip-reproduction",
    "version": 1,
    "name": "cfd",
    "title": "t",
    "where": "fig:cfd",
    "kind": "simulated",
    "command": "",
    "settings": {"seeds": 2, "gradient_seeds": 1, "max_seconds": 20.0, "quick": False},
    "tasks": [],
    "made": {"fairerclip": "0.1.0", "scikit-learn": "1.6", "date": "2026-01-01T00:00:00Z"},
    "failures": [],
    "results": {"a": [{"figures": {"average": 0.5}}]},
    "document": {
        "title": "t",
        "source": "s",
        "notes": [],
        "tables": [{"title": "t", "columns": ["a"], "rows": [["50.0"]], "note": None, "left": 1}],
        "heatmaps": [],
        "curves": [{"title": "t", "x_title": "x", "y_title": "y", "series": {"a": [[0.0, 1.0]]}}],
    },
}
"""As the first version wrote it: a cap in seconds, and nothing on whether it failed."""


DESCRIBED = tuple(map(int, pydantic.VERSION.split(".")[:2])) >= (2, 13)
described = pytest.mark.skipif(not DESCRIBED, reason="pydantic before 2.13 leaves out what data classes are")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("comparison", Comparison),
        ("rankings", RankingComparison),
        pytest.param("reproduction", EntryResult, marks=described),
    ],
)
def test_the_published_schemas_of_studies_are_current(name, model):
    schema = model.model_json_schema(mode="serialization")
    fresh = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    published = DOCS / f"{name}.schema.json"
    assert published.read_text(encoding="utf-8") == fresh, f"write {published.name} anew"


def test_an_entry_of_the_first_version_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "cfd.json"
    file.write_text(json.dumps(FIRST))
    read = read_stored(file, EntryResult)
    assert read.as_dict() == FIRST
    assert "| 50.0 |" in read.document.to_markdown()
    assert not read.failed


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"version": 2}, r"version: expected 1, got int 2"),
        ({"failures": [3]}, r"failures\[0\]: expected text, got int 3"),
        ({"document": {**FIRST["document"], "tables": 1}}, r"document\.tables: "),
        ({"more": 1}, r"more: expected a key of the format"),
    ],
    ids=str,
)
def test_a_damaged_entry_is_refused_with_its_place(tmp_path, damage, message):
    file = tmp_path / "cfd.json"
    file.write_text(json.dumps(FIRST | damage))
    with pytest.raises(ResultsFileError, match=rf"cfd\.json: {message}"):
        read_stored(file, EntryResult)
