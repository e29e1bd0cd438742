"""The published schemas of what `compare` and `reproduce` write, and files that the first versions wrote."""

import json
from pathlib import Path

import pydantic
import pytest

from fairerclip.study.comparison import Comparison
from fairerclip.study.paper.entry_result import EntryResult
from fairerclip.study.ranking_comparison import RankingComparison

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference"
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
