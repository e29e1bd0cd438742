"""Saved models: bit-identical round trips, and nothing that is damaged, forged or strange is loaded."""

import json
import os
import random
import re
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip import EmbeddingMitigator, FairerCLIP, load
from fairerclip.baselines import LEACE, LinearProbe
from fairerclip.errors import ModelFileError, OutputExistsError, ParameterError, StateError
from fairerclip.model.details import ModelDetails, ModelMetric
from forged import MANIFEST, TENSORS, forge, tensors_of
from sample_rows import Embeddings
from small_models import AUTO, FIXED

E = Embeddings(n_classes=3, p=6)
FILES = (TENSORS, MANIFEST, "README.md")


def small(**parameters):
    return FairerCLIP(**{**FIXED, "n_features": 20, "random_state": 0, **parameters})


def fit(model, e=E, **changes):
    return model.fit(e.X, **{"y": e.y, "sensitive_features": e.s, "text": e.text, **changes})


@pytest.fixture(scope="module")
def fitted():
    return fit(small())


@pytest.fixture
def folder(fitted, tmp_path):
    return fitted.save(tmp_path / "model")


def manifest_of(folder):
    return json.loads((folder / MANIFEST).read_bytes())


# Round trips ----------------------------------------------------------------------------------------


def assert_same(a, b, X):
    for call in ("transform", "decision_function", "predict_proba", "scores", "cosines"):
        assert_array_equal(getattr(a, call)(X), getattr(b, call)(X))
    if a.prompts_ is not None:
        assert_array_equal(a.transform_text(a.prompts_), b.transform_text(a.prompts_))
    assert a.predict(X).tolist() == b.predict(X).tolist()
    for one, other in ((m.classes_.tolist() for m in (a, b)), (m.get_params() for m in (a, b))):
        assert one == other
    assert [type(c) for c in a.classes_.tolist()] == [type(c) for c in b.classes_.tolist()]
    assert a.used_parameters() == b.used_parameters()
    for name in ("eigenvalues_", "objective_", "n_iter_", "n_features_in_", "temperature_", "offsets_"):
        assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.diagnostics_ == b.diagnostics_


@pytest.mark.parametrize("kernel", ["rbf", "orthogonal", "nystroem", "exact", "linear"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_round_trip_predicts_bit_for_bit_read_or_mapped(tmp_path, kernel, dtype):
    model = fit(small(kernel=kernel, dtype=dtype))
    model.save(tmp_path / "model")
    for mapped in (False, True):
        back = load(tmp_path / "model", mapped=mapped)
        for precision in (np.float16, np.float32, np.float64):
            assert_same(model, back, E.X.astype(precision))


@pytest.mark.parametrize(
    "names",
    [["a", "b"], [-1, 1], [False, True], [0.0, 2.0], ["a", 7], ['Ä\n"', "水\U0001f426"], [0, 2**60]],
    ids=str,
)
def test_labels_of_every_kind_survive(tmp_path, names):
    e = Embeddings()
    e.y[0] = 0
    text = dict(zip(names, e.text, strict=True))
    m = fit(small(), e, y=[names[k] for k in e.y], text=text)
    assert_same(m, FairerCLIP.load(m.save(tmp_path / "model")), e.X)


@pytest.mark.parametrize(
    "parameters",
    [
        {"class_weight": {0: 0.5, 1: 2.0}, "subsample": {0: 0.5, 1: 1.0}},
        {"subsample": (0.5, 1.0, 1.0), "class_weight": "group", "bandwidth": 0.7},
        {"tau": np.float64(0.3), "n_features": np.int64(15), "missing_label": -1},
        {"n_components": 1, "criterion": "conditional", "max_iter": 200},
        {"zero_shot": 0.25, "refine": True, "subsample": "balanced:0.5"},
        {"decision": "prompts", "zero_shot": 0},
        AUTO,
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::fairerclip.errors.TextCollapseWarning")
def test_parameters_and_learned_values_survive(tmp_path, parameters):
    m = fit(small(**parameters)).at(offsets=[0.5, 1e-9, -3])
    assert_same(m, FairerCLIP.load(m.save(tmp_path / "model")), E.X)


def test_label_free_models_survive_without_anybodys_labels(tmp_path):
    e = Embeddings()
    m = small(max_iter=1).fit(e.X, text=e.text, sensitive_text=e.sensitive_text)
    back = FairerCLIP.load(m.save(tmp_path / "model"))
    assert_same(m, back, e.X)
    assert back.pseudo_labels_ is None
    with pytest.raises(StateError):
        back.path([0.5])
    assert sum(f.stat().st_size for f in (tmp_path / "model").iterdir()) < 40_000  # neither rows nor labels


def test_other_kinds_survive_and_a_model_saved_twice_is_the_same_file(fitted, tmp_path):
    mitigator = EmbeddingMitigator(about=None).fit(E.X, sensitive_features=E.s)
    for model in (fitted, mitigator, fit(LEACE()), LinearProbe().fit(E.X, E.y)):
        a = model.save(tmp_path / type(model).__name__)
        back = load(a)
        b = back.save(str(tmp_path / "deep" / type(model).__name__))
        for name in FILES:
            assert (a / name).read_bytes() == (b / name).read_bytes()
        assert_array_equal(back.transform(E.X), model.transform(E.X))


def test_a_loaded_model_can_be_fitted_again(fitted, folder):
    assert_array_equal(fit(FairerCLIP.load(folder)).components_, fitted.components_)


def test_a_label_that_json_cannot_hold_is_refused(tmp_path):
    m = small().fit(E.X, np.array([b"a", b"b", b"c"], dtype=object)[E.y], sensitive_features=E.s)
    with pytest.raises(ModelFileError, match="bytes"):
        m.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_float16_halves_a_model_and_moves_no_prediction(tmp_path):
    rng = np.random.default_rng(0)
    X, y, s = rng.normal(size=(200, 768)).astype(np.float32), np.arange(200) % 2, np.arange(200) // 2 % 2
    X[:, 0] += 20 * y
    model = small(n_features=1000, zero_shot=0.0).fit(X, y, sensitive_features=s)
    full, half = (model.save(tmp_path / name, precision=name) for name in ("full", "float16"))
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in (full, half)]
    assert sizes[0] < 3.2e6
    assert sizes[1] < 0.52 * sizes[0]
    back, scores = load(half), model.scores(X)
    assert back.features_.omega.dtype == np.float32  # it computes in the precision that it had
    assert_array_equal(back.predict(X), model.predict(X))
    assert np.abs(back.scores(X) - scores).max() < 1e-3 * np.ptp(scores)
    again = load(back.save(tmp_path / "again", precision="float16"))
    assert_array_equal(again.scores(X), back.scores(X))
    probe = LinearProbe().fit(E.X, E.y)
    probe.coef_ = probe.coef_ * 1e-9  # too small for float16
    assert load(probe.save(tmp_path / "probe", precision="float16")).coef_.dtype == np.float64
    with pytest.raises(ParameterError, match="precision"):
        model.save(tmp_path / "n", precision="float8")


def test_mapped_weights_are_read_only_and_outlive_a_replacement(fitted, folder):
    mapped, expected = load(folder, mapped=True), fitted.scores(E.X)
    assert not mapped.features_.omega.flags.writeable
    assert not mapped.features_.omega.flags.owndata
    other = fit(small(tau=0.1, random_state=1))
    other.save(folder, overwrite=True)
    assert_array_equal(mapped.scores(E.X), expected)
    assert_array_equal(load(folder, mapped=True).scores(E.X), other.scores(E.X))


def test_details_are_kept_until_the_model_is_fitted_again(fitted, tmp_path):
    metric = ModelMetric("worst_group", "after", "test", 0.5, None, 0.4, 0.6, 0.95)
    known = ModelDetails(task="birds", prompts={"0": ["a"]}, metrics=(metric,))
    back = load(fitted.save(tmp_path / "a", details=known))
    assert back.details_ == known
    assert load(back.save(tmp_path / "b")).details_ == known
    assert load(fit(back).save(tmp_path / "c")).details_ == ModelDetails()
    with pytest.raises(ParameterError):
        ModelMetric("worst_group", "after", "test", float("nan"))


@pytest.mark.parametrize("changed", [{"normalize": False}, {"decision": "prompts"}])
def test_a_parameter_that_was_set_after_the_fit_changes_no_answer(tmp_path, changed):
    model, X = fit(small()), 3 * E.X
    expected = model.scores(X), model.fitted_.weighs_classes
    model.set_params(**changed)
    back = load(model.save(tmp_path / "changed"))
    assert_array_equal(back.scores(X), expected[0])
    assert back.fitted_.weighs_classes == expected[1]


# Writing --------------------------------------------------------------------------------------------


def test_a_taken_name_is_left_alone_unless_asked_and_other_files_always(fitted, folder):
    (folder / "plots").mkdir()
    (folder / "plots" / "a.svg").write_text("<svg/>")
    with pytest.raises(OutputExistsError):
        fitted.save(folder)
    assert_same(fitted, FairerCLIP.load(folder), E.X)
    other = fit(small(tau=0.1))
    other.save(folder, overwrite=True)
    assert_same(other, FairerCLIP.load(folder), E.X)
    assert (folder / "plots" / "a.svg").read_text() == "<svg/>"


@pytest.mark.parametrize(
    "files",
    [
        {"thesis.txt": b"thesis"},
        {"model.json": b'{"class_name": "Sequential"}', "model.weights.h5": b"h5", "README.md": b"mine"},
        {MANIFEST: b'{"format": "other", "kind": "LinearProbe"}', TENSORS: b"mine"},
    ],
    ids=str,
)
def test_a_folder_of_another_program_is_never_overwritten(fitted, tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    for target in (tmp_path, tmp_path / next(iter(files))):
        with pytest.raises(OutputExistsError):
            fitted.save(target, overwrite=True)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == files


def test_a_new_clone_is_filled(fitted, tmp_path):
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    (tmp_path / "clone" / ".gitattributes").write_text("*.safetensors filter=lfs")
    folder = fitted.save(tmp_path / "clone", overwrite=True)
    assert {f.name for f in folder.iterdir()} == {".git", ".gitattributes", *FILES}
    assert_same(fitted, FairerCLIP.load(folder), E.X)


@pytest.mark.parametrize("fail_at", [1, 2])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_write_that_fails_leaves_no_half_folder(fitted, tmp_path, monkeypatch, fail_at, overwrite):
    target, calls = tmp_path / "model", []
    if overwrite:
        fitted.save(target)

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == fail_at:
            raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(target, overwrite=overwrite)
    monkeypatch.undo()
    assert [f.name for f in tmp_path.iterdir()] == (["model"] if overwrite else [])
    if overwrite:
        assert_same(fitted, FairerCLIP.load(target), E.X)


def test_a_model_that_could_not_be_loaded_is_not_written(tmp_path):
    mitigator = EmbeddingMitigator(about=None).fit(E.X, sensitive_features=E.s).set_params(strength=5.0)
    probe = LinearProbe().fit(E.X, E.y)
    probe.coef_ = probe.coef_ * np.nan
    odd = fit(small())
    odd.diagnostics_["odd"] = float("nan")
    for model in (mitigator, probe, odd):
        with pytest.raises(ModelFileError):
            model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


# Damaged and forged ---------------------------------------------------------------------------------


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def edit(name, change):
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def instead(name, make):
    """Put something else in the place of a file."""

    def act(folder):
        (folder / name).rename(folder / "elsewhere")
        make(folder / name)

    return act


def blob(header, data):
    raw = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return lambda folder: forge(folder, blob=struct.pack("<Q", len(raw)) + raw + data)


def with_entry(name, **changes):
    def act(folder):
        entries = manifest_of(folder)["tensors"]
        forge(folder, entries={**entries, name: {**entries[name], **changes}})

    return act


def tensor(name, change):
    def act(folder):
        tensors = tensors_of(folder)
        forge(folder, tensors={**tensors, name: change(tensors.get(name))})

    return act


def inside(key, **changes):
    return lambda folder: forge(folder, **{key: {**manifest_of(folder)[key], **changes}})


def entry(**changes):
    return {"dtype": "F64", "shape": [1], "data_offsets": [0, 8], **changes}


ENTRY, LONG = entry(shape=[4], data_offsets=[0, 32]), "x" * 500_000
HOSTILE = {
    "a missing manifest": ("missing-file", lambda f: (f / MANIFEST).unlink()),
    "a linked manifest": ("link", instead(MANIFEST, lambda p: p.symlink_to("elsewhere"))),
    "a pipe as tensors": ("not-plain", instead(TENSORS, os.mkfifo)),
    "a large manifest": ("too-large", write(MANIFEST, b" " * (2 << 20) + b"{}")),
    "a large header": ("too-large", lambda f: forge(f, blob=struct.pack("<Q", 1 << 40) + b"{}")),
    "an empty manifest": ("not-json", write(MANIFEST, b"")),
    "deep JSON": ("too-deep", write(MANIFEST, b"[" * 100_000)),
    "a repeated key": ("repeated-key", edit(MANIFEST, lambda b: b.replace(b"{", b'{"kind": "LEACE",', 1))),
    "NaN in JSON": (
        "not-finite-json",
        edit(MANIFEST, lambda b: re.sub(rb'"gamma": [^,]+', b'"gamma": 1e999', b)),
    ),
    "another format": ("format", lambda f: forge(f, format="other")),
    "another version": ("version", lambda f: forge(f, format_version=999)),
    "an unknown key": ("unknown-field", lambda f: forge(f, **{LONG: 1})),
    "an unknown kind": ("kind", lambda f: forge(f, kind="os.system")),
    "bytes behind the tensors": ("size", edit(TENSORS, lambda b: b + b"\0")),
    "a header that is none": ("header", blob({"mean_": 3}, b"")),
    "tensors that overlap": (
        "overlap",
        blob({"mean_": ENTRY, "zero_": {**ENTRY, "data_offsets": [16, 48]}}, b"\0" * 48),
    ),
    "a tensor that the kind does not know": ("unknown-tensor", tensor(LONG, lambda _: np.zeros(3))),
    "a tensor that the kind needs": (
        "missing-tensor",
        lambda f: forge(f, tensors={k: v for k, v in tensors_of(f).items() if k != "zero_"}),
    ),
    "float32 where float64 is used": ("dtype", tensor("zero_", lambda a: a.astype(np.float32))),
    "another shape than the manifest's": ("shape", with_entry("zero_", shape=[1, 1])),
    "another digest": ("changed-tensor", with_entry("zero_", sha256="0" * 64)),
    "infinity in a tensor": ("not-finite", tensor("mean_", lambda a: np.full_like(a, np.inf))),
    "tensors that do not fit together": ("mismatch", tensor("mean_", lambda a: a[:-1])),
    "a strength out of range": ("mismatch", inside("parameters", tau=5.0)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_every_fault_is_refused_with_its_reason_in_one_line(folder, name):
    reason, act = HOSTILE[name]
    act(folder)
    with pytest.raises(ModelFileError) as caught:
        FairerCLIP.load(folder)
    assert caught.value.reason == reason, caught.value
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    with pytest.raises(ModelFileError):
        load(folder, mapped=True)


def test_a_path_that_is_no_folder_is_refused(folder):
    for path in (folder / MANIFEST, folder / "absent", "user/name"):
        with pytest.raises(ModelFileError) as caught:
            load(path)
        assert caught.value.reason == "not-a-folder"


@pytest.mark.parametrize(
    "changes",
    [
        *({"classes": value} for value in ([0, 1], [0, 1, 1], [0, [1], 2], "abc", [0, 1, None])),
        *({"n_features_in": value} for value in (7, "6")),
        *({"state": {"temperature": value}} for value in (None, -1.0)),
        *({"state": {"features": value}} for value in ("poly", "linear")),
        *({"feature_names_in": ["a"]}, {"diagnostics": []}, {"parameters": {"tau": 0.1}}),
        *({"kind": "LEACE"}, {"entries": {}}, {"tensor_bytes": None}, {"details": {}}, {"versions": None}),
    ],
    ids=str,
)
def test_a_forged_manifest_is_refused_although_its_digests_fit(folder, changes):
    with pytest.raises(ModelFileError):
        FairerCLIP.load(forge(folder, **changes))


@pytest.mark.parametrize(
    ("name", "values"), [("tau", ["auto", None, True]), ("criterion", ["auto", 1]), ("offsets", [[0.0]])]
)
def test_forged_or_missing_learned_values_are_refused(folder, name, values):
    learned = manifest_of(folder)["state"]["learned"]
    rest = {k: v for k, v in learned.items() if k != name}
    for forged in (rest, *({**rest, name: value} for value in values)):
        with pytest.raises(ModelFileError):
            FairerCLIP.load(forge(folder, state={"learned": forged}))


@pytest.mark.slow
def test_every_tensor_that_is_missing_or_of_another_type_or_shape_is_refused(folder):
    tensors = tensors_of(folder)
    for name, array in tensors.items():
        rest = {k: v for k, v in tensors.items() if k != name}
        changed = [
            array[None],  # one number is one number, however many axes it has
            np.append(array.ravel(), 1.0),
            array.astype(np.int64),
            np.full_like(array, np.nan),
        ]
        for other in changed[array.size == 1 :]:
            with pytest.raises(ModelFileError):
                FairerCLIP.load(forge(folder, tensors={**rest, name: other}))
        with pytest.raises(ModelFileError):
            FairerCLIP.load(forge(folder, tensors=rest))
    FairerCLIP.load(forge(folder, tensors=tensors))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "mitigator", "baseline"])
def test_a_flipped_or_missing_byte_is_refused_or_changes_no_answer(fitted, tmp_path, kind):
    model = {
        "model": lambda: fitted,
        "mitigator": lambda: EmbeddingMitigator(about=None).fit(E.X, sensitive_features=E.s),
        "baseline": lambda: fit(LEACE()),
    }[kind]()
    folder, rng = model.save(tmp_path / "model"), random.Random(0)
    for name in (TENSORS, MANIFEST):
        whole = (folder / name).read_bytes()
        flips = [(rng.randrange(len(whole)), 1 << rng.randrange(8)) for _ in range(100)]
        damaged = [whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :] for place, bit in flips]
        damaged += [whole[: rng.randrange(len(whole))] for _ in range(50)] + [whole[:-1], whole + b"\n"]
        for content in damaged:
            (folder / name).write_bytes(content)
            with pytest.raises(ModelFileError):
                load(folder)
        (folder / name).write_bytes(whole)
    (folder / "README.md").unlink()
    os.mkfifo(folder / "README.md")  # other files are never read: reading it would wait for ever
    assert_array_equal(load(folder).transform(E.X), model.transform(E.X))


def test_unknown_tensors_are_refused_before_they_are_read(folder, tracemalloc_peak):
    def refused():
        with pytest.raises(ModelFileError):
            load(folder)

    size = 8 << 20
    forge(folder, tensors={**tensors_of(folder), "payload": np.zeros(size // 8)})
    assert tracemalloc_peak(refused)[1] < size / 4


def test_tensors_at_any_byte_of_the_file_are_read(fitted, folder):
    raw = (folder / TENSORS).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = raw[8 : 8 + size] + b" "
    forge(folder, blob=struct.pack("<Q", len(header)) + header + raw[8 + size :])
    for mapped in (False, True):
        back = load(folder, mapped=mapped)
        assert_array_equal(back.scores(E.X), fitted.scores(E.X))
        assert back.components_.flags.aligned
