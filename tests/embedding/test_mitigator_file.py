"""The file of a mitigator: bit-identical round trips, and nothing that is damaged, forged or strange is loaded."""

import json
import random

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_array_equal
from safetensors.numpy import load as load_tensors

from fairerclip import EmbeddingMitigator, load
from fairerclip.embedding.mitigator_file import MAX_ATTRIBUTES
from fairerclip.errors import ModelFileError, NoSensitiveWarning, OutputExistsError, StateError
from forged import MANIFEST, TENSORS, tensors_of
from forged import forge as forge_folder


@pytest.fixture(scope="module")
def g():
    return Gallery(v=3, n=80, p=6)


@pytest.fixture(scope="module")
def fairer(g):
    known = np.arange(len(g.s)) % 4 > 0  # the others are read, so that the file has readers
    given = {"a": np.where(known, g.named, None), "b": np.where(known, g.s % 2, None)}
    return EmbeddingMitigator(about=None).fit(g.X, sensitive_features=given, sensitive_text={"a": g.text})


@pytest.fixture
def folder(fairer, tmp_path):
    return fairer.save(tmp_path / "m")


def assert_same(a, b, g):
    for X in (g.X, g.X.astype(np.float32), g.X.astype(np.float16)):
        assert_array_equal(a.transform(X), b.transform(X))
    assert_array_equal(a.scores(g.X, g.Q), b.scores(g.X, g.Q))
    assert_array_equal(a.query_meaning(g.Q).shares, b.query_meaning(g.Q).shares)
    assert a.get_params() == b.get_params()
    assert a.diagnostics_ == b.diagnostics_
    assert a.fitted_.strengths == b.fitted_.strengths
    assert a.fitted_.remaining == b.fitted_.remaining
    for one, other in zip(a.fitted_.attributes, b.fitted_.attributes, strict=True):
        assert (one.name, one.record) == (other.name, other.record)
        assert (one.values is None) == (other.values is None)
        if one.values is not None:
            assert one.values.tolist() == other.values.tolist()


# Round trips ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_round_trip_maps_bit_for_bit(g, tmp_path, dtype):
    fairer = EmbeddingMitigator(0.9, about=None)
    fairer.fit(g.X.astype(dtype), sensitive_features=g.named, sensitive_text=g.text)
    assert_same(fairer, EmbeddingMitigator.load(fairer.save(tmp_path / "m")), g)


def test_round_trips_of_other_fits(g, tmp_path):
    two = {"a": g.named, "b": g.s % 2}
    amount = {"amount": g.X[:, 0], "a": g.named}
    pairs = [
        (EmbeddingMitigator({"a": 0.5, "b": 1}, about=None, unit=True), two),
        (EmbeddingMitigator(sensitive_terms="intersection", about=None), two),
        (EmbeddingMitigator(about=None), amount),
        (EmbeddingMitigator(about=None, missing_label="?"), {"a": np.where(g.s == 0, "?", g.named)}),
    ]
    for number, (model, given) in enumerate(pairs):
        fairer = model.fit(g.X, sensitive_features=given)
        back = load(fairer.save(tmp_path / str(number)))
        assert_same(fairer, back, g)
    with pytest.warns(NoSensitiveWarning):
        nothing = EmbeddingMitigator().fit(g.X)
    assert_same(nothing, load(nothing.save(tmp_path / "nothing")), g)


@pytest.mark.parametrize(
    "names", [["a", "b"], [-1, 1], [False, True], [0.0, 2.0], ["a", 7], ["Ä\n", "水"]], ids=str
)
def test_values_of_every_kind_survive(g, tmp_path, names):
    values = np.empty(len(g.s), dtype=object)
    values[:] = [names[k % 2] for k in g.s]
    fairer = EmbeddingMitigator(about=None).fit(g.X, sensitive_features=values)
    assert_same(fairer, load(fairer.save(tmp_path / "m")), g)


def test_names_of_columns_survive(g, tmp_path):
    frame = pytest.importorskip("pandas").DataFrame(g.X, columns=[f"x{k}" for k in range(6)])
    fairer = EmbeddingMitigator().fit(frame, sensitive_features=g.s)
    back = load(fairer.save(tmp_path / "m"))
    assert back.get_feature_names_out().tolist() == frame.columns.tolist()
    assert_array_equal(back.transform(frame), fairer.transform(frame))


def test_a_mitigator_saved_twice_is_the_same_file_and_holds_no_row(g, folder, tmp_path):
    again = EmbeddingMitigator.load(folder).save(tmp_path / "again")
    for name in (TENSORS, MANIFEST):
        assert (folder / name).read_bytes() == (again / name).read_bytes()
    sizes = {name: array.shape for name, array in load_tensors((folder / TENSORS).read_bytes()).items()}
    assert not any(len(g.X) in shape for shape in sizes.values())


def test_a_loaded_mitigator_has_one_strength_and_takes_no_more_rows(g, folder):
    back = EmbeddingMitigator.load(folder)
    with pytest.raises(StateError, match="one strength only"):
        back.at(0.5)
    with pytest.raises(StateError, match="no sums of its rows"):
        back.partial_fit(g.X, sensitive_features=g.s)
    assert back.fit(g.X, sensitive_features=g.s).at(0.5).strength == 0.5


def test_what_cannot_be_read_is_not_written(g, tmp_path):
    many = {f"s{k}": (g.X[:, k % 6] > k / 50).astype(int) for k in range(MAX_ATTRIBUTES + 1)}
    fairer = EmbeddingMitigator().fit(g.X, sensitive_features=many)
    with pytest.raises(ModelFileError, match=f"at most {MAX_ATTRIBUTES} attributes"):
        fairer.save(tmp_path / "m")
    odd = np.empty(len(g.s), dtype=object)
    odd[:] = [(k,) for k in g.s]
    with pytest.raises(ModelFileError, match="relabel"):
        EmbeddingMitigator().fit(g.X, sensitive_features=odd).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


# Writing --------------------------------------------------------------------------------------------


def test_a_taken_name_is_left_alone_unless_asked(g, fairer, folder):
    before = (folder / MANIFEST).read_bytes()
    with pytest.raises(OutputExistsError, match="overwrite"):
        fairer.save(folder)
    assert (folder / MANIFEST).read_bytes() == before
    fairer.at(0.5).save(folder, overwrite=True)
    assert load(folder).strength == 0.5


def test_what_is_no_mitigator_is_never_overwritten(fairer, tmp_path):
    target = tmp_path / "precious"
    target.mkdir()
    (target / "thesis.txt").write_text("thesis")
    with pytest.raises(OutputExistsError, match="not a fairerclip model; it is left alone"):
        fairer.save(target, overwrite=True)
    assert (target / "thesis.txt").read_text() == "thesis"


# Damage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [TENSORS, MANIFEST])
def test_byte_flips_and_truncations_are_rejected(folder, name):
    whole, rng = (folder / name).read_bytes(), random.Random(0)
    for _ in range(30):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (folder / name).write_bytes(damaged)
        with pytest.raises(ModelFileError):
            load(folder)
        (folder / name).write_bytes(whole[: rng.randrange(len(whole))])
        with pytest.raises(ModelFileError):
            load(folder)
    (folder / name).unlink()
    with pytest.raises(ModelFileError):
        EmbeddingMitigator.load(folder)


STATE = ("attributes", "strengths", "remaining", "n_rows")


def forge(folder, *, tensors=None, attribute=None, **changes):
    """Change a mitigator and make every digest fit again."""
    state = {name: changes.pop(name) for name in STATE if name in changes}
    if attribute is not None:
        attributes = json.loads((folder / MANIFEST).read_bytes())["state"]["attributes"]
        state["attributes"] = [{**attributes[0], **attribute}, *attributes[1:]]
    if tensors is not None:
        tensors = {k: v for k, v in {**tensors_of(folder), **tensors}.items() if v is not None}
    return forge_folder(folder, tensors=tensors, state=state, **changes)


def test_a_forged_file_that_changes_nothing_is_read(g, fairer, folder):
    assert_same(load(forge(folder, tensors={})), fairer, g)


WRONG_TENSORS = {
    "mean": np.zeros(5),
    "right": np.zeros((3, 4)),
    "left": np.zeros((3, 5)),
    "row_lengths": np.ones(2),
    "row_mean": np.zeros(7),
    "covariance": np.eye(5),
    "shares": np.zeros(5),
    "reader0.weights": np.zeros((6, 4)),
    "reader1.weights": np.zeros((5, 2)),
    "reader0.intercepts": np.zeros(2),
    "prompts0": np.zeros((4, 6)),
}


@pytest.mark.parametrize("name", WRONG_TENSORS)
@pytest.mark.parametrize("how", ["shape", "missing", "nan", "float32"])
def test_tensors_that_do_not_fit_are_refused(fairer, tmp_path, name, how):
    folder = fairer.save(tmp_path / "m")
    good = load_tensors((folder / TENSORS).read_bytes())[name]
    bad = {
        "shape": WRONG_TENSORS[name],
        "missing": None,
        "nan": np.full_like(good, np.nan),
        "float32": good.astype(np.float32),
    }
    with pytest.raises(ModelFileError):
        load(forge(folder, tensors={name: bad[how]}))


def test_unknown_tensors_are_refused(folder):
    with pytest.raises(ModelFileError, match=r"unknown tensors \['more'\]"):
        load(forge(folder, tensors={"more": np.zeros(1)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"attributes": None},
        {"attributes": [{}]},
        {"attributes": []},
        {"strengths": [1.0]},
        {"strengths": [1.0, "1"]},
        {"strengths": [1.0, -1.0]},
        {"remaining": [0.0, 0.0, 0.0]},
        {"remaining": None},
        {"n_rows": 0},
        {"n_rows": "80"},
        {"n_features_in": 7},
        {"n_features_in": True},
        {"parameters": {}},
        {"parameters": None},
        {"diagnostics": None},
        {"diagnostics": [1]},
        {"format": "fairerclip-model"},
        {"kind": "FairerCLIP"},
        {"classes": [0, 1]},
        {"format_version": 99},
        {"format_version": "1"},
        {"feature_names_in": ["a"]},
        {"more": 1},
    ],
    ids=str,
)
def test_forged_manifests_are_refused(folder, changes):
    with pytest.raises(ModelFileError):
        load(forge(folder, **changes))


@pytest.mark.parametrize(
    "attribute",
    [
        {"name": 1},
        {"values": ["a", "b"]},
        {"values": ["a"]},
        {"values": ["a"], "prompts": [3]},
        {"values": ["a", "a", "b"]},
        {"values": [["a"], ["b"], ["c"]]},
        {"values": [{"a": 1}, "b", "c"]},
        {"values": [None, "b", "c"]},
        {"values": "abc"},
        {"values": None},
        {"prompts": [1, 1]},
        {"prompts": [0, 2, 1]},
        {"prompts": [-1, 2, 2]},
        {"prompts": [True, True, True]},
        {"prompts": 3},
        {"prompts": None},
        {"reads": False},
        {"reads": 1},
        {"record": None},
        {"odd": 1},
    ],
    ids=str,
)
def test_forged_attributes_are_refused(folder, attribute):
    with pytest.raises(ModelFileError):
        load(forge(folder, attribute=attribute))


@pytest.mark.parametrize(
    "parameters",
    [{"strength": 2.0}, {"features": "linear"}, {"gamma": -1.0}, {"about": "x"}, {"strength": [1]}],
    ids=str,
)
def test_forged_parameters_are_refused(folder, parameters):
    good = json.loads((folder / MANIFEST).read_bytes())["parameters"]
    with pytest.raises(ModelFileError):
        load(forge(folder, parameters=good | parameters))


def test_summaries_that_no_rows_have_and_repeated_names_are_refused(folder):
    good = tensors_of(folder)
    bad = {"shares": good["shares"] + 1.0, "covariance": -good["covariance"]}
    for name, message in (("shares", "in .0, 1."), ("covariance", "not negative")):
        with pytest.raises(ModelFileError, match=message):
            load(forge_folder(folder, tensors={**good, name: bad[name]}))
    huge = {name: np.full_like(good[name], 1e200) for name in ("left", "right")}
    with pytest.raises(ModelFileError, match="answers are NaN or infinity"):
        load(forge_folder(folder, tensors={**good, **huge}))
    attributes = json.loads((folder / MANIFEST).read_bytes())["state"]["attributes"]
    attributes[1]["name"] = attributes[0]["name"]
    with pytest.raises(ModelFileError, match="'attributes'"):
        load(forge_folder(folder, tensors=good, state={"attributes": attributes}))
