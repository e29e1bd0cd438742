"""Any model applied to new rows: predictions, scores, embeddings, ranks, and the best rows of each prompt."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.applying import apply as module
from fairerclip.applying.apply import apply_model, top_rows
from fairerclip.baselines import LEACE, LinearProbe
from fairerclip.data import simulate
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import ParameterError
from fairerclip.experiment import Experiment


@pytest.fixture(scope="module")
def birds():
    return simulate("waterbirds", scale=0.1, width=64)


def small(**params):
    return FairerCLIP(n_features=200, random_state=0, **params)


def test_applying_a_model_gives_predictions_scores_and_embeddings(birds):
    model = Experiment.of(birds).fit(small(), "target")
    result = apply_model(model, birds.test.X, ids=np.arange(len(birds.test)))
    assert result["prediction"].tolist() == model.predict(birds.test.X).tolist()
    assert result["embedding"].shape == (len(birds.test), 1)
    assert result["id"].shape == (len(birds.test),)
    assert result["names"].tolist() == ["landbird", "waterbird"]
    np.testing.assert_allclose(result["score"], model.scores(birds.test.X))


def test_applying_a_model_as_a_ranking_gives_the_places_of_rank(birds):
    model = Experiment.of(birds).fit(small(), "target")
    X = birds.test.X[:60]
    result = apply_model(model, X, rank=True, prompts=["waterbird"])
    assert "prediction" not in result
    assert result["names"].tolist() == ["waterbird"]
    expected = model.rank("waterbird", X)
    order = result["rank"][:, 0].argsort()
    np.testing.assert_array_equal(order, expected.indices)
    np.testing.assert_allclose(result["score"][order, 0], expected.scores)
    assert sorted(result["rank"][:, 0]) == list(range(1, 61))
    with pytest.raises(
        ParameterError, match="'goose' is not a prompt of this model; it has landbird, waterbird"
    ):
        apply_model(model, X, rank=True, prompts=["goose"])
    with pytest.raises(ParameterError, match="rank=True"):
        apply_model(model, X, prompts=["waterbird"])


def test_rows_whose_scores_tie_are_ranked_in_their_order(birds):
    model = Experiment.of(birds).fit(small(), "target")
    X = np.repeat(birds.test.X[:1], 4, axis=0)
    assert apply_model(model, X, rank=True)["rank"].tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]]


def test_classes_that_read_alike_keep_columns_of_their_own(birds):
    model = Experiment.of(birds).fit(small(), "target")
    model.fitted_ = replace(model.fitted_, classes=np.array([1, "1"], dtype=object))
    assert apply_model(model, birds.test.X[:5])["names"].tolist() == ["1", "'1'"]


def fitted(model, birds):
    arguments = Experiment.of(birds).arguments("target")
    return model.fit(arguments.pop("X"), arguments.pop("y"), **arguments)


def test_a_method_that_changes_embeddings_gives_them_and_another_gives_none(birds):
    X = birds.test.X[:50]
    leace, probe = fitted(LEACE(), birds), fitted(LinearProbe(), birds)
    found = apply_model(leace, X)
    np.testing.assert_array_equal(found["embedding"], leace.transform(X))
    np.testing.assert_array_equal(found["prediction"], leace.predict(X))
    found = apply_model(probe, X)
    assert set(found) == {"prediction", "score", "names"}
    np.testing.assert_array_equal(found["score"], probe.scores(X))


@pytest.mark.parametrize("make", [small, LEACE], ids=["FairerCLIP", "LEACE"])
def test_the_best_rows_are_those_of_the_ranking_also_of_a_store_in_blocks(birds, make, monkeypatch):
    model, X = fitted(make(), birds), birds.test.X[:100]
    ids = np.array([f"{row}.jpg" for row in range(100)])
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    store = EmbeddingStore.from_array(X, ids=ids)
    ranks = apply_model(model, X, rank=True)["rank"]
    for rows in (X, store):
        best = top_rows(model, rows, 12, ids)
        assert len(best) == 12 * 2
        assert [row.rank for row in best] == [*range(1, 13)] * 2
        for column, name in enumerate(["landbird", "waterbird"]):
            found = [row for row in best if row.prompt == name]
            assert [row.row for row in found] == ranks[:, column].argsort()[:12].tolist()
            assert [row.id for row in found] == [ids[row.row] for row in found]
            np.testing.assert_allclose(
                [row.score for row in found],
                model.scores(X)[[row.row for row in found], column],
                rtol=1e-5,
                atol=1e-6,
            )
    assert {row.prompt for row in top_rows(model, X, 3, prompts=["waterbird"])} == {"waterbird"}
    assert top_rows(model, X, 1)[0].id is None


def test_the_earlier_of_rows_with_the_same_score_is_better_across_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 4)
    model = SimpleNamespace(
        classes_=np.array(["a", "b"]), scores=lambda X: np.column_stack([X[:, 0], -X[:, 0]])
    )
    store = EmbeddingStore.from_array(np.array([0, 1, 0, 1, 1, 0, 1, 0, 1, 0], dtype=np.float32)[:, None])
    assert [row.row for row in top_rows(model, store, 6)] == [1, 3, 4, 6, 8, 0, 0, 2, 5, 7, 9, 1]


def test_a_baseline_answers_for_a_store_as_for_its_rows(birds, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 7)
    model, X = fitted(LEACE(), birds), birds.test.X[:50].astype(np.float32)
    whole, parts = apply_model(model, X), apply_model(model, EmbeddingStore.from_array(X))
    for name in ("score", "embedding"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [0, 51])
def test_more_best_rows_than_there_are_rows_are_refused(birds, k):
    with pytest.raises(ParameterError, match=f"between 1 and 50, the number of rows; got {k}"):
        top_rows(fitted(LEACE(), birds), birds.test.X[:50], k)
