"""The card and the conventions of the Hugging Face Hub, without a network."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip import EmbeddingMitigator, FairerCLIP, load
from fairerclip.baselines import LEACE, ZeroShot
from fairerclip.data import Provenance
from fairerclip.errors import MissingExtraError, ModelFileError
from fairerclip.model.details import GroupCount, ModelDetails, ModelMetric
from small_models import FIXED

EVIL = [
    "---\nlicense: mit\n---\n# owned",
    '"}\n- x: [*a](javascript:alert(1)) <script>alert(1)</script>',
    "a|b\\`${x}`: {{ jinja }} \u202e\x00\x85\u2028 @somebody www.example.com",
    "!!python/object/apply:os.system ['true']",
    "&anchor *alias %TAG ? - : 1e-07",
]


def evil_details():
    return ModelDetails(
        task=EVIL[0],
        prompts={EVIL[1]: EVIL, EVIL[2]: [EVIL[3]]},
        sensitive={EVIL[3]: EVIL},
        sensitive_prompts={EVIL[3]: EVIL},
        groups=(GroupCount(EVIL[1], EVIL[2], 3),),
        provenance=Provenance(EVIL[0], EVIL[1], EVIL[2], EVIL[3], True, 6),
        metrics=(
            ModelMetric("worst_group", "before", EVIL[0], 0.5, EVIL[1], 0.4, 0.6, 0.95),
            ModelMetric(EVIL[4], "after", EVIL[0], 1e-7),
        ),
    )


@pytest.fixture
def fitted(embeddings):
    e = embeddings(n_classes=3, p=6)
    y = np.array(EVIL[:3], dtype=object)[e.y]
    model = FairerCLIP(**{**FIXED, "n_features": 20, "random_state": 0})
    return model.fit(e.X, y, sensitive_features=e.s), e


def split(text):
    front, body = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL).groups()
    return front, body


def test_hostile_names_stay_text_in_markdown_and_yaml(fitted, tmp_path):
    yaml = pytest.importorskip("yaml")
    text = (fitted[0].save(tmp_path / "m", details=evil_details()) / "README.md").read_text(encoding="utf-8")
    front, body = split(text)
    data = yaml.safe_load(front)
    assert set(data) == {"library_name", "pipeline_tag", "tags", "model-index"}
    assert data["library_name"] == "fairerclip"
    assert "license" not in data
    heads = [line for line in body.splitlines() if line.startswith("#")]
    assert len([head for head in heads if head.startswith("# ")]) == 1
    assert [head for head in heads if head.startswith("## ")] == [
        "## Intended use",
        "## Classes, groups and prompts",
        "## Figures",
        "## Limits",
        "## How it was made",
    ]
    assert not re.search(r"<script|(?<!\\)\[\*a|\x00|\u202e|\u2028|\x85|@somebody", body)
    assert "---" not in body.replace("&", "").split("\n")  # no second front matter, no rule
    assert load(tmp_path / "m").details_ == evil_details()


@pytest.mark.parametrize("kind", ["model", "mitigator", "baseline"])
def test_the_metadata_is_what_the_library_of_the_hub_reads(embeddings, tmp_path, kind):
    hub = pytest.importorskip("huggingface_hub")
    e = embeddings(n_classes=2, p=6)
    given = {"sensitive_features": e.s}
    model = {
        "model": lambda: FairerCLIP(**{**FIXED, "n_features": 20}).fit(e.X, e.y, **given),
        "mitigator": lambda: EmbeddingMitigator().fit(e.X, **given),
        "baseline": lambda: LEACE().fit(e.X, e.y, text=e.text, **given),
    }[kind]()
    for name, details in (("plain", None), ("known", evil_details())):
        folder = model.save(tmp_path / name, details=details)
        card = hub.ModelCard.load(folder / "README.md")
        assert isinstance(card.data, hub.ModelCardData)
        assert card.data.library_name == "fairerclip"
        wanted = "image-feature-extraction" if kind == "mitigator" else "zero-shot-image-classification"
        assert card.data.pipeline_tag == wanted
        results = card.data.eval_results or []
        assert len(results) == (0 if details is None else 1)  # the other has no better direction
        again = hub.ModelCardData(**card.data.to_dict())
        assert again.to_dict() == card.data.to_dict()


def test_save_pretrained_and_from_pretrained_work_on_folders_for_every_kind(embeddings, tmp_path):
    e = embeddings(n_classes=2, p=6)
    given = {"sensitive_features": e.s}
    for model in (
        FairerCLIP(**{**FIXED, "n_features": 20}).fit(e.X, e.y, **given),
        EmbeddingMitigator().fit(e.X, **given),
        ZeroShot().fit(e.X, text=e.text),
    ):
        folder = tmp_path / type(model).__name__
        folder.mkdir()
        model.save_pretrained(folder)
        model.save_pretrained(str(folder))  # as in other libraries, an earlier one is replaced
        back = type(model).from_pretrained(folder)
        assert_array_equal(back.transform(e.X), model.transform(e.X))
        with pytest.raises(
            ModelFileError, match=r"huggingface_hub\.snapshot_download\(REPO, local_dir=FOLDER\)"
        ):
            type(model).from_pretrained("somebody/model")
    with pytest.raises(ModelFileError, match="holds a ZeroShot, not a FairerCLIP") as caught:
        FairerCLIP.from_pretrained(folder)
    assert caught.value.reason == "kind"


def test_push_to_hub_uploads_what_save_writes_and_only_when_it_is_called(fitted, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    calls = []

    class FakeApi:
        def __init__(self, **given):
            calls.append(("api", given))

        def create_repo(self, repo_id, **given):
            calls.append(("create", repo_id, given))

        def upload_folder(self, *, folder_path, **given):
            back = load(folder_path)
            assert_array_equal(back.scores(fitted[1].X), fitted[0].scores(fitted[1].X))
            calls.append(("upload", sorted(f.name for f in folder_path.iterdir()), given, back.details_.task))
            return type("Commit", (), {"commit_url": "https://hub/commit/1"})()

    monkeypatch.setattr(hub, "HfApi", FakeApi)
    url = fitted[0].push_to_hub(
        "me/birds", private=True, token=False, details=ModelDetails(task="birds"), commit_message="First"
    )
    assert url == "https://hub/commit/1"
    assert calls == [
        ("api", {"token": False, "library_name": "fairerclip"}),
        ("create", "me/birds", {"private": True, "exist_ok": True}),
        (
            "upload",
            ["README.md", "fairerclip.json", "model.safetensors"],
            {"repo_id": "me/birds", "revision": None, "commit_message": "First"},
            "birds",
        ),
    ]


def test_without_the_library_push_to_hub_names_the_extra(fitted, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"\[hub\]"):
        fitted[0].push_to_hub("me/birds")


def test_figures_of_each_split_are_under_its_name(fitted, tmp_path):
    yaml = pytest.importorskip("yaml")
    found = {"train": [0.9, 0.5], "test": [0.7]}
    metrics = (
        ModelMetric("worst_group", "before", "train", 0.5),
        ModelMetric("worst_group", "after", "test", 0.7),
        ModelMetric("worst_group", "after", "train", 0.9),
    )
    folder = fitted[0].save(tmp_path / "m", details=ModelDetails(task="birds", metrics=metrics))
    (entry,) = yaml.safe_load(split((folder / "README.md").read_text(encoding="utf-8"))[0])["model-index"]
    assert found == {
        result["dataset"]["split"]: [metric["value"] for metric in result["metrics"]]
        for result in entry["results"]
    }


def test_lists_that_a_manifest_has_no_room_for_are_left_out():
    from fairerclip.auditing.model_details import _texts

    assert _texts({"a": ["b"] * 10_000}) == {"a": ["b"] * 10_000}
    for long in ({"a": ["b"] * 10_001}, {str(k): [] for k in range(10_001)}, {"a": ["b" * 200_000]}):
        assert _texts(long) == {}
