"""Models saved by earlier versions load, and answer as they did then."""

from pathlib import Path

import pytest
from numpy.testing import assert_allclose, assert_array_equal
from record import answers
from safetensors.numpy import load_file

from fairerclip import EmbeddingMitigator, FairerCLIP, load
from fairerclip.baselines.baseline import Baseline
from fairerclip.model.archive import VERSION
from fairerclip.model.automatic import AUTOMATIC

HERE = Path(__file__).parent
READERS = {"model": FairerCLIP.load, "mitigator": EmbeddingMitigator.load, "baseline": Baseline.load}
SAVED = sorted(file.parent for file in HERE.glob("*/*/answers.safetensors"))


def test_every_format_version_is_recorded():
    recorded = {folder.parent.name for folder in SAVED}
    assert {f"model-{v}" for v in range(2, 8)} <= recorded
    assert {f"baseline-{v}" for v in (*range(1, 6), 7)} <= recorded
    assert {"mitigator-7"} <= recorded
    assert {f"{kind}-{VERSION}" for kind in READERS} <= recorded
    assert len(SAVED) >= 140


@pytest.mark.parametrize(
    "folder",
    [folder for folder in SAVED if folder.parent.name in ("model-2", "model-3", "model-4", "model-5")],
    ids=lambda folder: f"{folder.parent.name}/{folder.name}",
)
def test_a_model_of_an_earlier_version_left_nothing_to_the_data(folder):
    model = FairerCLIP.load(folder)
    assert (model.class_offsets, model.guess_weight, model.guess_weight_) == (None, 1.0, 1.0)
    assert "auto" not in [getattr(model, name) for name in AUTOMATIC]
    assert (model.tau_, model.gamma_, model.criterion_) == (model.tau, model.gamma, model.criterion)
    assert "automatic" not in model.diagnostics_


def test_a_model_of_this_version_has_its_parameters_and_the_values_that_were_used():
    home = HERE / f"model-{VERSION}"
    auto, given = (FairerCLIP.load(home / name) for name in ("automatic", "partly-labelled"))
    assert [getattr(auto, name) for name in AUTOMATIC] == ["auto"] * 6
    assert auto.used_parameters().keys() == set(AUTOMATIC)
    assert "auto" not in auto.used_parameters().values()
    record = auto.diagnostics_["automatic"]
    assert record["candidates"] > 100
    values = {**auto.used_parameters(), "offsets": auto.offsets_.tolist()}
    assert {**record["chosen"], "class_offsets": None} == values
    assert (given.tau, given.tau_, given.guess_weight_) == (0.5, 0.5, 0.1)


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_saved_model_answers_as_it_did(folder):
    if folder.name in ("adapter", "contrastiveadapter"):
        pytest.importorskip("torch")
    model = READERS[folder.parent.name.partition("-")[0]](folder)
    assert type(load(folder)) is type(model)
    recorded = load_file(folder / "answers.safetensors")
    found = answers(model, **load_file(folder.parent / "questions.safetensors"))
    assert set(found) == set(recorded)
    if "predicted" in recorded:
        assert_array_equal(found["predicted"], recorded["predicted"])
    for name, value in found.items():
        assert_allclose(value, recorded[name], rtol=1e-9, atol=1e-12, err_msg=name)
    shared = answers(load(folder, mapped=True), **load_file(folder.parent / "questions.safetensors"))
    for name, value in found.items():
        assert_array_equal(shared[name], value, err_msg=name)
