"""Models saved by earlier versions load, and answer as they did then."""

from pathlib import Path

import pytest
from numpy.testing import assert_allclose, assert_array_equal
from record import answers
from safetensors.numpy import load_file

from fairerclip import FairerCLIP, load
from fairerclip.baselines import load_baseline
from fairerclip.baselines.file import ARCHIVE as BASELINE
from fairerclip.model.model_file import ARCHIVE as MODEL

HERE = Path(__file__).parent
SAVED = sorted(file.parent for file in HERE.glob("*/*/answers.safetensors"))


def test_every_format_version_is_recorded():
    recorded = {folder.parent.name for folder in SAVED}
    assert {f"model-{v}" for v in range(2, MODEL.version + 1)} <= recorded
    assert {f"baseline-{v}" for v in range(1, BASELINE.version + 1)} <= recorded
    assert len(SAVED) >= 22 * 2


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_saved_model_answers_as_it_did(folder):
    if folder.name in ("adapter", "contrastiveadapter"):
        pytest.importorskip("torch")
    model = (FairerCLIP.load if folder.parent.name.startswith("model") else load_baseline)(folder)
    assert type(load(folder)) is type(model)
    recorded = load_file(folder / "answers.safetensors")
    found = answers(model, **load_file(folder.parent / "questions.safetensors"))
    assert set(found) == set(recorded)
    assert_array_equal(found["predicted"], recorded["predicted"])
    for name, value in found.items():
        assert_allclose(value, recorded[name], rtol=1e-9, atol=1e-12, err_msg=name)
