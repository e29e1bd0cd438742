"""Saved baselines: bit-identical round trips, and nothing that is damaged, forged or strange is loaded."""

import json
import random
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from fairerclip.baselines import (
    DFR,
    LEACE,
    PRISM,
    SFID,
    SPD,
    TIE,
    BendVLM,
    CLIPClip,
    LinearProbe,
    NeutralRepresentation,
    OrthCali,
    OrthProj,
    PerceptionCLIP,
    RoboShot,
    Rotation,
    WiSE,
    ZeroShot,
    load_baseline,
    save_baseline,
)
from fairerclip.baselines.baseline import Baseline
from fairerclip.errors import ModelFileError, OutputExistsError
from forged import MANIFEST
from forged import TENSORS as ARRAYS
from forged import forge as forge_folder
from forged import tensors_of as arrays_of
from light import smaller_forests

small_forests = pytest.fixture(scope="module", autouse=True)(smaller_forests)
MODELS = [
    ZeroShot(),
    LinearProbe(C=(0.1, 1.0), class_weight="group"),
    DFR(random_state=3),
    OrthProj(),
    OrthCali(10.0),
    OrthCali(pairs=np.arange(1.0, 97.0).reshape(4, 2, 12)),
    LEACE(),
    LEACE("probe"),
    WiSE(0.3),
    CLIPClip(0.5),
    SFID(0.2, max_rows=60, random_state=3),
    SPD(2, max_rows=60, random_state=3),
    BendVLM(5, max_reference=20, random_state=3),
    NeutralRepresentation(3.0),
    PRISM("mini"),
    PRISM(steps=3, random_state=3),
    RoboShot(0.5, boost=2.0),
    Rotation(0.7),
    PerceptionCLIP("contexts", temperature=3.0),
    TIE(0.5),
]
every = pytest.mark.parametrize("model", MODELS, ids=str)


def fit(model, e, **changes):
    given = {"text": e.text, "sensitive_text": e.sensitive_text, "validation": (e.X, e.y, e.s)}
    return clone(model).fit(e.X, e.y, **{**given, **changes})


@pytest.fixture
def folder(embeddings, tmp_path):
    return fit(LEACE(), embeddings(n_classes=3)).save(tmp_path / "model")


def forge(folder, *, arrays=None, blob=None, **changes):
    """Change a model and make every digest fit again."""
    state = {name: changes.pop(name) for name in ("normalize", "offsets") if name in changes}
    return forge_folder(folder, tensors=arrays, blob=blob, state=state, **changes)


def refused(folder, message=None):
    with pytest.raises(ModelFileError, match=message) as caught:
        load_baseline(folder)
    assert "\n" not in str(caught.value)


# Round trips ----------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_round_trip_predicts_bit_for_bit(embeddings, tmp_path, model, n_classes):
    e = embeddings(seed=1, n_classes=n_classes)
    fitted = fit(model, e)
    path = fitted.save(tmp_path / "deep" / "model")
    for back in (load_baseline(path), type(model).load(str(path)), Baseline.load(path)):
        assert type(back) is type(model)
        assert_array_equal(back.scores(e.X), fitted.scores(e.X))
        assert_array_equal(back.transform(e.X), fitted.transform(e.X))
        assert_array_equal(back.predict(e.X), fitted.predict(e.X))
        for name, value in fitted.get_params().items():
            assert_array_equal(back.get_params()[name], value)
        assert getattr(back, "diagnostics_", None) == getattr(fitted, "diagnostics_", None)
    save_baseline(back, tmp_path / "again")
    for name in (ARRAYS, MANIFEST):
        assert (path / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.parametrize("names", [["a", "b"], [-1, 1], [False, True], [0.0, 2.0], ["a", 7]], ids=str)
def test_labels_of_every_kind_survive(embeddings, tmp_path, names):
    e = embeddings()
    labels = [names[k] for k in e.y]
    model = LinearProbe().fit(e.X, labels)
    back = load_baseline(model.save(tmp_path / "model"))
    assert back.predict(e.X).tolist() == model.predict(e.X).tolist()
    assert [type(c) for c in back.classes_.tolist()] == [type(c) for c in model.classes_.tolist()]


def test_column_names_and_a_recipe_survive(embeddings, tmp_path):
    pandas = pytest.importorskip("pandas")
    e = embeddings()
    frame = pandas.DataFrame(e.X, columns=[f"x{k}" for k in range(12)])
    model = LinearProbe(recipe={"epochs": 3, "progress": print}, random_state=np.random.RandomState(1))
    model.fit(frame, e.y)
    back = load_baseline(model.save(tmp_path / "model"))
    assert back.feature_names_in_.tolist() == model.feature_names_in_.tolist()
    assert back.recipe == {"epochs": 3, "progress": None}  # neither callbacks nor generators are kept
    assert back.random_state is None
    assert_array_equal(back.predict(frame), model.predict(frame))


def test_the_file_holds_no_rows_and_no_labels(embeddings, tmp_path):
    e = embeddings(n=2000)
    path = fit(LinearProbe(class_weight="group"), e).save(tmp_path / "model")
    assert sum(f.stat().st_size for f in path.iterdir()) < 6000
    assert sorted(f.name for f in path.iterdir()) == ["README.md", MANIFEST, ARRAYS]


# Writing --------------------------------------------------------------------------------------------


def test_a_taken_name_is_left_alone_unless_asked(embeddings, folder):
    e = embeddings()
    other = fit(ZeroShot(), e)
    with pytest.raises(OutputExistsError, match="exists; choose another name"):
        other.save(folder)
    other.save(folder, overwrite=True)
    assert type(load_baseline(folder)) is ZeroShot
    (folder.parent / "precious").mkdir()
    (folder.parent / "precious" / "thesis.txt").write_text("thesis")
    with pytest.raises(OutputExistsError, match="not a fairerclip model; it is left alone"):
        other.save(folder.parent / "precious", overwrite=True)


def test_what_cannot_be_saved_is_named(embeddings, tmp_path):
    e = embeddings()

    class Mine(ZeroShot):
        pass

    with pytest.raises(ModelFileError, match="Mine is none of the baselines"):
        Mine().fit(e.X, text=e.text).save(tmp_path / "model")
    with pytest.raises(NotFittedError):
        ZeroShot().save(tmp_path / "model")
    y = [("a", int(k)) for k in e.y]
    with pytest.raises(ModelFileError, match="a class label is tuple"):
        LinearProbe().fit(e.X, y).save(tmp_path / "model")
    model = LinearProbe().fit(e.X, e.y)
    model.diagnostics_["loss"] = float("nan")
    with pytest.raises(ModelFileError, match="must be finite numbers and text"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# Damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [ARRAYS, MANIFEST])
def test_every_byte_flip_truncation_and_trailing_byte_is_refused(folder, name):
    whole, rng = (folder / name).read_bytes(), random.Random(1)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (folder / name).write_bytes(damaged)
        refused(folder)
    for content in (*(whole[:k] for k in range(0, len(whole), 97)), whole[:-1], whole + b"\n", whole * 2):
        (folder / name).write_bytes(content)
        refused(folder)
    (folder / name).write_bytes(whole)
    load_baseline(folder)


@pytest.mark.parametrize("name", [ARRAYS, MANIFEST])
def test_a_missing_file_or_a_link_is_refused(folder, tmp_path, name):
    (folder / name).rename(tmp_path / "elsewhere")
    refused(folder, f"{name} is missing")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    refused(folder, "is a link, not a plain file")
    refused(tmp_path / "absent", "not a model folder")


def test_a_model_of_another_class_is_refused(folder):
    with pytest.raises(ModelFileError, match="holds a LEACE, not a DFR"):
        DFR.load(folder)


# Forgery --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"format": "fairerclip-mitigator"}'],
    ids=range(7),
)
def test_a_manifest_that_is_none_is_refused(folder, raw):
    (folder / MANIFEST).write_bytes(raw)
    refused(folder, "expected JSON|does not describe a fairerclip model")


def test_a_repeated_key_and_nan_are_refused(folder):
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"kind": ', '"kind": "DFR", "kind": ', 1))
    refused(folder, "expected each key once, got 'kind' twice")
    (folder / MANIFEST).write_text(text.replace('"shrinkage": 0.0', '"shrinkage": NaN', 1))
    refused(folder, "expected finite numbers, got NaN")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "os.system"}, "'os.system' is no kind of model"),
        ({"kind": "Baseline"}, "is no kind of model"),
        ({"kind": ["LEACE"]}, "expected the name of a class"),
        ({"kind": None}, "expected the name of a class"),
        ({"kind": "ZeroShot"}, "lacks .'text_'"),
        ({"kind": "FairerCLIP"}, "not a Baseline"),
        ({"format_version": 6}, "has format version 6"),
        ({"format_version": True}, "has format version True"),
        ({"surprise": 1}, "missing or unknown keys: .'surprise'"),
        ({"parameters": []}, "'parameters'.* do not describe a model"),
        ({"parameters": {"head": "probe"}}, "parameters do not match"),
        ({"classes": [0, 1]}, r"coef_ has shape \(3, 12\), expected \(c, p\) with c=2, p=12"),
        ({"classes": [0, 1, 1]}, "'classes'.* do not describe a model"),
        ({"classes": [0, 1, [2]]}, "do not describe"),
        ({"classes": [0, 1, None]}, "'classes'.* do not describe a model"),
        ({"classes": "abc"}, "'classes'.* do not describe a model"),
        ({"n_features_in": 7}, "has shape"),
        ({"n_features_in": -12}, "'n_features_in'.* do not describe a model"),
        ({"n_features_in": True}, "'n_features_in'.* do not describe a model"),
        ({"feature_names_in": ["a"]}, "'feature_names_in'.* do not describe a model"),
        ({"diagnostics": []}, "'diagnostics'.* do not describe a model"),
        ({"offsets": [1.0, 2.0]}, "offsets must be 3 numbers"),
        ({"offsets": [1.0, 2.0, "3"]}, "offsets must be 3 numbers"),
        ({"offsets": [1.0, 2.0, 1e300]}, "offsets must be 3 numbers"),
        ({"offsets": {"a": 1}}, "offsets must be 3 numbers"),
    ],
    ids=str,
)
def test_forged_manifests_are_refused(folder, changes, message):
    forge(folder, **changes)
    refused(folder, message)


@pytest.mark.parametrize(
    "value",
    [
        *({"array": "coef_"}, {"array": "parameter:x"}, {"pickle": "x"}, {}, {"a": 1, "b": 2}),
        *([["a", 1]], {"mapping": {"a": [1]}}),
    ],
)
def test_a_parameter_written_in_a_strange_way_is_refused(folder, value):
    manifest = json.loads((folder / MANIFEST).read_bytes())
    forge(folder, parameters={**manifest["parameters"], "C": value})
    refused(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("left_"), "lacks .'left_'"),
        (lambda a: a.update(extra=np.ones(2)), "unknown tensors .'extra'"),
        (lambda a: a.update({"parameter:C": np.ones((2, 2))}), "unknown tensors"),
        (lambda a: a.update(mean_=np.full(12, np.nan)), "finite numbers, tensor 'mean_'"),
        (lambda a: a.update(mean_=np.full(12, np.inf)), "finite numbers, tensor 'mean_'"),
        (lambda a: a.update(mean_=np.ones(12, dtype=np.int64)), "'mean_' is stored as 'I64'"),
        (lambda a: a.update(mean_=np.ones(1)), r"mean_ has shape \(1,\), expected \(p\) with p=12"),
        (lambda a: a.update(intercept_=np.zeros((3, 1))), r"intercept_ has shape \(3, 1\)"),
        (
            lambda a: a.update(left_=np.ones((2, 12))),
            r"left_ has shape \(2, 12\), expected \(k, p\) with k=1",
        ),
        (lambda a: a.update(coef_=np.ones((2, 12))), "coef_ has shape"),
        (lambda a: a.update(coef_=np.full((3, 12), 1e308)), "do not fit together|does not describe"),
    ],
    ids=range(11),
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_forged_arrays_are_refused(folder, change, message):
    arrays = arrays_of(folder)
    change(arrays)
    if "coef_" in arrays and np.abs(arrays["coef_"]).max() > 1e300:
        arrays["mean_"] = np.full(12, 1e300)  # scores overflow
    forge(folder, arrays=arrays)
    refused(folder, message)


def test_a_repeated_tensor_is_refused(folder):
    entry = '"coef_":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}'
    header = f"{{{entry},{entry}}}".encode()
    forge(folder, blob=struct.pack("<Q", len(header)) + header)
    refused(folder, "'coef_' twice|not a safetensors file")


def test_a_broken_header_is_refused(folder):
    for blob in (b"", b"\x00" * 8, struct.pack("<Q", 2**62) + b"{}", b"PK\x03\x04" * 20):
        forge(folder, blob=blob)
        refused(folder, "expected a header of|more than 1048576")
