"""Answers that are written while the rows are read: the same files as from memory, and no half ones."""

import warnings

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.applying import answer_blocks as blocks_module
from fairerclip.applying import streamed_answers as module
from fairerclip.applying.answer_files import write_predictions, write_top
from fairerclip.applying.apply import apply_model, top_rows
from fairerclip.applying.streamed_answers import apply_to_file
from fairerclip.baselines import LEACE, LinearProbe
from fairerclip.data import open_store, simulate
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


@pytest.mark.parametrize("kind", ["own", "leace", "probe"])
@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_predictions_of_a_store_are_the_bytes_that_memory_would_give(models, store, tmp_path, kind, ending):
    opened = open_store(store)
    done = []
    report = apply_to_file(
        models[kind], store, tmp_path / f"new{ending}", progress=lambda *now: done.append(now)
    )
    expected = apply_model(models[kind], opened, opened.ids)
    write_predictions(expected, tmp_path / f"old{ending}")
    assert (tmp_path / f"new{ending}").read_bytes() == (tmp_path / f"old{ending}").read_bytes()
    assert done == [(8192, ROWS), (ROWS, ROWS)]
    names, counts = np.unique(expected["prediction"], return_counts=True)
    assert report.predicted == dict(zip(names.tolist(), counts.tolist(), strict=True))
    assert report.best == []
    assert report.rate > 0


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_ranks_and_the_best_rows_of_a_store_are_those_from_memory(models, store, tmp_path, ending):
    opened, model = open_store(store), models["own"]
    report = apply_to_file(model, opened, tmp_path / f"new{ending}", top=4, prompts=["waterbird"])
    best = top_rows(model, opened, 4, opened.ids, prompts=["waterbird"])
    assert report.best == best
    assert report.predicted is None
    if ending == ".csv":
        write_top(best, tmp_path / "old.csv")
    else:
        ranked = apply_model(model, opened, opened.ids, rank=True, prompts=["waterbird"])
        write_predictions(ranked, tmp_path / "old.npz")
    assert (tmp_path / f"new{ending}").read_bytes() == (tmp_path / f"old{ending}").read_bytes()


def test_a_table_of_the_ranks_of_all_rows_is_the_one_from_memory(models, store, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "is_ranking", lambda model: True)
    opened = open_store(store)
    report = apply_to_file(models["own"], opened, tmp_path / "new.csv")
    write_predictions(apply_model(models["own"], opened, opened.ids, rank=True), tmp_path / "old.csv")
    assert (tmp_path / "new.csv").read_bytes() == (tmp_path / "old.csv").read_bytes()
    assert [row.rank for row in report.best] == [*range(1, 11)] * 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new.csv", "old.csv"]


@pytest.mark.parametrize("ranked", [False, True])
def test_parquet_in_row_groups_holds_the_table_from_memory(models, store, tmp_path, monkeypatch, ranked):
    pq = pytest.importorskip("pyarrow.parquet")
    from fairerclip.data.io import parquet_table

    monkeypatch.setattr(parquet_table, "GROUP_ROWS", 5000)
    monkeypatch.setattr(module, "is_ranking", lambda model: ranked)
    opened = open_store(store)
    apply_to_file(models["own"], opened, tmp_path / "new.parquet")
    write_predictions(apply_model(models["own"], opened, opened.ids, rank=ranked), tmp_path / "old.parquet")
    assert pq.read_table(tmp_path / "new.parquet").equals(pq.read_table(tmp_path / "old.parquet"))
    assert pq.ParquetFile(tmp_path / "new.parquet").metadata.num_row_groups == 2


def test_labels_of_several_types_and_rows_without_ids_are_written_as_from_memory(models, tmp_path, birds):
    from copy import copy
    from dataclasses import replace

    model = copy(models["own"])
    model.fitted_ = replace(model.fitted_, classes=np.array([1, "long name"], dtype=object))
    X = birds.test.X[:50]
    apply_to_file(model, X, tmp_path / "new.npz")
    write_predictions(apply_model(model, X), tmp_path / "old.npz")
    assert (tmp_path / "new.npz").read_bytes() == (tmp_path / "old.npz").read_bytes()


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


def test_a_row_that_is_not_finite_is_named_and_leaves_no_file(models, tmp_path, birds):
    X = np.tile(birds.test.X[:10], (900, 1))
    X[[8500, 8600], 3] = np.nan
    for ending in (".csv", ".npz"):
        with pytest.raises(NonFiniteError, match=r"in 2 rows \(first: 8500, 8600\) of 9000"):
            apply_to_file(models["leace"], X, tmp_path / f"p{ending}")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_leaves_no_file(models, tmp_path, store):
    def stop(done, total):
        raise KeyboardInterrupt

    for ending in (".csv", ".npz"):
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
    assert "X is zero in row 8500 of 9000" in str(caught[0].message)


def test_what_cannot_be_applied_is_refused_before_the_work(models, tmp_path, birds):
    X, model = birds.test.X[:20], models["own"]
    with pytest.raises(ShapeError, match="8 wide, but the model was fitted on embeddings 32 wide"):
        apply_to_file(model, X[:, :8], tmp_path / "p.csv")
    with pytest.raises(ParameterError, match="between 1 and 20"):
        apply_to_file(model, X, tmp_path / "p.csv", top=21)
    with pytest.raises(ParameterError, match="unless top="):
        apply_to_file(model, X, tmp_path / "p.csv", prompts=["waterbird"])
    (tmp_path / "p.csv").write_text("as it was")
    with pytest.raises(OutputExistsError):
        apply_to_file(model, X, tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == "as it was"
