"""`fit --checkpoint FILE`: an interrupted command goes on, and files of other fits are refused."""

import numpy as np
import pytest
from test_cli import refused

import fairerclip
from fairerclip.data import row_checkpoint, row_pass
from fairerclip.data.row_checkpoint import RowCheckpoint


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    """Save after every segment of 60 rows."""
    monkeypatch.setattr(row_checkpoint, "SEGMENT_ROWS", 60)
    monkeypatch.setattr(row_pass, "BLOCK_ROWS", 60)
    monkeypatch.setattr(RowCheckpoint.__init__, "__kwdefaults__", {"seconds": 0.0})


CG = ("--no-tune", "--set", "solver=cg", "--set", "n_features=700", "--set", "gamma=1e-4")


@pytest.mark.parametrize("options", [CG, ("--method", "embedding")], ids=["cg", "embedding"])
def test_an_interrupted_fit_goes_on_with_the_same_command(run, task, tmp_path, monkeypatch, options):
    file, original = tmp_path / "sums.safetensors", RowCheckpoint.save
    fit = ("fit", task, "--checkpoint", file, *options, "-o")

    def stop(self, *state):
        original(self, *state)
        raise KeyboardInterrupt

    assert run(*fit, tmp_path / "whole")[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr(RowCheckpoint, "save", stop)
        assert run(*fit, tmp_path / "stopped")[0] == 130
    assert file.exists()
    refused(run(*fit, tmp_path / "other", "--seed", "3"), "has the sums of another fit")
    assert run(*fit, tmp_path / "again")[0] == 0
    assert not file.exists()
    X = np.random.default_rng(0).normal(size=(20, 48)).astype(np.float32)
    whole, again = (fairerclip.load(tmp_path / name) for name in ("whole", "again"))
    np.testing.assert_array_equal(again.transform(X), whole.transform(X))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tune"], "--checkpoint fits without a search: add --no-tune"),
        (["--method", "zero-shot"], "--checkpoint: for fairerclip only"),
        (["--no-tune", "--checkpoint", "sums.npz"], "ends with .safetensors"),
    ],
)
def test_a_checkpoint_that_has_no_meaning_is_refused(run, task, tmp_path, options, words):
    given = ["--checkpoint", tmp_path / "sums.safetensors", *options]
    refused(run("fit", task, "-o", tmp_path / "m", *given), words)


def test_a_damaged_checkpoint_is_refused(run, task, tmp_path):
    file = tmp_path / "sums.safetensors"
    file.write_bytes(b"nothing")
    refused(run("fit", task, "-o", tmp_path / "m", "--no-tune", "--checkpoint", file), str(file))
