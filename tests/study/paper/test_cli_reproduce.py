import json

import pytest

import fairerclip.encoders.loading
from fairerclip.data import save_task, simulate
from fairerclip.encoders import ModelChoice
from fairerclip.study.paper import heatmaps
from fairerclip.study.paper.entries import ENTRIES
from fairerclip.study.paper.task_source import backbone_of, published_backbone
from trees import RandomEncoder, birds, faces


def test_the_list_names_every_entry_and_what_it_needs(run, tmp_path):
    code, out, _ = run("reproduce", "list", "--json")
    assert code == 0
    listed = json.loads(out)
    assert [row["name"] for row in listed["entries"]] == [entry.name for entry in ENTRIES]
    assert all(row["why_not"] is None for row in listed["entries"])
    code, out, _ = run("reproduce", "list", "--suite", tmp_path, "--json")
    missing = {row["name"] for row in json.loads(out)["entries"] if row["why_not"]}
    assert missing == {entry.name for entry in ENTRIES} - {"implementation"}
    code, out, _ = run("reproduce", "list")
    assert code == 0
    assert out.splitlines()[0].startswith("Simulated tasks")
    code, out, _ = run("reproduce", "list", "--data", tmp_path)
    assert code == 0
    assert out.splitlines()[0].startswith("Real images")


def test_a_table_from_the_command_line(run, small, tmp_path):
    arguments = ("reproduce", "heatmaps", "implementation", "-o", tmp_path / "o", "--quick", "--jobs", "1")
    code, out, err = run(*arguments)
    assert code == 0, err
    assert out.splitlines()[0].startswith("Simulated tasks")
    assert {f.name for f in (tmp_path / "o").iterdir()} == {
        *(f"{name}.{form}" for name in ("heatmaps", "implementation") for form in ("json", "md", "html")),
        *("index.md", "index.html", "runs"),
    }
    content = json.loads((tmp_path / "o" / "heatmaps.json").read_text())
    assert content["command"] == "fairerclip reproduce heatmaps implementation --jobs 1 --quick"
    assert content["format"] == "fairerclip-reproduction"
    assert "<svg" in (tmp_path / "o" / "heatmaps.html").read_text()
    code, _, err = run(*arguments)
    assert code == 2
    assert "--overwrite" in err
    code, out, _ = run(*arguments, "--overwrite", "--json")
    assert code == 0
    assert [r["name"] for r in json.loads(out)["results"]] == ["implementation", "heatmaps"]


def test_a_table_without_any_result_has_failed(run, tmp_path):
    suite = tmp_path / "suite"
    suite.mkdir()
    code, out, err = run("reproduce", "fairface", "--suite", suite, "-o", tmp_path / "o", "--json")
    assert code == 1
    found = json.loads(out)
    assert found["error"]["exit_code"] == 1
    assert err == f"fairerclip: {found['error']['message']}\n"
    assert "1 of 1 tables and figures failed (fairface: cannot run on this source" in err
    assert found["results"][0]["failed"] is True
    arguments = ("reproduce", "fairface", "implementation", "--suite", suite, "-o", tmp_path / "p")
    code, out, err = run(*arguments)
    assert code == 1  # it was asked for by name
    assert "1 of 2 tables and figures failed" in err
    assert "implementation.md" in out
    assert {f.name for f in (tmp_path / "p").glob("*.*")} == {
        *(f"implementation.{form}" for form in ("json", "md", "html")),
        *("index.md", "index.html"),
    }
    assert "fairface" in (tmp_path / "p" / "index.md").read_text()
    code, out, err = run("reproduce", "all", "--suite", suite, "-o", tmp_path / "q", "--json")
    assert code == 1  # implementation measures nothing, and the others have no data
    found = json.loads(out)
    assert [r["name"] for r in found["results"] if not r["failed"]] == ["implementation"]
    assert all(f"{r['name']}: cannot run" in err for r in found["results"] if r["failed"])


def test_all_is_lenient_on_absent_datasets_and_strict_on_those_that_are_there(run, small, tmp_path):
    suite = tmp_path / "suite"
    suite.mkdir()
    save_task(simulate("gallery", scale=0.05, width=48), suite / "fairface.npz")
    arguments = ("all", "--suite", suite, "--quick", "--jobs", "1", "--json", "--overwrite")
    code, out, err = run("reproduce", *arguments, "-o", tmp_path / "o")
    assert code == 0, err
    results = {r["name"]: r for r in json.loads(out)["results"]}
    assert [name for name, r in results.items() if not r["failed"]] == ["fairface", "implementation"]
    assert all(r["absent"] for r in results.values() if r["failed"])
    assert err.startswith("warning: ")
    assert err.count("\n") == 1
    (suite / "celeba_blond.npz").write_bytes(b"no task")
    code, out, err = run("reproduce", *arguments, "-o", tmp_path / "o")
    assert code == 1
    failed = {r["name"]: r["absent"] for r in json.loads(out)["results"] if r["failed"]}
    assert not failed["spurious"]
    assert failed["intrinsic"]
    for name, absent in failed.items():
        assert (f"{name}: " in err) is not absent
    assert not (tmp_path / "o" / "spurious.md").exists()
    index = (tmp_path / "o" / "index.md").read_text()
    assert "spurious" in index.partition("Without a measured figure")[2]


def test_a_table_whose_every_part_failed_has_failed(run, small, tmp_path, monkeypatch):
    monkeypatch.setattr(heatmaps, "plane", broken)
    code, _, err = run("reproduce", "heatmaps", "-o", tmp_path, "--quick", "--jobs", "1")
    assert code == 1
    assert "heatmaps: blond, plane: ArithmeticError: no luck" in err
    assert not list(tmp_path.glob("heatmaps.*"))
    assert "no luck" in (tmp_path / "index.md").read_text()
    (tmp_path / "heatmaps.md").write_text("a page of an earlier run")
    assert run("reproduce", "heatmaps", "-o", tmp_path, "--quick", "--jobs", "1", "--overwrite")[0] == 1
    assert not list(tmp_path.glob("heatmaps.*"))


def broken(**arguments):
    raise ArithmeticError("no luck")


def test_wrong_calls_are_one_line(run, tmp_path):
    (tmp_path / "file").write_text("x")
    for arguments in (
        (),
        ("nothing",),
        ("models", "--suite", tmp_path / "gone"),
        ("models", "--data", tmp_path),
        ("models", "--model", "A"),
        ("models", "--data", tmp_path, "--model", "A", "--suite", tmp_path),
        ("models", "--seeds", "0"),
        ("models", "--max-steps", "0"),
        ("implementation", "-o", tmp_path / "file"),
    ):
        code, _, err = run("reproduce", *arguments)
        assert code == 2, arguments
        assert len(err.strip().splitlines()) == 1, err


def test_images_in_their_official_layouts_run_end_to_end(run, small, tmp_path, monkeypatch):
    root = tmp_path / "data"
    birds(root / "waterbirds")
    faces(root / "fairface")
    monkeypatch.setattr(fairerclip.encoders.loading, "load", lambda name, **options: RandomEncoder(name))
    arguments = ("--data", root, "--model", "ViT-L-14", "--model", "RN50", "-o", tmp_path / "o", "--quick")
    code, out, err = run("reproduce", "spurious", "fairface", "models", *arguments, "--jobs", "1", "--json")
    assert code == 0, err
    spurious, skew, many = json.loads(out)["results"]
    assert spurious["source"].startswith("Real images")
    assert {task["encoder"] for task in spurious["tasks"]} == {"ViT-L-14", "RN50"}
    assert all("CelebA is not at" in text for text in spurious["failures"]), spurious["failures"]
    rows = spurious["results"]["waterbirds RN50"]
    assert all("figures" in row for row in rows)
    assert not skew["failures"], skew["failures"]
    assert any("comes nearest to the published" in note for note in skew["document"]["notes"])
    assert not skew["failures"]
    assert {row[1] for row in many["document"]["tables"][0]["rows"]} == {"ViT-L-14", "RN50"}
    assert (tmp_path / "o" / "runs" / "data" / "tasks" / "RN50" / "waterbirds.npz").is_file()


@pytest.mark.parametrize(
    ("name", "backbone"),
    [
        ("RN50", "RN50"),
        ("open_clip:ViT-B-32", "ViT-B/32"),
        ("ViT-L/14", "ViT-L/14"),
        ("RN50x16", None),
        ("S", None),
    ],
)
def test_published_backbones_are_known_by_name(name, backbone):
    assert backbone_of(name) == backbone


@pytest.mark.parametrize(
    ("model", "backbone"),
    [
        (ModelChoice("open_clip:ViT-L-14", "openai"), "ViT-L/14"),
        (ModelChoice("open_clip:ViT-L-14", "vit.safetensors", "openai"), "ViT-L/14"),
        (ModelChoice("open_clip:ViT-L-14", "vit.safetensors"), None),
        (ModelChoice("open_clip:ViT-L-14", "laion2b_s32b_b82k"), None),
        (ModelChoice("transformers:some-folder"), None),
    ],
)
def test_a_model_is_a_published_backbone_where_its_weights_are_said_to_be(model, backbone):
    assert published_backbone(model) == backbone
