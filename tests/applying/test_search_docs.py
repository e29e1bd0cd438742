"""The Python of docs/how-to/search.md runs, and its recipe with faiss finds what the mitigator ranks."""

import re
from pathlib import Path

import numpy as np
import pytest

from fairerclip.data.stores import open_store
from small_collection import PROMPTS, QUERIES, clip_retrieval, rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "search.md"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_recipe_with_faiss_ranks_as_the_mitigator_does(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    clip_retrieval(Path("laion"), sizes=(300, 200))
    X, s = rows(200, seed=1)
    known = {
        **{"X_few": X, "s_few": np.where(s == "x", "woman", "man"), "groups": s, "X": X, "X_new": X},
        **{"T_woman": PROMPTS["x"], "T_man": PROMPTS["y"], "q": QUERIES[0], "Q": QUERIES, "queries": QUERIES},
    }
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, known)  # noqa: S102 - our own documentation
    assert known["use_mitigated"]
    collection = open_store("laion")
    best = known["mitigator"].rank(QUERIES[0], collection[:], 10).indices
    assert known["ids"].tolist() == collection.ids[best].tolist()
