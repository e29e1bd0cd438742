"""The card and the conventions of the Hugging Face Hub, without a network."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip import load
from fairerclip.baselines import ZeroShot
from fairerclip.data import Provenance
from fairerclip.errors import ModelFileError
from fairerclip.model.details import GroupCount, ModelDetails, ModelMetric
from small_models import small

EVIL = [
    "---\nlicense: mit\n---\n# owned",
    '"}\n- x: [*a](javascript:alert(1)) <script>alert(1)</script>',
    "a|b\\`${x}`: {{ jinja }} \u202e\x00\x85\u2028 @somebody www.example.com",
    "!!python/object/apply:os.system ['true']",
    "&anchor *alias %TAG ? - : 1e-07",
]
DETAILS = ModelDetails(
    task=EVIL[0],
    prompts={EVIL[1]: EVIL, EVIL[2]: [EVIL[3]]},
    sensitive={EVIL[3]: EVIL},
    sensitive_prompts={EVIL[3]: EVIL},
    groups=(GroupCount(EVIL[1], EVIL[2], 3),),
    provenance=Provenance(EVIL[0], EVIL[1], EVIL[2], EVIL[3], True, 6),
    metrics=(
        ModelMetric("worst_group", "before", EVIL[0], 0.5, EVIL[1], 0.4, 0.6, 0.95),
        ModelMetric("worst_group", "after", "test", 0.7),
        ModelMetric("worst_group", "after", "train", 0.9),
        ModelMetric(EVIL[4], "after", EVIL[0], 1e-7),
    ),
)


@pytest.fixture
def fitted(embeddings):
    e = embeddings(n_classes=3, p=6)
    y = np.array(EVIL[:3], dtype=object)[e.y]
    return small(n_features=20).fit(e.X, y, sensitive_features=e.s), e


def test_hostile_names_stay_text_in_markdown_and_yaml(fitted, tmp_path):
    yaml = pytest.importorskip("yaml")
    text = (fitted[0].save(tmp_path / "m", details=DETAILS) / "README.md").read_text(encoding="utf-8")
    front, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL).groups()
    data = yaml.safe_load(front)
    assert set(data) == {"library_name", "pipeline_tag", "tags", "model-index"}
    assert len([line for line in body.splitlines() if line.startswith("# ")]) == 1
    assert not re.search(r"<script|(?<!\\)\[\*a|\x00|\u202e|\u2028|\x85|@somebody", body)
    assert "---" not in body.replace("&", "").split("\n")  # no second front matter, no rule
    assert (data["library_name"], data["pipeline_tag"]) == ("fairerclip", "zero-shot-image-classification")
    (entry,) = data["model-index"]
    found = {r["dataset"]["split"]: [m["value"] for m in r["metrics"]] for r in entry["results"]}
    assert (found["test"], found["train"]) == ([0.7], [0.9])
    assert load(tmp_path / "m").details_ == DETAILS


def test_save_pretrained_and_from_pretrained_work_on_folders_for_every_kind(fitted, tmp_path):
    e = fitted[1]
    for model in (fitted[0], ZeroShot().fit(e.X, text=e.text)):
        folder = tmp_path / type(model).__name__
        folder.mkdir()
        model.save_pretrained(folder)
        model.save_pretrained(str(folder))  # as in other libraries, an earlier one is replaced
        back = type(model).from_pretrained(folder)
        assert_array_equal(back.transform(e.X), model.transform(e.X))
        with pytest.raises(ModelFileError, match="snapshot_download"):
            type(model).from_pretrained("somebody/model")
    with pytest.raises(ModelFileError, match="ZeroShot"):
        type(fitted[0]).from_pretrained(folder)


def test_push_to_hub_uploads_what_save_writes_and_only_when_it_is_called(fitted, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    calls = []

    class FakeApi:
        def __init__(self, *, token, **_):
            calls.append(token)

        def create_repo(self, repo_id, *, private, **_):
            calls.append((repo_id, private))

        def upload_folder(self, *, folder_path, repo_id, **_):
            back = load(folder_path)
            assert_array_equal(back.scores(fitted[1].X), fitted[0].scores(fitted[1].X))
            calls.append((repo_id, back.details_.task))
            return type("Commit", (), {"commit_url": "https://hub/commit/1"})()

    monkeypatch.setattr(hub, "HfApi", FakeApi)
    given = {"private": True, "token": False, "details": ModelDetails(task="birds")}
    assert fitted[0].push_to_hub("me/birds", **given) == "https://hub/commit/1"
    assert calls == [False, ("me/birds", True), ("me/birds", "birds")]
