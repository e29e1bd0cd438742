"""Sums that are saved in between: interrupted fits go on to the same result, other files are refused."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip import FairerCLIP
from fairerclip.data import row_checkpoint, row_pass
from fairerclip.data.io.tensors import open_tensors, write_tensors
from fairerclip.data.row_checkpoint import RowCheckpoint, digest, sum_rows_saved
from fairerclip.errors import CheckpointError, ParameterError
from fairerclip.solver import rows as solver_rows
from fairerclip.solver.moments import Moments, MomentTable

FIXED = {"tau": 0.7, "zero_shot": 0.5, "gamma": 1e-3, "criterion": "marginal", "class_offsets": None}


@pytest.fixture(autouse=True)
def small_segments(monkeypatch):
    """Save after every 50 rows, which come in blocks of 20."""
    monkeypatch.setattr(row_checkpoint, "SEGMENT_ROWS", 50)
    monkeypatch.setattr(row_checkpoint, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(RowCheckpoint.__init__, "__kwdefaults__", {"seconds": 0.0})
    monkeypatch.setattr(row_pass, "BLOCK_ROWS", 20)
    monkeypatch.setattr(solver_rows, "BLOCK_ROWS", 20)
    monkeypatch.setattr(solver_rows, "SMALLEST_BLOCK", 20)


class Broken:
    """Rows of which one block cannot be read, once."""

    def __init__(self, X, stop):
        self._X, self.shape, self._stop = X, X.shape, stop
        self.read = 0

    def __getitem__(self, rows):
        if self._stop is not None and rows.stop > self._stop:
            self._stop = None
            raise KeyboardInterrupt
        self.read += len(self._X[rows])
        return self._X[rows]


def plain_labels(y):
    from fairerclip.solver.terms import LabelDesign

    return LabelDesign(y, 2, ())


@pytest.mark.parametrize("kind", ["moments", "table"])
def test_an_interrupted_pass_goes_on_to_the_same_sums(tmp_path, kind):
    rng = np.random.default_rng(0)
    X, y, w, part = (
        rng.normal(size=(230, 4)),
        rng.integers(2, size=230),
        rng.uniform(size=230),
        np.arange(230) % 3,
    )
    columns = [plain_labels(y), w] + ([part] if kind == "table" else [])

    def start():
        return Moments(4, 2) if kind == "moments" else MomentTable(3, 4, 2)

    file = tmp_path / "sums.safetensors"
    whole = sum_rows_saved(X, start, columns, RowCheckpoint(tmp_path / "other.safetensors", "id"), "pass")
    rows = Broken(X, 130)
    with pytest.raises(KeyboardInterrupt):
        sum_rows_saved(rows, start, columns, RowCheckpoint(file, "id"), "pass")
    assert file.exists()
    first = rows.read
    again = sum_rows_saved(rows, start, columns, RowCheckpoint(file, "id"), "pass")
    assert rows.read - first < 230  # the first segments were not read again
    for name, array in whole.to_arrays().items():
        assert_array_equal(again.to_arrays()[name], array)


@pytest.mark.parametrize("parameters", [FIXED, {}], ids=["fixed", "auto"])
def test_an_interrupted_fit_goes_on_to_the_same_model(embeddings, tmp_path, monkeypatch, parameters):
    e, file = embeddings(), tmp_path / "sums.safetensors"
    model = FairerCLIP(n_features=30, random_state=0, **parameters)
    arguments = {"sensitive_features": e.s, "text": e.text}
    plain = model.fit(e.X, e.y, **arguments)
    components, offsets = plain.components_, plain.offsets_
    whole = model.fit(e.X, e.y, **arguments, checkpoint=file)
    assert not file.exists()
    np.testing.assert_allclose(whole.components_, components, rtol=1e-4, atol=1e-5)
    saves = []
    original = RowCheckpoint.save

    def save(self, total, purpose, rows):
        original(self, total, purpose, rows)
        saves.append(rows)
        if len(saves) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(RowCheckpoint, "save", save)
    with pytest.raises(KeyboardInterrupt):
        model.fit(e.X, e.y, **arguments, checkpoint=file)
    assert file.exists()
    again = FairerCLIP(n_features=30, random_state=0, **parameters).fit(
        e.X, e.y, **arguments, checkpoint=file
    )
    assert saves[2] > saves[1]  # the second fit began where the first had stopped
    assert_array_equal(again.components_, whole.components_)
    assert_array_equal(again.offsets_, offsets)
    assert not file.exists()


def test_sums_of_another_fit_are_refused(embeddings, tmp_path, monkeypatch):
    e, file = embeddings(), tmp_path / "sums.safetensors"

    def fit(X=e.X, y=e.y, **parameters):
        model = FairerCLIP(**{"n_features": 30, "random_state": 0, **FIXED, **parameters})
        return model.fit(X, y, sensitive_features=e.s, text=e.text, checkpoint=file)

    def stop(self, total, purpose, rows):
        write(self, total, purpose, rows)
        raise KeyboardInterrupt

    write = RowCheckpoint.save
    with monkeypatch.context() as patched:
        patched.setattr(RowCheckpoint, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            fit()
    y = e.y.copy()
    y[3] = 1 - y[3]
    others = [{"X": e.X + 1e-6}, {"y": y}, {"gamma": 1e-2}, {"random_state": 1}, {"n_features": 31}]
    for other in others:
        with pytest.raises(CheckpointError, match="sums of another fit.*remove the file") as caught:
            fit(**other)
        assert str(file) in str(caught.value)
    assert fit(memory_budget="1GB").n_iter_ == 1  # the memory of the machine does not matter


def test_damaged_and_foreign_files_are_refused(tmp_path):
    file = tmp_path / "sums.safetensors"
    X, w = np.ones((90, 3)), np.ones(90)
    columns = [plain_labels(np.arange(90) % 2), w]

    def run():
        return sum_rows_saved(X, lambda: Moments(3, 2), columns, RowCheckpoint(file, "id"), "pass")

    file.write_bytes(b"nothing")
    with pytest.raises(CheckpointError):
        run()
    write_tensors(file, {"weight": np.ones(2)}, {"format": "other"}, overwrite=True)
    with pytest.raises(CheckpointError, match="found another file"):
        run()
    own = {"format": "fairerclip-sums", "format_version": "1", "identity": "id", "pass": "pass", "rows": "40"}
    arrays = Moments(3, 2).update(X[:40], np.zeros((40, 2)), w[:40]).to_arrays()
    for name in arrays:
        for wrong in (np.zeros(7), arrays[name] * np.nan, arrays[name].astype(np.float32)):
            write_tensors(file, {**arrays, name: wrong}, own, overwrite=True)
            with pytest.raises(CheckpointError, match=f"damaged sums.*{name}"):
                run()
    write_tensors(file, {k: v for k, v in arrays.items() if k != "first"}, own, overwrite=True)
    with pytest.raises(CheckpointError, match="damaged sums"):
        run()
    write_tensors(file, arrays, {**own, "rows": "39"}, overwrite=True)
    with pytest.raises(CheckpointError, match="do not end a segment"):
        run()
    write_tensors(file, arrays, {**own, "pass": "another"}, overwrite=True)
    assert run().finalise().weight == 90
    assert "another" not in open_tensors(file, CheckpointError)[1].values()


def test_the_name_of_the_file_is_checked(tmp_path):
    with pytest.raises(ParameterError, match="ends with .safetensors"):
        RowCheckpoint(tmp_path / "sums.npz", "id")


def test_digests_tell_values_shapes_and_types_apart():
    a = np.arange(6.0)
    found = [digest(x) for x in (a, a.reshape(2, 3), a.astype(np.float32), a + 1, "a", np.array([]))]
    assert len(set(found)) == len(found)
    assert digest(a, "x") == digest(a.copy(), "x")
