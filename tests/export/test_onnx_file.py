"""Models as ONNX files: onnxruntime answers as the package does, for every kind of model and for saved ones."""

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from exported_models import KINDS, NAMES, NEW, SCORES, E, answers, baseline, mitigated, model_of
from numpy.testing import assert_allclose, assert_array_equal

import fairerclip
from fairerclip import FairerCLIP, FairerCLIPSearch
from fairerclip.baselines import TIE, LinearProbe, PerceptionCLIP, Rotation
from fairerclip.baselines.baseline import Baseline
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


def clear(scores, margin):
    """Rows whose largest score is larger than the second by more than a margin."""
    first, second = np.sort(scores, axis=1)[:, [-1, -2]].T
    return first - second > margin


def assert_same_answers(model, rows, margin=-1.0):
    for part in parts_of(model):
        found = run(onnx_bytes(computation_of(model, part)), rows)
        true = answers(model, part, rows)
        assert set(true) | ({"label"} if part == "classifier" else set()) == set(found)
        for name, values in true.items():
            assert found[name].dtype == np.float32
            assert found[name].shape == values.shape
            assert_allclose(found[name], values, rtol=0, atol=SCORES * max(1.0, np.abs(values).max()))
        if part == "classifier":
            compared = clear(true["scores"], margin)
            assert np.mean((found["label"] == model.predict(rows))[compared]) >= 0.9999


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_answers_as_in_the_package(kind):
    assert_same_answers(model_of(kind), NEW)


@pytest.mark.parametrize("model", [PerceptionCLIP(), Rotation(), TIE()], ids=lambda m: type(m).__name__)
def test_methods_without_a_form_outside_of_the_package_are_refused(model):
    with pytest.raises(ExportError, match="cannot be exported"):
        computation_of(baseline(model), "classifier")


@pytest.mark.parametrize("scale", [1e-20, 1e-3, 1e3, 1e20])
def test_rows_of_any_length_give_the_same_answers_where_the_model_scales_rows(scale):
    content = onnx_bytes(computation_of(model_of("rbf, target, normalize=True")))
    assert_allclose(run(content, NEW * np.float32(scale))["scores"], run(content, NEW)["scores"], atol=SCORES)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_batch_may_have_any_number_of_rows(n):
    found = run(onnx_bytes(computation_of(model_of("exact, prompts, normalize=True"))), NEW[:n])
    assert found["scores"].shape == (n, 3)
    assert found["label"].shape == (n,)


@pytest.mark.parametrize("kind", KINDS)
def test_a_zero_row_is_answered_as_in_the_package_and_nan_is_never_hidden(kind):
    model = model_of(kind)
    part = parts_of(model)[0]
    rows = np.vstack([np.zeros_like(NEW[:1]), NEW[:3]])
    with pytest.warns(ZeroRowWarning):
        true = answers(model, part, rows)
    rows[2:] = [np.full(12, np.nan), np.r_[np.inf, NEW[2, 1:]]]
    found = run(onnx_bytes(computation_of(model, part)), rows)
    name = next(iter(true))
    assert_allclose(found[name][:2], true[name][:2], atol=SCORES * max(1.0, np.abs(true[name]).max()))
    assert not np.isfinite(found[name][2:]).any()
    if part == "classifier":
        assert found["label"].tolist()[2:] == ["", ""]
        assert not set(found["label"].tolist()[:2]) - set(NAMES.tolist())


def test_labels_are_text_or_numbers():
    found = run(onnx_bytes(computation_of(model_of("offsets"))), NEW)
    assert set(found["label"].tolist()) <= set(NAMES.tolist())
    model = small().fit(E.X, 10 * E.y - 7, sensitive_features=E.s)
    content = onnx_bytes(computation_of(model))
    assert_array_equal(run(content, NEW)["label"], model.predict(NEW))
    assert run(content, np.full_like(NEW, np.nan))["label"].tolist() == [NO_LABEL] * len(NEW)
    truth = LinearProbe().fit(E.X, E.y == 0)
    assert_array_equal(run(onnx_bytes(computation_of(truth)), NEW)["label"], truth.predict(NEW))
    floats = LinearProbe().fit(E.X, 2.0 * E.y)
    assert_array_equal(run(onnx_bytes(computation_of(floats)), NEW)["label"], floats.predict(NEW))
    mixed = LinearProbe().fit(E.X, np.array([1, "a", 2], dtype=object)[E.y])
    with pytest.raises(ExportError, match="have one type, text or numbers; got int, str, such as"):
        onnx_bytes(computation_of(mixed))


def test_the_file_is_checked_whole_and_tells_what_it_is(tmp_path):
    file = to_onnx(model_of("rbf, prompts, normalize=False"), tmp_path / "model.onnx")
    assert file == tmp_path / "model.onnx"
    model = onnx.load(file, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert [opset.domain for opset in model.opset_import] == [""]
    assert not [t.name for t in model.graph.initializer if t.external_data]
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(about.pop("classes")) == NAMES.tolist()
    assert about == {
        "fairerclip_version": fairerclip.__version__,
        "method": "FairerCLIP",
        "part": "classifier",
        "width": "12",
        "unit_rows": "false",
    }
    assert [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [
        "batch",
        12,
    ]
    with pytest.raises(OutputExistsError):
        to_onnx(model_of("rbf, prompts, normalize=False"), file)
    to_onnx(model_of("offsets"), file, overwrite=True)
    assert [f.name for f in tmp_path.iterdir()] == ["model.onnx"]


def test_all_parts_are_written_as_a_folder(tmp_path):
    model = model_of("exact, prompts, normalize=True")
    model.save(tmp_path / "saved")
    files = export_model(tmp_path / "saved", tmp_path / "out", part="all")
    assert [file.part for file in files] == ["classifier", "image", "text"]
    for file in files:
        assert Path(file.path).stat().st_size == file.bytes
        true = answers(model, file.part, NEW)
        for name, values in true.items():
            assert_allclose(run(Path(file.path).read_bytes(), NEW)[name], values, atol=SCORES)
    assert len(export_model(model_of("offsets"), tmp_path / "out", part="all", overwrite=True)) == 2
    assert not (tmp_path / "out" / "text.onnx").exists()
    (tmp_path / "saved" / "note.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="holds other files than .onnx"):
        export_model(model, tmp_path / "saved", part="all", overwrite=True)


class Elsewhere(Baseline):
    """A method that is not of the package."""

    fitted = ()


def test_what_cannot_be_exported_is_said_with_the_reason(tmp_path):
    model, path = model_of("rbf, target, normalize=True"), tmp_path / "m.onnx"
    with pytest.raises(
        ExportError, match="no part 'text': with decision='target' .* Export classifier or image"
    ):
        to_onnx(model, path, part="text")
    with pytest.raises(ExportError, match="queries are used as the text tower gives them. Export image"):
        to_onnx(mitigated(), path, part="text")
    with pytest.raises(
        ExportError, match="it classifies the embeddings as they are. Export classifier or text"
    ):
        to_onnx(model_of("OrthProj()"), path, part="image")
    with pytest.raises(ExportError, match="part must be one of classifier, image, text; got 'all'"):
        to_onnx(model, path, part="all")
    search = FairerCLIPSearch(FairerCLIP())
    search.best_estimator_ = model
    with pytest.raises(ExportError, match=r"got FairerCLIPSearch \(give its best_estimator_\)"):
        to_onnx(search, path)
    with pytest.raises(ExportError, match="got dict"):
        to_onnx({}, path)
    with pytest.raises(ExportError, match="must end in .onnx; got 'm.txt'"):
        export_model(model, tmp_path / "m.txt")
    with pytest.raises(ValueError, match="not fitted"):
        to_onnx(FairerCLIP(), path)
    other = Elsewhere()
    other.n_features_in_, other.classes_ = 12, NAMES
    with pytest.raises(ExportError, match="Elsewhere is not a method of this package"):
        to_onnx(other, path)
    large = LinearProbe().fit(E.X, E.y)
    large.coef_ = large.coef_ * 1e300
    with pytest.raises(ExportError, match="numbers that float32 cannot hold"):
        to_onnx(large, path)
    assert not path.exists()


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"needs onnx.*\[onnx\]"):
        to_onnx(model_of("ZeroShot()"), tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"needs torch.*\[torch\]"):
        to_torch(model_of("ZeroShot()"))


def test_a_narrow_kernel_is_computed_in_float64():
    steps = computation_of(model_of("narrow kernel")).steps
    assert [step.wide for step in steps[:3]] == [False, True, True]
    assert not any(step.wide for step in computation_of(model_of("rbf, target, normalize=True")).steps)


@pytest.mark.real
@pytest.mark.parametrize("name", ["celeba_blond", "pacs"])  # benchmarks/exported.py has the others
def test_real_tasks_keep_their_labels(real_data, name):
    task = load_task(real_data / f"{name}.npz")
    rows = np.concatenate([split.X for split in task.splits.values()]).astype(np.float32)
    fixed = {**small().get_params(), "n_features": 500, "dtype": "float32"}
    model = Experiment.of(task).fit(FairerCLIP(**fixed), "target")
    assert_same_answers(model, rows)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b", "\ud800"], "no text that UTF-8 can hold"),
        (["", "b", "c"], "stands for rows with NaN"),
        ([b"a", b"b", b"c"], "got bytes"),
        (np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="M8[D]"), "got date"),
        ([1j, 2j, 3j], "got complex"),
        ([2**63, 1, 2], "int64 in ONNX, which cannot hold 9223372036854775808"),
        ([-(2**63), 1, 2], "cannot hold -9223372036854775808"),
    ],
)
def test_labels_that_onnx_cannot_hold_are_errors_of_the_export(labels, message, tmp_path):
    model = copy.copy(model_of("ZeroShot()"))
    model.classes_ = np.array(labels) if isinstance(labels, np.ndarray) else np.array(labels, dtype=object)
    with pytest.raises(ExportError, match=message):
        to_onnx(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
