"""`fairerclip export`: files for onnxruntime, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fairerclip.baselines import OrthProj
from sample_rows import Embeddings
from small_collection import mitigator, rows

pytestmark = pytest.mark.slow
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    mitigator().save(home / "mitigator")
    e = Embeddings()
    names = {
        "text": dict(zip("ab", e.text, strict=True)),
        "sensitive_text": dict(zip("xy", e.sensitive_text, strict=True)),
    }
    OrthProj().fit(e.X, **names).save(home / "classifier")
    return home


def test_export_writes_a_file_that_answers_as_the_model_does(run, home, tmp_path):
    code, out, err = run("export", home / "mitigator", "-o", tmp_path / "m.onnx")
    assert (code, err) == (0, "")
    size = (tmp_path / "m.onnx").stat().st_size
    assert out == f"image written to {tmp_path / 'm.onnx'} ({size} bytes)\n"
    X = rows(20)[0]
    (found,) = runtime.InferenceSession(tmp_path / "m.onnx").run(None, {"embedding": X})
    assert_allclose(found, mitigator().transform(X), atol=1e-6)


def test_export_of_all_parts_writes_a_folder_and_json_tells_which(run, home, tmp_path):
    code, out, _ = run("export", home / "classifier", "--part", "all", "-o", tmp_path / "parts", "--json")
    found = json.loads(out)
    assert (code, found["format"], found["warnings"]) == (0, "onnx", [])
    assert [Path(file["path"]).name for file in found["files"]] == ["classifier.onnx", "text.onnx"]
    session = runtime.InferenceSession(found["files"][0]["path"])
    e = Embeddings()
    label = session.run(["label"], {"embedding": e.X.astype(np.float32)})[0]
    assert_array_equal(label, OrthProj.load(home / "classifier").predict(e.X))


def test_what_cannot_be_written_is_refused(refused, home, tmp_path):
    for words, word in (
        (("m.txt",), ".onnx"),
        (("m.onnx", "--format", "tflite"), "format"),
        (("m.onnx", "--part", "text"), "'text'"),
    ):
        refused(("export", home / "mitigator", "-o", tmp_path / words[0], *words[1:]), word)
    assert list(tmp_path.iterdir()) == []
