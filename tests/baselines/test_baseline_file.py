"""Saved baselines: bit-identical round trips, and nothing that is damaged, forged or strange is loaded."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError

from fairerclip.baselines import (
    DFR,
    LEACE,
    LinearProbe,
    ZeroShot,
    load_baseline,
)
from fairerclip.errors import ModelFileError, OutputExistsError
from forged import forge as forge_folder
from forged import tensors_of as arrays_of


@pytest.fixture
def folder(embeddings, tmp_path):
    e = embeddings(n_classes=3)
    return LEACE().fit(e.X, text=e.text, sensitive_features=e.s).save(tmp_path / "model")


def forge(folder, *, arrays=None, blob=None, **changes):
    """Change a model and make every digest fit again."""
    state = {name: changes.pop(name) for name in ("normalize", "offsets") if name in changes}
    return forge_folder(folder, tensors=arrays, blob=blob, state=state, **changes)


def refused(folder):
    with pytest.raises(ModelFileError) as caught:
        load_baseline(folder)
    assert "\n" not in str(caught.value)


# Round trips ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [["a", "b"], [False, True], ["a", 7]], ids=str)
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


# Forgery --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "os.system"},
        {"format_version": 99},
        {"surprise": 1},
        {"parameters": {"head": "probe"}},
        {"classes": [0, 1, 1]},
    ],
    ids=str,
)
def test_forged_manifests_are_refused(folder, changes):
    forge(folder, **changes)
    refused(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.pop("left_"),
        lambda a: a.update(mean_=np.full(12, np.nan)),
        lambda a: a.update(mean_=np.ones(12, dtype=np.int64)),
        lambda a: a.update(left_=np.ones((2, 12))),
    ],
    ids=range(4),
)
def test_forged_arrays_are_refused(folder, change):
    arrays = arrays_of(folder)
    change(arrays)
    forge(folder, arrays=arrays)
    refused(folder)


def test_a_model_is_replaced_only_if_asked_and_read_as_its_own_class_alone(embeddings, folder):
    e = embeddings()
    other = ZeroShot().fit(e.X, text=e.text)
    with pytest.raises(OutputExistsError):
        other.save(folder)
    with pytest.raises(ModelFileError, match="LEACE"):
        DFR.load(folder)
    other.save(folder, overwrite=True)
    assert type(load_baseline(folder)) is ZeroShot


def test_what_cannot_be_saved_leaves_nothing(embeddings, tmp_path):
    e = embeddings()

    class Mine(ZeroShot):
        pass

    y = [("a", int(k)) for k in e.y]
    for model in (Mine().fit(e.X, text=e.text), LinearProbe().fit(e.X, y)):
        with pytest.raises(ModelFileError):
            model.save(tmp_path / "model")
    with pytest.raises(NotFittedError):
        ZeroShot().save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
