"""Models as ONNX files: onnxruntime answers as the package does, for every kind of model and for saved ones."""

import contextlib
import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from exported_models import KINDS, NAMES, NEW, SCORES, E, answers, baseline, mitigated, model_of
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from fairerclip import FairerCLIP, FairerCLIPSearch
from fairerclip.baselines import TIE, LinearProbe, PerceptionCLIP, Rotation
from fairerclip.data import load_task
from fairerclip.errors import ExportError, MissingExtraError, OutputExistsError, ZeroRowWarning
from fairerclip.experiment import Experiment
from fairerclip.export import export_model, to_onnx, to_torch
from fairerclip.export.model_computation import computation_of, parts_of
from fairerclip.export.onnx_file import NO_LABEL, onnx_bytes
from small_models import small

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def run(content, rows):
    """Outputs of a graph by name."""
    session = runtime.InferenceSession(content)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"embedding": rows}), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_answers_as_in_the_package_and_nan_is_never_hidden(kind):
    model = model_of(kind)
    for part in parts_of(model):
        rows, expected = NEW, contextlib.nullcontext()
        if part != "text":
            rows, expected = np.vstack([NEW, np.zeros_like(NEW[:1])]), pytest.warns(ZeroRowWarning)
        with expected:
            true = answers(model, part, rows)
        bad = np.vstack([rows, np.full_like(NEW[:1], np.nan), np.r_[np.inf, NEW[2, 1:]][None]])
        found = run(onnx_bytes(computation_of(model, part)), bad)
        assert set(true) | ({"label"} if part == "classifier" else set()) == set(found)
        for name, values in true.items():
            assert found[name].dtype == np.float32
            assert_allclose(found[name][:-2], values, rtol=0, atol=SCORES * max(1.0, np.abs(values).max()))
            assert not np.isfinite(found[name][-2:]).any()
        if part == "classifier":
            assert np.mean(found["label"][: len(NEW)] == model.predict(NEW)) >= 0.9999
            assert found["label"].tolist()[-2:] == ["", ""]


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_rows_of_any_number_and_length_are_answered(scale):
    content = onnx_bytes(computation_of(model_of("rbf, target, normalize=True")))
    expected = run(content, NEW)["scores"]
    for n in (0, 1, 3):
        found = run(content, NEW[:n] * np.float32(scale))
        assert_allclose(found["scores"], expected[:n], atol=SCORES)
        assert found["label"].shape == (n,)


@pytest.mark.parametrize("labels", [10 * E.y - 7, E.y == 0, 2.0 * E.y, NAMES[E.y]])
def test_labels_are_text_or_numbers(labels):
    model = LinearProbe().fit(E.X, labels)
    content = onnx_bytes(computation_of(model))
    assert_array_equal(run(content, NEW)["label"], model.predict(NEW))
    unknown = run(content, np.full_like(NEW, np.nan))["label"]
    assert_array_equal(unknown, {"U": "", "f": np.nan}.get(labels.dtype.kind, NO_LABEL))


def test_the_file_passes_the_checks_of_onnx_and_tells_what_it_is(tmp_path):
    file = to_onnx(model_of("rbf, prompts, normalize=False"), tmp_path / "model.onnx")
    model = onnx.load(file, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert not [t.name for t in model.graph.initializer if t.external_data]
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(about["classes"]) == NAMES.tolist()
    assert (about["width"], about["unit_rows"]) == ("12", "false")
    with pytest.raises(OutputExistsError):
        to_onnx(model_of("offsets"), file)
    to_onnx(model_of("offsets"), file, overwrite=True)
    assert [f.name for f in tmp_path.iterdir()] == ["model.onnx"]


def test_all_parts_of_a_saved_model_are_written_as_a_folder(tmp_path):
    model = model_of("exact, prompts, normalize=True")
    model.save(tmp_path / "saved")
    files = export_model(tmp_path / "saved", tmp_path / "out", part="all")
    assert [file.part for file in files] == ["classifier", "image", "text"]
    for file in files:
        found = run(Path(file.path).read_bytes(), NEW)
        for name, values in answers(model, file.part, NEW).items():
            assert_allclose(found[name], values, atol=SCORES)
    assert len(export_model(model_of("offsets"), tmp_path / "out", part="all", overwrite=True)) == 2
    assert not (tmp_path / "out" / "text.onnx").exists()
    (tmp_path / "saved" / "note.txt").write_text("mine")
    with pytest.raises(OutputExistsError):
        export_model(model, tmp_path / "saved", part="all", overwrite=True)


def changed(**attributes):
    model = copy.copy(model_of("LinearProbe()"))
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


def classes(*labels):
    return changed(classes_=np.array(labels, dtype=object))


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: model_of("rbf, target, normalize=True"), "text"),
        (lambda: model_of("rbf, target, normalize=True"), "all"),
        (mitigated, "text"),
        (lambda: model_of("OrthProj()"), "image"),
        (lambda: baseline(PerceptionCLIP()), "classifier"),
        (lambda: baseline(Rotation()), "classifier"),
        (lambda: baseline(TIE()), "classifier"),
        (FairerCLIP, "classifier"),
        (FairerCLIPSearch, "classifier"),
        (lambda: changed(coef_=np.full((3, 12), 1e300)), "classifier"),
        (lambda: classes("a", "b", "\ud800"), "classifier"),
        (lambda: classes("", "b", "c"), "classifier"),  # stands for rows with NaN
        (lambda: classes(1, "a", 2), "classifier"),
        (lambda: classes(b"a", b"b", b"c"), "classifier"),
        (lambda: classes(1j, 2j, 3j), "classifier"),
        (lambda: classes(2**63, 1, 2), "classifier"),
    ],
)
def test_what_cannot_be_exported_is_refused(tmp_path, make, part):
    with pytest.raises((ExportError, NotFittedError)):
        to_onnx(make(), tmp_path / "m.onnx", part=part)
    assert not list(tmp_path.iterdir())


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    for library, export in (("onnx", lambda model: to_onnx(model, tmp_path / "m.onnx")), ("torch", to_torch)):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(MissingExtraError, match=library):
            export(model_of("ZeroShot()"))


@pytest.mark.real
@pytest.mark.slow
def test_a_real_task_keeps_its_labels(real_data):
    task = load_task(real_data / "pacs.npz")
    rows = np.concatenate([split.X for split in task.splits.values()]).astype(np.float32)
    fixed = {**small().get_params(), "n_features": 500, "dtype": "float32"}
    model = Experiment.of(task).fit(FairerCLIP(**fixed), "target")
    found = run(onnx_bytes(computation_of(model)), rows)
    assert np.mean(found["label"] == model.predict(rows)) >= 0.9999
    assert_allclose(found["scores"], model.scores(rows), atol=SCORES)
