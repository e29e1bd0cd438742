"""Where the tasks of a reproduction come from: images with the encoder's options, or finished tasks."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import fairerclip.encoders.loading
from fairerclip.data import load_task, save_task, simulate
from fairerclip.encoders import ModelChoice, model_choices
from fairerclip.errors import DatasetAbsentError, ParameterError, PromptError
from fairerclip.study.paper.context import Context, ReproduceOptions
from fairerclip.study.paper.official_tasks import OfficialImages, chosen_prompts
from fairerclip.study.paper.task_finder import find_tasks
from fairerclip.study.paper.task_source import TaskSource, Unavailable, whole_training
from trees import RandomEncoder, birds, celebrities, faces


@pytest.fixture
def loaded(monkeypatch):
    """Encoders at random; yields what each was loaded with, and the images that were encoded."""
    calls, encoded = [], []

    class Counted(RandomEncoder):
        def encode_images(self, pixels):
            encoded.append(len(pixels))
            return super().encode_images(pixels)

    def load(name, **options):
        calls.append((name, options))
        return Counted(name)

    monkeypatch.setattr(fairerclip.encoders.loading, "load", load)
    return calls, encoded


def real(name, **options):
    return replace(simulate(name, **options), simulated=False)


def test_options_of_the_encoder_reach_it(run, loaded, small, tmp_path):
    birds(tmp_path / "data" / "waterbirds", 48)
    arguments = ("--data", tmp_path / "data", "-o", tmp_path / "o", "--quick", "--jobs", "1", "--json")
    models = ("--model", "open_clip:A", "--weights", "w.safetensors", "--model", "ViT-L/14", "--weights", "-")
    how = ("--preprocessing", "p.json", "--preprocessing", "openai", "--device", "cuda", "--download")
    code, out, err = run("reproduce", "models", *arguments, *models, *how)
    assert code == 0, err
    common = {"device": "cuda", "download": True}
    first = ("open_clip:A", {**common, "weights": "w.safetensors", "preprocessing": "p.json"})
    second = ("ViT-L/14", {**common, "weights": None, "preprocessing": "openai"})
    assert loaded[0] == [second, first, second]  # all are loaded once before anything is embedded
    encoders = [task["encoder"] for task in json.loads(out)["results"][0]["tasks"]]
    assert encoders == ["open_clip:A, w.safetensors", "ViT-L/14"]
    assert sum(loaded[1]) == 2 * 48
    assert run("reproduce", "models", *arguments, *models, *how, "--overwrite")[0] == 0
    assert sum(loaded[1]) == 2 * 48  # what is embedded is taken up again


def test_a_task_takes_the_options_of_its_encoder(run, loaded, tmp_path):
    birds(tmp_path / "birds", 24)
    arguments = ("task", "waterbirds", tmp_path / "birds", "-o", tmp_path / "t.npz")
    code, _, err = run(*arguments, "--model", "M", "--device", "mps", "--download", "--weights", "w")
    assert code == 0, err
    assert loaded[0] == [
        ("M", {"weights": "w", "device": "mps", "download": True, "preprocessing": None}),
    ]
    code, _, err = run(*arguments, "--weights", "w", "--overwrite")
    assert code == 2
    assert "give --model too" in err
    (tmp_path / "p.json").write_text(prompt_file("swan", "duck"))
    code, _, err = run(*arguments, "--model", "M", "--prompts", tmp_path / "p.json", "--overwrite")
    assert code == 2
    assert "use the same names" in err
    assert len(loaded[0]) == 1  # names are compared before a model is loaded


def prompt_file(*classes, **more):
    source = {"kind": "ours", "citation": "made for this test"}
    prompts = {name: [f"mine: {name}."] for name in classes}
    return json.dumps({"name": "mine", "version": 1, "source": source, "classes": prompts, **more})


def test_weights_are_given_for_no_model_or_for_each():
    assert model_choices(["A", "BB"], ["-", "w"])[1] == ModelChoice("BB", "w")
    with pytest.raises(ParameterError, match="1 times for 2 models"):
        model_choices(["A", "BB"], ["w"])
    with pytest.raises(ParameterError, match="--preprocessing is given 2 times"):
        model_choices(["A"], [], ["p", "q"])
    with pytest.raises(ParameterError, match="expected models with different file names"):
        model_choices(["A", "A"], ["x/w.safetensors", "y/w.safetensors"])
    assert len(model_choices(["A", "A"], ["x", "y"])) == 2


def test_wrong_options_are_one_line_before_anything_is_embedded(run, loaded, tmp_path):
    root = tmp_path / "data"
    birds(root / "waterbirds", 24)
    faces(root / "fairface", 10)
    (tmp_path / "p.json").write_text(prompt_file("swan", "duck"))
    data = ("--data", root, "--model", "M")
    for arguments, message in {
        ("spurious", *data, "--weights", "a", "--weights", "b"): "2 times for 1 models",
        ("spurious", *data, "--prompts", "waterbirds"): "write DATASET=NAME_OR_FILE",
        ("spurious", *data, "--prompts", "fairface=fairface-ours"): "one of waterbirds, blond",
        ("spurious", *data, "--prompts", "waterbirds=waterbrids"): "did you mean 'waterbirds'",
        ("spurious", *data, "--prompts", f"waterbirds={tmp_path / 'p.json'}"): "use the same names",
        ("fairface", *data, "--prompts", "fairface-berg"): "not opposite pairs",
        ("fairface", *data, "--margin", "2"): "margin must be one of",
        ("spurious", *data, "--margin", "0.25"): "which none of the chosen tables uses",
        ("spurious", "--prompts", "waterbirds"): "give --data too",
        ("spurious", "--weights", "w"): "give --data too",
        ("spurious", "--data", root): "--data needs --model",
        ("spurious", *data, "--tasks", root): "exclude each other",
    }.items():
        code, _, err = run("reproduce", *arguments, "-o", tmp_path / "o")
        assert (code, message in err) == (2, True), (arguments, err)
        assert len(err.strip().splitlines()) == 1
    assert not loaded[1]
    assert not (tmp_path / "o").exists()


def test_prompts_are_those_that_were_chosen(loaded, tmp_path):
    birds(tmp_path / "waterbirds", 24)
    file = tmp_path / "p.json"
    file.write_text(prompt_file("landbird", "waterbird"))
    chosen = chosen_prompts([f"waterbirds={file}"], ["waterbirds", "blond"])
    source = TaskSource("data", images=OfficialImages(tmp_path, tmp_path / "w", [ModelChoice("M")], chosen))
    assert source.tasks("waterbirds")[0].task.target_prompts == ("mine: landbird.", "mine: waterbird.")
    with pytest.raises(ParameterError, match="twice"):
        chosen_prompts(["cfd=cfd", "cfd=cfd"], ["cfd"])
    lone = OfficialImages(tmp_path, tmp_path / "w", [ModelChoice("M")], {"waterbirds": "sex"})
    with pytest.raises(PromptError, match="no classes"):
        lone.check(["waterbirds"])


def test_targets_of_one_dataset_have_files_of_their_own_and_share_embeddings(loaded, tmp_path):
    celebrities(tmp_path / "celeba", 48)
    told = []
    images = OfficialImages(
        tmp_path, tmp_path / "w", [ModelChoice("M")], progress=lambda *arguments: told.append(arguments)
    )
    source = TaskSource("data", images=images)
    tasks = {name: source.tasks(name)[0].task for name in ("blond", "cheekbones", "attractive")}
    for name, task in tasks.items():
        again = load_task(tmp_path / "w" / "tasks" / "M" / f"{name}.npz")
        assert again.class_names == task.class_names
        assert np.array_equal(again.train.y, task.train.y)
    assert len({task.class_names for task in tasks.values()}) == 3
    assert sum(loaded[1]) == 48
    assert len(loaded[0]) == 1
    assert told[-1] == ("embedding celeba, M", 48, 48)


def test_notes_are_of_the_datasets_of_a_page(loaded, tmp_path):
    birds(tmp_path / "waterbirds", 24)
    celebrities(tmp_path / "celeba", 48)
    (tmp_path / "waterbirds" / "bird" / "3.png").write_bytes(b"no picture")
    source = TaskSource("data", images=OfficialImages(tmp_path, tmp_path / "w", [ModelChoice("M")]))
    first, second = (Context(source, ReproduceOptions(), tmp_path) for _ in range(2))
    (bird,) = first.tasks("waterbirds")
    (blond,) = second.tasks("blond")
    assert any("landbird" in note and "were published" in note for note in bird.notes)
    assert any("no embedding" in note for note in bird.notes), (
        bird.notes
    )  # the picture that could not be read
    assert blond.notes
    assert not any("bird" in note for note in blond.notes)


@pytest.mark.parametrize("margin", ["0.25", "1.25"])
def test_the_margin_of_fairface_is_chosen(loaded, tmp_path, margin):
    for one in ("025", "125"):
        faces(tmp_path / "fairface", 12, f"fairface-img-margin{one}-trainval")
    models = [ModelChoice("M")]
    unclear = TaskSource("data", images=OfficialImages(tmp_path, tmp_path / "w", models))
    assert "both margins" in unclear.why_not("fairface")
    assert not unclear.absent("fairface")
    images = OfficialImages(tmp_path, tmp_path / "w", models, margin=margin)
    task = TaskSource("data", images=images).tasks("fairface")[0].task
    assert margin.replace(".", "") in str(images.index("fairface").root)
    assert (tmp_path / "w" / f"fairface-{margin}" / "M.store").is_dir()
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 12, "test": 12}


def test_a_dataset_is_absent_only_where_there_is_nothing_of_it(tmp_path):
    images = OfficialImages(tmp_path, tmp_path / "w")
    assert isinstance(images.problem("waterbirds"), DatasetAbsentError)
    (tmp_path / "CelebA").mkdir()
    birds(tmp_path / "waterbirds", 4)
    (tmp_path / "waterbirds" / "metadata.csv").write_text("a,b\n1,2\n")
    source = TaskSource("data", images=OfficialImages(tmp_path, tmp_path / "w"))
    absent = {name: source.absent(name) for name in ("waterbirds", "blond", "cfd", "fairface", "pacs")}
    assert absent == {"waterbirds": False, "blond": False, "cfd": True, "fairface": True, "pacs": True}


def test_finished_tasks_are_found_by_name_and_encoder(tmp_path):
    bird, blond = real("waterbirds", scale=0.03, width=32), real("celeba", scale=0.002, width=32)
    save_task(bird, tmp_path / "waterbirds.npz")
    save_task(bird, tmp_path / "waterbirds-ViT-L-14.safetensors")
    for folder in ("RN50", "odd"):
        (tmp_path / folder).mkdir()
    save_task(bird, tmp_path / "RN50" / "waterbirds")
    save_task(blond, tmp_path / "RN50" / "celeba_blond.npz")
    (tmp_path / "fairface_queries.npz").write_bytes(b"of another name")
    found = find_tasks(tmp_path, encoders=True)
    assert {name: [task.encoder for task in tasks] for name, tasks in found.items()} == {
        "waterbirds": [None, "RN50", "ViT-L-14"],
        "blond": ["RN50"],
    }
    assert {name: len(tasks) for name, tasks in find_tasks(tmp_path, encoders=False).items()} == {
        "waterbirds": 1
    }
    source = TaskSource("data", tmp_path)
    tasks = source.tasks("waterbirds")
    assert [task.encoder for task in tasks] == ["an encoder without a name", "RN50", "ViT-L-14"]
    assert [task.backbone for task in tasks] == [None, "RN50", "ViT-L/14"]
    assert f"train has {len(bird.train)} rows; 4795 were published." in tasks[0].notes
    assert source.absent("cfd")
    save_task(blond, tmp_path / "RN50" / "blond.npz")
    with pytest.raises(ParameterError, match="are both blond by RN50"):
        TaskSource("data", tmp_path)


def test_finished_tasks_are_headed_as_real_and_simulated_ones_refused(run, small, tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    save_task(real("waterbirds", scale=0.03, width=32), folder / "waterbirds-RN50.npz")
    arguments = ("--tasks", folder, "--quick", "--jobs", "1", "--json", "-o")
    code, out, err = run("reproduce", "heatmaps", *arguments, tmp_path / "o")
    assert code == 0, err
    result = json.loads(out)["results"][0]
    assert (result["kind"], list(result["results"])) == ("data", ["waterbirds RN50"])
    assert (
        (tmp_path / "o" / "heatmaps.md")
        .read_text()
        .startswith("**Tasks of tasks/, embedded elsewhere from real")
    )
    assert "orientation" not in result["source"]
    assert result["command"] == "fairerclip reproduce heatmaps --tasks tasks --jobs 1 --quick"
    save_task(simulate("celeba", scale=0.002, width=32), folder / "blond.npz")
    code, _, err = run("reproduce", "ablation-no-labels", *arguments, tmp_path / "p")
    assert code == 1
    assert "is simulated, and --tasks is for tasks of real images" in err
    assert not (tmp_path / "p" / "ablation-no-labels.md").exists()
    shutil.rmtree(folder)
    assert run("reproduce", "models", *arguments, tmp_path / "q")[0] == 2


def test_fairface_is_fitted_on_the_whole_official_training_list(tmp_path):
    task = real("gallery", scale=0.05, width=48)
    ids = {
        name: np.array([f"{name}/{k}.jpg" for k in range(len(split))]) for name, split in task.splits.items()
    }
    ids["val"] = np.char.replace(ids["val"], "val/", "train/v")
    named = replace(task, splits={name: replace(split, ids=ids[name]) for name, split in task.splits.items()})
    whole, note = whole_training("fairface", named)
    n, held = len(task.train), len(task.val)
    assert set(whole.splits) == {"train", "test"}
    assert np.array_equal(whole.train.X, np.concatenate([task.train.X, task.val.X]))
    assert all(np.array_equal(whole.train.s[k][n:], task.val.s[k]) for k in task.train.s)
    assert f"{n} + {held} rows" in note
    assert whole_training("blond", named) == (named, "")
    same, note = whole_training("fairface", task)
    assert same is task
    assert "no ids" in note
    official = replace(named, splits={**named.splits, "val": replace(task.val, ids=ids["test"][:held])})
    assert whole_training("fairface", official)[0] is official
    for kind in ("data", "suite"):
        folder = tmp_path / kind
        folder.mkdir()
        save_task(named, folder / "fairface.npz")
        assert len(TaskSource(kind, folder).tasks("fairface")[0].task.train) == n + held


def test_a_dataset_that_cannot_be_embedded_is_tried_once(tmp_path, monkeypatch):
    birds(tmp_path / "waterbirds", 4)
    for file in (tmp_path / "waterbirds" / "bird").iterdir():
        file.write_bytes(b"no picture")
    tried = []
    monkeypatch.setattr(
        fairerclip.encoders.loading, "load", lambda name, **options: tried.append(name) or RandomEncoder(name)
    )
    source = TaskSource("data", images=OfficialImages(tmp_path, tmp_path / "w", [ModelChoice("M")]))
    for _ in range(2):
        with pytest.raises(Unavailable, match="none of 4 images could be embedded"):
            source.tasks("waterbirds")
    assert tried == ["M"]
