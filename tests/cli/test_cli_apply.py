"""`fairerclip apply`: the answers of a saved model to any file of embeddings, and rankings."""

import csv
import json
from importlib.util import find_spec

import numpy as np
import pytest
from safetensors.numpy import save_file

from fairerclip import FairerCLIP
from fairerclip.baselines import LEACE
from fairerclip.data.io.npz import write_npz
from fairerclip.data.io.parquet_table import write_parquet
from fairerclip.data.stores import open_store
from fairerclip.data.writer import StoreWriter
from fairerclip.experiment import Experiment
from small_collection import PROMPTS, QUERIES, clip_retrieval, mitigator, rows


@pytest.fixture(scope="module")
def models(birds, tmp_path_factory):
    """Saved models of the task by name."""
    folder, e = tmp_path_factory.mktemp("models"), Experiment.of(birds)
    e.fit(FairerCLIP(n_features=60, random_state=0), "target").save(folder / "own")
    arguments = e.arguments("none")
    leace = LEACE().fit(arguments.pop("X"), arguments.pop("y"), **arguments)
    leace.at(offsets=[0.01, -0.01]).save(folder / "leace")
    return {"own": FairerCLIP.load(folder / "own"), "leace": LEACE.load(folder / "leace"), "folder": folder}


def stores(folder, X, ids):
    """The same rows in every layout that is read, with ids."""
    np.savez(folder / "e.npz", embeddings=X, ids=ids)
    save_file({"embeddings": X}, folder / "e.safetensors", metadata={"ids": json.dumps(ids.tolist())})
    with StoreWriter(folder / "store", width=X.shape[1], provenance=None) as writer:
        writer.append(ids.tolist(), X)
        writer.finish()
    found = [folder / "e.npz", folder / "e.safetensors", folder / "store"]
    if find_spec("pyarrow") is None:
        return found
    write_parquet({"id": ids.tolist(), "embedding": X.tolist()}, folder / "e.parquet")
    for name in ("img_emb", "metadata"):
        (folder / "retrieval" / name).mkdir(parents=True)
    np.save(folder / "retrieval" / "img_emb" / "img_emb_0.npy", X)
    write_parquet({"image_path": ids.tolist()}, folder / "retrieval" / "metadata" / "metadata_0.parquet")
    return [*found, folder / "e.parquet", folder / "retrieval"]


@pytest.mark.parametrize("name", ["own", "leace"])
def test_any_store_has_the_answers_of_the_model_and_keeps_its_ids(
    run, document, birds, models, tmp_path, name
):
    model, saved, X = models[name], models["folder"] / name, birds.test.X
    ids = np.array([f"images/{k}.jpg" for k in range(len(X))])
    for place in stores(tmp_path, X, ids):
        assert document("apply", saved, place, "-o", tmp_path / "o.npz", "--overwrite")["rows"] == len(X)
        with np.load(tmp_path / "o.npz") as written:
            np.testing.assert_array_equal(written["prediction"], model.predict(X))
            np.testing.assert_array_equal(written["id"], ids)
            np.testing.assert_allclose(written["score"], model.scores(X), atol=1e-5)
    assert run("apply", saved, tmp_path / "e.npz", "-o", tmp_path / "o.csv")[0] == 0
    table = list(csv.DictReader((tmp_path / "o.csv").read_text().splitlines()))
    assert [row["prediction"] for row in table] == model.predict(X).tolist()
    assert [row["id"] for row in table] == ids.tolist()
    for column, label in enumerate(("landbird", "waterbird")):
        written = [float(row[f"score: {label}"]) for row in table]
        np.testing.assert_allclose(written, model.scores(X)[:, column], atol=1e-5)


def test_rankings_are_those_of_the_model(run, document, birds, task, models, tmp_path):
    model, X = models["own"], birds.test.X
    call = ("apply", models["folder"] / "own", task, "--top", 5, "-o")
    code, out, err = run(*call, tmp_path / "o.csv")
    assert (code, err) == (0, "")
    assert f"waterbird: the first 5 of {len(X)} rows" in out
    table = list(csv.DictReader((tmp_path / "o.csv").read_text().splitlines()))
    best = model.rank("waterbird", X, 5)
    found = [row for row in table if row["prompt"] == "waterbird"]
    assert [int(row["row"]) for row in found] == best.indices.tolist()
    np.testing.assert_allclose([float(row["score"]) for row in found], best.scores)
    top = document(*call, tmp_path / "o.npz", "--prompt", "waterbird")["top"]
    assert [row["row"] for row in top["waterbird"]] == best.indices.tolist()
    with np.load(tmp_path / "o.npz") as written:
        assert np.argsort(written["rank"][:, 0])[:5].tolist() == best.indices.tolist()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    mitigator().save(home / "model")
    clip_retrieval(home / "in", metadata=False)
    ids = np.array([f"{k}.png" for k in range(30)])
    write_npz(home / "named.npz", {"embeddings": rows(30)[0], "ids": ids})
    queries = np.stack([*QUERIES[:2], PROMPTS["x"]]).astype(np.float32)
    write_npz(home / "q.npz", {"text": queries, "queries": np.array(["a nurse", "a cook", "an x"])})
    return home


def test_a_mitigated_folder_is_that_of_the_mitigator_and_is_continued(run, document, home, tmp_path):
    apply = ("apply", home / "model", home / "in", "-o")
    code, out, err = run(*apply, tmp_path / "out")
    assert (code, err) == (0, "")
    assert "55 rows mitigated" in out
    expected = mitigator().transform(np.asarray(open_store(home / "in")[:], dtype=np.float32))
    np.testing.assert_allclose(open_store(tmp_path / "out")[:], expected, atol=2e-3)
    assert "55 done earlier" in run(*apply, tmp_path / "out")[1]
    found = document(*apply, tmp_path / "u.npy", "--unit")
    assert (found["rows"], found["written"], found["unit"]) == (55, 55, True)
    lengths = np.linalg.norm(np.asarray(open_store(tmp_path / "u.npy")[:], dtype=np.float64), axis=1)
    np.testing.assert_allclose(lengths, 1, atol=2e-3)


def test_free_queries_rank_mitigated_rows_but_for_those_about_s(run, home, tmp_path):
    call = ("apply", home / "model", home / "named.npz", "--queries", home / "q.npz", "--top", 2, "-o")
    code, _, err = run(*call, tmp_path / "q.csv")
    assert code == 0
    assert "SensitiveQueryWarning: 1 of 3 queries" in err
    table = list(csv.DictReader((tmp_path / "q.csv").read_text().splitlines()))
    plain = rows(30)[0]
    mitigated = mitigator().transform(plain)
    for k, (name, X) in enumerate((("a nurse", mitigated), ("a cook", mitigated), ("an x", plain))):
        query = (*QUERIES[:2], PROMPTS["x"])[k]
        order = np.argsort(-X @ query)[:2]
        found = [row for row in table if row["prompt"] == name]
        assert [row["id"] for row in found] == [f"{k}.png" for k in order]
        assert {row["mitigated"] for row in found} == {str(X is mitigated)}
