"""The file of a mitigator: bit-identical round trips, and no forged folder whose parts do not fit is loaded."""

import json

import numpy as np
import pytest
from gallery import Gallery
from numpy.testing import assert_array_equal

from fairerclip import EmbeddingMitigator, load
from fairerclip.embedding.mitigator_file import MAX_ATTRIBUTES
from fairerclip.errors import ModelFileError, NoSensitiveWarning, StateError
from forged import MANIFEST, TENSORS, forge, tensors_of


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
    assert a.drift(g.X) == b.drift(g.X)
    assert a.get_params() == b.get_params()
    assert a.diagnostics_ == b.diagnostics_
    for one, other in zip(a.fitted_.attributes, b.fitted_.attributes, strict=True):
        assert (one.name, one.record) == (other.name, other.record)
        assert list([] if one.values is None else one.values) == list(
            [] if other.values is None else other.values
        )


def test_round_trips_of_all_kinds_of_fits(g, fairer, folder, tmp_path):
    assert_same(fairer, load(folder), g)
    two = {"a": g.named, "b": g.s % 2}
    pairs = [
        (EmbeddingMitigator({"a": 0.5, "b": 1}, about=None, unit=True), two),
        (EmbeddingMitigator(sensitive_terms="intersection", about=None), two),
        (EmbeddingMitigator(about=None), {"amount": g.X[:, 0], "a": g.named}),
        (EmbeddingMitigator(about=None, missing_label="?"), {"a": np.where(g.s == 0, "?", g.named)}),
    ]
    for number, (model, given) in enumerate(pairs):
        for dtype in (np.float32, np.float64):
            model.fit(g.X.astype(dtype), sensitive_features=given)
            path = tmp_path / str(number)
            assert_same(model, EmbeddingMitigator.load(model.save(path, overwrite=True)), g)
    with pytest.warns(NoSensitiveWarning):
        nothing = EmbeddingMitigator().fit(g.X)
    assert_same(nothing, load(nothing.save(tmp_path / "nothing")), g)


@pytest.mark.parametrize("names", [[-1, 1], [False, True], [0.0, 2.0], ["Ä\n", 7]], ids=str)
def test_values_of_every_kind_survive(g, tmp_path, names):
    values = np.empty(len(g.s), dtype=object)
    values[:] = [names[k % 2] for k in g.s]
    fairer = EmbeddingMitigator(about=None).fit(g.X, sensitive_features=values)
    assert_same(fairer, load(fairer.save(tmp_path / "m")), g)


def test_a_loaded_mitigator_has_one_strength_takes_no_more_rows_and_is_saved_alike(g, folder, tmp_path):
    back = EmbeddingMitigator.load(folder)
    again = back.save(tmp_path / "again")
    for name in (TENSORS, MANIFEST):
        assert (folder / name).read_bytes() == (again / name).read_bytes()
    for call in (
        lambda: back.at(0.5),
        lambda: back.partial_fit(g.X, sensitive_features=g.s),
        lambda: back.path(g.X, g.Q, g.s),
    ):
        with pytest.raises(StateError):
            call()
    assert back.fit(g.X, sensitive_features=g.s).at(0.5).strength == 0.5


def test_what_cannot_be_read_is_not_written(g, tmp_path):
    many = {f"s{k}": (g.X[:, k % 6] > k / 50).astype(int) for k in range(MAX_ATTRIBUTES + 1)}
    odd = np.empty(len(g.s), dtype=object)
    odd[:] = [(k,) for k in g.s]
    for given in (many, odd):
        with pytest.raises(ModelFileError):
            EmbeddingMitigator().fit(g.X, sensitive_features=given).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


SHAPES = {
    "mean": 5,
    "right": (3, 4),
    "left": (3, 5),
    "row_lengths": 2,
    "row_mean": 7,
    "covariance": (5, 5),
    "shares": 5,
    "reader1.weights": (5, 2),
    "prompts0": (4, 6),
}


@pytest.mark.parametrize("name", SHAPES)
def test_tensors_that_do_not_fit_are_refused(folder, name):
    good = tensors_of(folder)
    rest = {key: value for key, value in good.items() if key != name}
    for bad in (np.zeros(SHAPES[name]), np.full_like(good[name], np.nan), good[name].astype(np.float32)):
        with pytest.raises(ModelFileError):
            load(forge(folder, tensors={**rest, name: bad}))
    with pytest.raises(ModelFileError):
        load(forge(folder, tensors=rest))
    load(forge(folder, tensors=good))


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        ("tensors", {"shares": lambda t: t["shares"] + 1.0}),
        ("tensors", {"covariance": lambda t: -t["covariance"]}),
        ("tensors", {name: lambda t, name=name: np.full_like(t[name], 1e200) for name in ("left", "right")}),
        ("state", {"attributes": None}),
        ("state", {"strengths": [1.0, -1.0]}),
        ("state", {"remaining": [0.0, 0.0, 0.0]}),
        ("state", {"n_rows": 0}),
        ("parameters", {"strength": 2.0}),
        ("attribute", {"name": "b"}),
        ("attribute", {"values": ["a", "b"]}),
        ("attribute", {"values": ["a", "a", "b"]}),
        ("attribute", {"prompts": [0, 2, 1]}),
        ("attribute", {"prompts": [-1, 2, 2]}),
        ("attribute", {"reads": False}),
        ("attribute", {"odd": 1}),
        ("manifest", {"n_features_in": 7}),
        ("manifest", {"feature_names_in": ["a"]}),
    ],
)
def test_forged_parts_are_refused(folder, place, changes):
    manifest, tensors = json.loads((folder / MANIFEST).read_bytes()), tensors_of(folder)
    first, *others = manifest["state"]["attributes"]
    forged = {
        "tensors": lambda: {"tensors": {**tensors, **{k: make(tensors) for k, make in changes.items()}}},
        "state": lambda: {"state": changes},
        "parameters": lambda: {"parameters": manifest["parameters"] | changes},
        "attribute": lambda: {"state": {"attributes": [first | changes, *others]}},
        "manifest": lambda: changes,
    }[place]()
    with pytest.raises(ModelFileError):
        load(forge(folder, **forged))
