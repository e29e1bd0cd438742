import json

import pytest

from fairerclip.data import save_task, simulate
from fairerclip.encoders import ModelChoice
from fairerclip.study.paper.task_source import published_backbone


@pytest.mark.slow
def test_a_table_from_the_command_line(run, small, tmp_path):
    arguments = ("reproduce", "heatmaps", "implementation", "-o", tmp_path / "o", "--quick", "--jobs", "1")
    code, out, err = run(*arguments)
    assert code == 0, err
    assert out.splitlines()[0].startswith("Simulated tasks")
    assert {f.name for f in (tmp_path / "o").iterdir()} == {
        *(f"{name}.{form}" for name in ("heatmaps", "implementation") for form in ("json", "md", "html")),
        *("index.md", "index.html", "runs"),
    }
    assert "<svg" in (tmp_path / "o" / "heatmaps.html").read_text()
    assert run(*arguments)[0] == 2
    code, out, _ = run(*arguments, "--overwrite", "--json")
    assert code == 0
    assert [r["name"] for r in json.loads(out)["results"]] == ["implementation", "heatmaps"]


@pytest.mark.slow
def test_all_is_lenient_on_absent_datasets_and_strict_on_those_that_are_there(run, small, tmp_path):
    suite = tmp_path / "suite"
    suite.mkdir()
    save_task(simulate("gallery", scale=0.05, width=48), suite / "fairface.npz")
    arguments = ("all", "--suite", suite, "--quick", "--jobs", "1", "--json", "--overwrite")
    code, out, err = run("reproduce", *arguments, "-o", tmp_path / "o")
    assert code == 0, err
    results = {r["name"]: r for r in json.loads(out)["results"]}
    assert [name for name, r in results.items() if not r["failed"]] == ["fairface", "implementation"]
    (suite / "celeba_blond.npz").write_bytes(b"no task")
    code, out, _ = run("reproduce", *arguments, "-o", tmp_path / "o")
    assert code == 1
    failed = {r["name"]: r["absent"] for r in json.loads(out)["results"] if r["failed"]}
    assert not failed["spurious"]
    assert failed["intrinsic"]


def test_wrong_calls_are_one_line(run, tmp_path):
    for arguments in (("nothing",), ("models", "--suite", tmp_path / "gone"), ("models", "--seeds", "0")):
        code, _, err = run("reproduce", *arguments)
        assert code == 2, arguments
        assert len(err.strip().splitlines()) == 1, err


@pytest.mark.parametrize(
    ("model", "backbone"),
    [
        (ModelChoice("open_clip:ViT-L-14", "vit.safetensors", "openai"), "ViT-L/14"),
        (ModelChoice("open_clip:ViT-L-14", "vit.safetensors"), None),
        (ModelChoice("open_clip:ViT-L-14", "laion2b_s32b_b82k"), None),
    ],
)
def test_a_model_is_a_published_backbone_where_its_weights_are_said_to_be(model, backbone):
    assert published_backbone(model) == backbone
