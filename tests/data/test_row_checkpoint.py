"""Sums that are saved in between: interrupted fits go on to the same result, other files are refused."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fairerclip import EmbeddingMitigator, FairerCLIP
from fairerclip.data import row_checkpoint, row_pass
from fairerclip.data.io.tensors import open_tensors, write_tensors
from fairerclip.data.row_checkpoint import RowCheckpoint, digest, sum_rows_saved
from fairerclip.errors import CheckpointError, ParameterError
from fairerclip.solver import preconditioner
from fairerclip.solver import rows as solver_rows
from fairerclip.solver.descent import MOST_SOLVES, Descent, SavedSolves
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
    size = np.abs(components).max()  # rounding errors are relative to the largest one
    np.testing.assert_allclose(whole.components_, components, rtol=1e-4, atol=1e-5 * size)
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


class Interrupt:
    """Progress that stops the work when it has heard of so many blocks."""

    def __init__(self, calls):
        self.calls = calls

    def __call__(self, done, total):
        self.calls -= 1
        if self.calls == 0:
            raise KeyboardInterrupt


CG = {"solver": "cg", "n_features": 60, "random_state": 0, "bandwidth": "median"}


@pytest.fixture
def few_sampled(monkeypatch):
    """Sample 30 rows for the preconditioner, so that conjugate gradients take some steps."""
    monkeypatch.setattr(preconditioner, "LEAST_SAMPLED", 30)


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.parametrize(
    "parameters", [{}, {"dtype": "float64"}, {"gamma": "auto"}], ids=["float32", "float64", "auto"]
)
def test_interrupted_conjugate_gradients_go_on_to_the_same_model(embeddings, tmp_path, parameters):
    e, file = embeddings(), tmp_path / "sums.safetensors"
    arguments = {"sensitive_features": e.s, "text": e.text}

    def fit(**options):
        counted = []
        model = FairerCLIP(**{**CG, **FIXED, **parameters})
        model.fit(e.X, e.y, **arguments, **{"progress": lambda *rows: counted.append(rows), **options})
        return model, len(counted)

    plain, blocks = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(checkpoint=file, progress=Interrupt(2 * blocks // 3))
    assert "solves" in open_tensors(file, CheckpointError)[1].values()
    again, left = fit(checkpoint=file)
    assert left < 0.8 * blocks  # steps that were done are not done again
    assert not file.exists()
    assert_array_equal(again.components_, plain.components_)
    assert_array_equal(again.scores(e.X), plain.scores(e.X))
    assert again.diagnostics_["solver_steps"] == plain.diagnostics_["solver_steps"] > 2


@pytest.mark.usefixtures("few_sampled")
def test_damaged_solutions_and_those_of_another_fit_are_refused(embeddings, tmp_path):
    e, file = embeddings(), tmp_path / "sums.safetensors"

    def fit(**options):
        model = FairerCLIP(**CG, **{**FIXED, "gamma": options.pop("gamma", 1e-3)})
        return model.fit(e.X, e.y, sensitive_features=e.s, text=e.text, checkpoint=file, **options)

    with pytest.raises(KeyboardInterrupt):
        fit(progress=Interrupt(70))
    with pytest.raises(CheckpointError, match="sums of another fit"):
        fit(gamma=1e-4)
    tensors, metadata = open_tensors(file, CheckpointError)
    arrays = {name: np.array(tensor.array()) for name, tensor in tensors.items()}
    (key,) = {name.partition(".")[0] for name in arrays if name.endswith(".direction")}
    wrong = {
        f"{key}.direction": [np.zeros(7), arrays[f"{key}.direction"] * np.nan],
        f"{key}.rho": [arrays[f"{key}.rho"][1:], np.float64(1.0)],
        f"{key}.start": [arrays[f"{key}.start"][1:], np.zeros(3)],
        "x.start": [arrays[f"{key}.start"]],
    }
    for name, values in wrong.items():
        for value in values:
            write_tensors(file, {**arrays, name: value}, metadata, overwrite=True)
            with pytest.raises(CheckpointError, match="remove the file to begin anew"):
                fit()
    only = {f"{key}.start": np.zeros((3, 2)), f"{key}.counts": np.zeros(3)}
    write_tensors(file, only, metadata, overwrite=True)
    with pytest.raises(CheckpointError, match="expected solutions of shape"):
        fit()


def test_an_interrupted_mitigator_goes_on_to_the_same_map(embeddings, tmp_path):
    e, file = embeddings(n=240), tmp_path / "sums.safetensors"
    s = np.where(np.arange(240) % 5 == 0, -1, e.s)
    arguments = {"sensitive_features": s, "sensitive_text": dict(enumerate(e.sensitive_text))}
    made = {"missing_label": -1}

    def fit(progress=None, **parameters):
        model = EmbeddingMitigator(**{**made, **parameters})
        return model.fit(e.X, **arguments, progress=progress, checkpoint=file)

    whole = fit()
    assert not file.exists()
    blocks = []
    with pytest.raises(KeyboardInterrupt):
        fit(Interrupt(12 + 4))  # the pass that checks the rows, then segments of the sums
    assert file.exists()
    with pytest.raises(CheckpointError, match="sums of another fit"):
        fit(gamma=1e-2)
    again = fit(lambda *rows: blocks.append(rows))
    assert len(blocks) < 12 + 6
    assert_array_equal(again.transform(e.X), whole.transform(e.X))
    np.testing.assert_allclose(
        again.transform(e.X), EmbeddingMitigator(**made).fit(e.X, **arguments).transform(e.X), atol=1e-6
    )
    assert not file.exists()
    file.write_bytes(b"nothing")
    with pytest.raises(CheckpointError):
        fit()


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_fits_of_folds_never_take_over_sums_of_each_other(embeddings, tmp_path, monkeypatch, solver):
    # Without a table of moments, each fold makes a pass; all have weights of one.
    monkeypatch.setattr("fairerclip.model.cross_validation.sums_budget", lambda budget: 0)
    e, restored = embeddings(n=240), []
    restore = RowCheckpoint.restore

    def heard(self, total, purpose):
        done = restore(self, total, purpose)
        restored.append((done, purpose))
        return done

    monkeypatch.setattr(RowCheckpoint, "restore", heard)
    model = FairerCLIP(n_features=30, random_state=0, solver=solver, class_weight=None)
    saved = model.fit(e.X, e.y, sensitive_features=e.s, text=e.text, checkpoint=tmp_path / "sums.safetensors")
    assert {done for done, _ in restored} == {0}
    assert len(restored) > (2 if solver == "cholesky" else 0)
    plain = FairerCLIP(n_features=30, random_state=0, solver=solver, class_weight=None)
    plain.fit(e.X, e.y, sensitive_features=e.s, text=e.text)
    np.testing.assert_allclose(saved.scores(e.X), plain.scores(e.X), rtol=1e-9, atol=1e-9)


def test_the_solutions_of_many_solves_stay_few_and_their_file_can_be_read(tmp_path):
    def checkpoint():
        return RowCheckpoint(tmp_path / "sums.safetensors", "fit", seconds=0.0)

    solves, columns = SavedSolves(checkpoint()), np.ones((4, 2))
    for number in range(MOST_SOLVES + 40):
        assert solves.begin(f"solve{number}", columns.shape) is None
        solves.keep(Descent.of(number * columns, 0 * columns, 1e-9, (number, 0, 1.0)))
    again = SavedSolves(checkpoint())
    assert again.begin("solve39", columns.shape) is None
    for number in (40, MOST_SOLVES + 39):
        assert_array_equal(again.begin(f"solve{number}", columns.shape).start, number * columns)
