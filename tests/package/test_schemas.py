"""The published schemas are those of what is written."""

import json
from pathlib import Path

import pydantic
import pytest

from fairerclip.auditing.results import AuditResults
from fairerclip.study.comparison import Comparison
from fairerclip.study.paper.entry_result import EntryResult
from fairerclip.study.ranking_comparison import RankingComparison

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
DESCRIBED = tuple(map(int, pydantic.VERSION.split(".")[:2])) >= (2, 13)
described = pytest.mark.skipif(not DESCRIBED, reason="pydantic before 2.13 leaves out what data classes are")


@pytest.mark.parametrize(
    ("name", "model", "mode"),
    [
        ("results", AuditResults, "validation"),
        ("comparison", Comparison, "serialization"),
        ("rankings", RankingComparison, "serialization"),
        pytest.param("reproduction", EntryResult, "serialization", marks=described),
    ],
)
def test_the_published_schemas_are_current(name, model, mode):
    fresh = json.dumps(model.model_json_schema(mode=mode), indent=1, ensure_ascii=False) + "\n"
    published = DOCS / f"{name}.schema.json"
    assert published.read_text(encoding="utf-8") == fresh, f"write {published.name} anew"
