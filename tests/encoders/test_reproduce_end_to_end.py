"""Images in the four official layouts → a real encoder → every table of the paper, through the command line."""

import json

import pytest

from fairerclip.data import load_task
from fairerclip.study.paper.entries import ENTRIES
from light import few_settings
from trees import birds, celebrities, faces, portraits

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"
)
ARCHITECTURE = "fairerclip-tiny"
MODEL_CFG = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}

CONSTANT = ("visual.class_embedding", "visual.positional_embedding")


@pytest.fixture
def model(tmp_path):
    """Arguments for an architecture of open_clip at random initialisation: name, weights, preprocessing."""
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("open_clip")
    from safetensors.torch import save_file

    from fairerclip.encoders import Preprocessing

    place = tmp_path / "model"
    place.mkdir()
    (place / f"{ARCHITECTURE}.json").write_text(json.dumps(MODEL_CFG))
    library.add_model_config(place / f"{ARCHITECTURE}.json")
    torch.manual_seed(0)
    state = library.CLIP(**MODEL_CFG).state_dict()
    # What is the same for every picture would outweigh the pictures: prompts would see one class only.
    state = {k: v * 0 if k in CONSTANT else v for k, v in state.items()}
    save_file(state, place / "weights.safetensors")
    (place / "preprocessing.json").write_text(json.dumps(Preprocessing.openai(32).as_dict()))
    return (
        *("--model", f"open_clip:{ARCHITECTURE}"),
        *("--weights", place / "weights.safetensors"),
        *("--preprocessing", place / "preprocessing.json"),
    )


def test_every_table_is_measured_on_images_in_their_official_layouts(run, model, tmp_path, monkeypatch):
    few_settings(monkeypatch)
    root, output = tmp_path / "data", tmp_path / "o"
    birds(root / "waterbirds", 96)
    celebrities(root / "CelebA", 96)
    faces(root / "fairface", 40)
    portraits(root / "cfd", 80)
    arguments = ("--data", root, *model, "-o", output, "--quick", "--jobs", "1", "--json")
    code, out, err = run("reproduce", "all", *arguments)
    assert code == 0, err
    results = {result["name"]: result for result in json.loads(out)["results"]}
    assert list(results) == [entry.name for entry in ENTRIES]
    label = f"open_clip:{ARCHITECTURE}, weights.safetensors"
    for entry in ENTRIES:
        result = results[entry.name]
        assert not result["failed"], (entry.name, result["failures"])
        assert result["source"] == f"Real images in their official layouts, embedded by {label}."
        assert (output / f"{entry.name}.md").is_file()
        measured = {task["dataset"] for task in result["tasks"]}
        assert measured == set(entry.needs) - {"pacs"}
        assert {task["encoder"] for task in result["tasks"]} <= {label}
        # Notes are of the datasets on the page.
        about = {note.partition(":")[0] for note in result["document"]["notes"]} & set(NOTED)
        assert about == measured
    command = results["spurious"]["command"]
    assert str(tmp_path) not in command
    assert "--weights weights.safetensors --preprocessing preprocessing.json" in command
    tasks = output / "runs" / "data" / "tasks"
    (folder,) = tasks.iterdir()
    classes = {file.stem: load_task(file).class_names for file in folder.iterdir()}
    assert set(classes) == {*NOTED}
    assert len({classes[name] for name in ("blond", "cheekbones", "attractive")}) == 3
    assert {name: len(split) for name, split in load_task(folder / "fairface.npz").splits.items()} == {
        "train": 40,
        "test": 40,
    }
    stores = output / "runs" / "data" / "celeba"
    assert [store.name for store in stores.iterdir()] == [
        f"{folder.name}.store"
    ]  # its images were embedded once
    # What was embedded there is a folder of finished tasks.
    code, out, err = run("reproduce", "models", "--tasks", tasks, "-o", tmp_path / "p", "--json")
    assert code == 0, err
    again = json.loads(out)["results"][0]
    assert {task["digest"] for task in again["tasks"]} == {
        task["digest"] for task in results["models"]["tasks"]
    }
    assert again["results"].keys() == {f"{name} {folder.name}" for name in NOTED if name != "fairface"}


NOTED = ("waterbirds", "blond", "cheekbones", "attractive", "cfd", "fairface")
