"""Answers that are written while the rows are read: those of the model for all rows, and no half files."""

import csv
import warnings

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.applying import answer_blocks as blocks_module
from fairerclip.applying import streamed_answers as module
from fairerclip.applying.streamed_answers import apply_to_file
from fairerclip.baselines import LEACE, LinearProbe
from fairerclip.data import Limits, open_store, simulate
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import (
    DirectionDriftWarning,
    NonFiniteError,
    OutputExistsError,
    ParameterError,
    ShapeError,
    ZeroRowWarning,
)
from fairerclip.experiment import Experiment

ROWS = 8200  # more than one block


@pytest.fixture(scope="module")
def birds():
    return simulate("waterbirds", scale=0.1, width=32)


@pytest.fixture(scope="module")
def models(birds):
    arguments = Experiment.of(birds).arguments("target")
    X, y = arguments.pop("X"), arguments.pop("y")
    made = {"own": FairerCLIP(n_features=40, random_state=0), "leace": LEACE(), "probe": LinearProbe()}
    return {name: model.fit(X, y, **arguments) for name, model in made.items()}


@pytest.fixture(scope="module")
def store(birds, tmp_path_factory):
    """A folder of two shards with ids."""
    folder = tmp_path_factory.mktemp("shards")
    rng = np.random.default_rng(0)
    X = birds.test.X[rng.integers(len(birds.test), size=ROWS)]
    X = (X + 0.1 * rng.standard_normal(X.shape)).astype(np.float32)
    ids = np.array([f"{row}.jpg" for row in range(ROWS)])
    for number, rows in enumerate((slice(0, 3000), slice(3000, None))):
        np.savez(folder / f"{number}.npz", embeddings=X[rows], ids=ids[rows])
    return folder


def table(path):
    """The rows of a table, each a mapping from column to text."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def places(scores):
    """The rank (n, c) of each row in each column; the earlier of equal rows comes first."""
    return np.argsort(np.argsort(-scores, axis=0, kind="stable"), axis=0) + 1


@pytest.mark.parametrize("kind", ["own", "leace", "probe"])
def test_predictions_of_a_store_are_those_of_the_model(models, store, tmp_path, kind):
    opened, model, done = open_store(store), models[kind], []
    report = apply_to_file(model, store, tmp_path / "p.npz", progress=lambda *now: done.append(now))
    assert done == [(8192, ROWS), (ROWS, ROWS)]
    expected, scores = model.predict(opened[:]), model.scores(opened[:])
    with np.load(tmp_path / "p.npz", allow_pickle=False) as found:
        assert found["prediction"].tolist() == expected.tolist()
        assert found["names"].tolist() == ["landbird", "waterbird"]
        assert found["id"].tolist() == opened.ids.tolist()
        np.testing.assert_allclose(found["score"], scores, rtol=1e-5, atol=1e-6)
        assert ("embedding" in found) == (kind != "probe")
        if kind != "probe":
            np.testing.assert_allclose(found["embedding"], model.transform(opened[:]), rtol=1e-5, atol=1e-6)
    names, counts = np.unique(expected, return_counts=True)
    assert report.predicted == dict(zip(names.tolist(), counts.tolist(), strict=True))
    assert report.best == []
    assert report.rate > 0
    apply_to_file(model, store, tmp_path / "p.csv")
    rows = table(tmp_path / "p.csv")
    assert [row["id"] for row in rows] == opened.ids.tolist()
    assert [row["prediction"] for row in rows] == expected.tolist()
    written = [[float(row[f"score: {name}"]) for name in ("landbird", "waterbird")] for row in rows]
    np.testing.assert_allclose(written, scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_ranks_and_the_best_rows_are_those_of_the_scores(models, store, tmp_path, ending):
    opened, model = open_store(store), models["own"]
    report = apply_to_file(model, opened, tmp_path / f"new{ending}", top=4, prompts=["waterbird"])
    assert report.predicted is None
    expected = model.rank("waterbird", opened[:], k=4)
    assert [row.row for row in report.best] == expected.indices.tolist()
    assert [row.id for row in report.best] == opened.ids[expected.indices].tolist()
    np.testing.assert_allclose([row.score for row in report.best], expected.scores, rtol=1e-5)
    assert [(row.prompt, row.rank) for row in report.best] == [("waterbird", k) for k in range(1, 5)]
    if ending == ".csv":
        rows = table(tmp_path / "new.csv")
        assert [(row["rank"], row["id"]) for row in rows] == [(str(b.rank), b.id) for b in report.best]
        return
    with np.load(tmp_path / "new.npz", allow_pickle=False) as found:
        assert set(found) == {"id", "rank", "score", "names", "embedding"}
        assert found["names"].tolist() == ["waterbird"]
        np.testing.assert_array_equal(found["rank"], places(found["score"]))
        assert found["rank"][expected.indices, 0].tolist() == [1, 2, 3, 4]


def test_the_earlier_of_rows_with_the_same_score_is_better_across_blocks(
    models, tmp_path, birds, monkeypatch
):
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 4)
    X = np.repeat(birds.test.X[:1], 12, axis=0)  # whole blocks: others may round differently
    report = apply_to_file(models["leace"], X, tmp_path / "p.npz", top=6)
    assert [row.row for row in report.best] == [*range(6)] * 2
    assert report.best[0].id is None
    with np.load(tmp_path / "p.npz") as found:
        assert found["rank"].tolist() == [[k, k] for k in range(1, 13)]


def test_parquet_in_row_groups_holds_the_table_of_csv(models, store, tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    from fairerclip.data.io import parquet_table

    monkeypatch.setattr(parquet_table, "GROUP_ROWS", 5000)
    opened = open_store(store)
    apply_to_file(models["own"], opened, tmp_path / "p.parquet")
    apply_to_file(models["own"], opened, tmp_path / "p.csv")
    rows = pq.read_table(tmp_path / "p.parquet").to_pylist()
    assert [{k: str(v) for k, v in row.items()} for row in rows] == table(tmp_path / "p.csv")
    assert pq.ParquetFile(tmp_path / "p.parquet").metadata.num_row_groups == 2


def test_memory_holds_a_block_and_no_array_of_all_rows(models, tmp_path, monkeypatch, birds):
    read = []

    class Watched(EmbeddingStore):
        def __getitem__(self, rows):
            read.append(rows.stop - rows.start)
            return super().__getitem__(rows)

    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 64)
    plain = EmbeddingStore.from_array(birds.test.X[:300])
    apply_to_file(models["own"], Watched(plain.parts, path="watched"), tmp_path / "p.csv")
    assert read == [64, 64, 64, 64, 44]  # each row once
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 301


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_a_row_that_is_not_finite_and_an_interrupt_leave_no_file(models, tmp_path, birds, store, ending):
    def stop(done, total):
        raise KeyboardInterrupt

    X = np.tile(birds.test.X[:10], (900, 1))
    X[[8500, 8600], 3] = np.nan
    with pytest.raises(NonFiniteError, match=r"2 rows \(first: 8500, 8600\)"):
        apply_to_file(models["leace"], X, tmp_path / f"p{ending}")
    with pytest.raises(KeyboardInterrupt):
        apply_to_file(models["own"], store, tmp_path / f"p{ending}", progress=stop)
    assert list(tmp_path.iterdir()) == []


def test_zero_rows_and_rows_of_another_encoder_are_warned_of_once(models, tmp_path, birds):
    X = -np.tile(birds.test.X[:10], (900, 1))
    X[8500] = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apply_to_file(models["own"], X, tmp_path / "p.csv")
    assert [w.category for w in caught] == [ZeroRowWarning, DirectionDriftWarning]
    assert "8500" in str(caught[0].message)


def test_what_cannot_be_applied_is_refused_before_the_work(models, tmp_path, birds, monkeypatch):
    X, model = birds.test.X[:20], models["own"]
    monkeypatch.setattr(module, "DEFAULT_LIMITS", Limits(npz_bytes=1000))
    (tmp_path / "kept.csv").write_text("as it was")
    for rows, name, more, error in (
        (X[:, :8], "p.csv", {}, ShapeError),
        (X, "p.csv", {"top": 21}, ParameterError),
        (X, "p.csv", {"prompts": ["waterbird"]}, ParameterError),
        (X, "p.csv", {"top": 2, "prompts": ["goose"]}, ParameterError),
        (X, "p.txt", {}, ParameterError),
        (X, "p.npz", {}, ParameterError),
        (X, "kept.csv", {}, OutputExistsError),
    ):
        with pytest.raises(error):
            apply_to_file(model, rows, tmp_path / name, **more)
    assert [file.name for file in tmp_path.iterdir()] == ["kept.csv"]
    assert (tmp_path / "kept.csv").read_text() == "as it was"
