"""Indexes of the original and the mitigated rows: written in one step, searched side by side, damaged ones refused."""

import hashlib
import json
import shutil

import numpy as np
import pytest

from fairerclip.data.provenance import Provenance
from fairerclip.data.stores import EmbeddingStore
from fairerclip.errors import (
    IndexFileError,
    MissingExtraError,
    NonFiniteError,
    OutputExistsError,
    ParameterError,
    SensitiveQueryWarning,
    ShapeError,
)
from fairerclip.export import build_index, build_search_index, faiss_index, open_index
from small_collection import PROMPTS, QUERIES, WIDTH, mitigator, rows

IDS = [f"images/{k}.jpg" for k in range(60)]


@pytest.fixture(scope="module")
def model():
    return mitigator()


@pytest.fixture(scope="module")
def flat(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "flat"
    build_index(model, EmbeddingStore.from_array(rows(60)[0], IDS), path)
    return path


@pytest.fixture(scope="module")
def faiss():
    return pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def ivf(model, tmp_path_factory, faiss):
    path = tmp_path_factory.mktemp("index") / "ivf"
    build_index(model, rows(500)[0], path, kind="ivf")
    return path


def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def test_a_flat_index_gives_the_ranking_of_the_original_and_of_the_mitigated_rows(model, flat):
    X = rows(60)[0]
    index = open_index(flat)
    assert (len(index), index.manifest.kind, index.manifest.unit) == (60, "flat", False)
    for result, query in zip(index.search(QUERIES, 7), QUERIES, strict=True):
        expected = model.rank(query, X, 7)
        assert [hit.row for hit in result.mitigated] == expected.indices.tolist()
        np.testing.assert_allclose([hit.score for hit in result.mitigated], expected.scores, rtol=1e-5)
        assert [hit.id for hit in result.mitigated] == [IDS[k] for k in expected.indices]
        order = np.argsort(-(X @ query), kind="stable")[:7]
        assert [hit.row for hit in result.original] == order.tolist()
        assert result.shared == len({*order.tolist()} & {*expected.indices.tolist()})
        assert [hit.rank for hit in result.original] == [*range(1, 8)]


def test_one_query_may_be_a_vector_and_rows_without_ids_go_by_number(model, tmp_path):
    build_index(model, rows(20)[0], tmp_path / "i", unit=True)
    index = open_index(tmp_path / "i")
    (result,) = index.search(QUERIES[0], 2)
    assert result.query == "query 1"
    assert [hit.id for hit in result.original] == [str(hit.row) for hit in result.original]
    Z = model.transform(rows(20)[0])
    best = (Z @ QUERIES[0] / np.linalg.norm(Z, axis=1)).max()
    assert result.mitigated[0].score == pytest.approx(best, abs=1e-5)


def test_faiss_reads_and_writes_the_bytes_of_a_flat_index(model, flat, tmp_path, faiss):
    for name in ("original.index", "mitigated.index"):
        index = faiss.read_index(str(flat / name))
        assert isinstance(index, faiss.IndexFlatIP)
        faiss.write_index(index, str(tmp_path / name))
        assert (tmp_path / name).read_bytes() == (flat / name).read_bytes()
    _, places = index.search(QUERIES.astype(np.float32), 5)
    for result, numbers in zip(open_index(flat).search(QUERIES, 5), places, strict=True):
        assert [hit.row for hit in result.mitigated] == numbers.tolist()


def test_a_query_about_s_gets_the_original_results_twice_if_the_model_is_given(model, flat):
    index = open_index(flat)
    Q = np.stack([PROMPTS["x"], QUERIES[0]])
    with pytest.warns(SensitiveQueryWarning, match="'an x' .place."):
        about, free = index.search(Q, 5, names=["an x", "a thing"], model=model)
    assert (about.about, free.about) == ("place", None)
    assert about.mitigated == about.original
    assert free.mitigated != free.original
    assert [result.about for result in index.search(Q, 5)] == [None, None]
    with pytest.raises(ParameterError, match="built with another mitigator"):
        index.search(Q, 5, model=mitigator(strength=0.5))


def test_an_index_of_cells_finds_what_a_flat_one_finds_if_all_cells_are_searched(model, ivf):
    X = rows(500)[0]
    result = open_index(ivf, probe=1).search(QUERIES, 9)[0]
    expected = model.rank(QUERIES[0], X, 9)
    assert [hit.row for hit in result.mitigated] == expected.indices.tolist()
    few = open_index(ivf, probe=0.01).search(QUERIES, 500)[0]
    assert 0 < len(few.original) < 500  # one cell of some
    assert all(hit.row >= 0 for hit in few.original)


def test_a_compressed_index_is_trained_and_read_although_its_table_is_larger_than_its_file(
    model, tmp_path, monkeypatch, faiss
):
    monkeypatch.setattr(faiss_index, "CODE_BITS", 6)
    X = rows(2500)[0]
    build_index(model, X, tmp_path / "pq", kind="pq")
    result = open_index(tmp_path / "pq", probe=1).search(QUERIES, 100)[0]
    true = {*np.argsort(-(X @ QUERIES[0]))[:100].tolist()}
    assert len(true & {hit.row for hit in result.original}) > 50
    table = 4 * faiss_index.cell_count(2500) * faiss_index.code_count(WIDTH) * 2**6
    assert table > (tmp_path / "pq" / "original.index").stat().st_size


def test_equal_collections_give_equal_indexes(model, ivf, tmp_path):
    build_index(model, rows(500)[0], tmp_path / "again", kind="ivf")
    assert (tmp_path / "again" / "index.json").read_bytes() == (ivf / "index.json").read_bytes()


def test_the_kind_follows_from_the_number_of_rows(model, tmp_path, monkeypatch, faiss):
    monkeypatch.setattr(build_search_index, "FLAT_ROWS", 50)
    assert build_index(model, rows(50)[0], tmp_path / "a").kind == "flat"
    assert build_index(model, rows(51)[0], tmp_path / "b").kind == "ivf"
    with pytest.raises(ParameterError, match="kind must be one of 'flat', 'ivf', 'pq'; got 'hnsw'"):
        build_index(model, rows(50)[0], tmp_path / "c", kind="hnsw")
    with pytest.raises(ParameterError, match="kind pq needs at least 9,984 rows; got 51: use flat"):
        build_index(model, rows(51)[0], tmp_path / "c", kind="pq")


def test_without_faiss_a_flat_index_works_and_another_names_the_extra(model, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    build_index(model, rows(50)[0], tmp_path / "a")
    assert len(open_index(tmp_path / "a").search(QUERIES, 3)) == 3
    with pytest.raises(MissingExtraError, match=r"kind ivf needs faiss.*\[faiss\]"):
        build_index(model, rows(50)[0], tmp_path / "b", kind="ivf")


def test_a_folder_is_replaced_only_if_it_is_an_index_and_a_failure_leaves_the_old_one(model, flat, tmp_path):
    (tmp_path / "other").mkdir()
    with pytest.raises(OutputExistsError, match="not a search index"):
        build_index(model, rows(20)[0], tmp_path / "other", overwrite=True)
    old = copied(flat, tmp_path)
    with pytest.raises(OutputExistsError):
        build_index(model, rows(20)[0], old)
    bad = rows(300)[0]
    bad[200, 0] = np.inf
    before = {f.name: f.read_bytes() for f in old.iterdir()}
    with pytest.raises(NonFiniteError, match="row 200"):
        build_index(model, bad, old, overwrite=True)
    assert {f.name: f.read_bytes() for f in old.iterdir()} == before
    build_index(model, rows(20)[0], old, overwrite=True)
    assert not (old / "ids.txt").exists()
    assert len(open_index(old)) == 20


def test_the_model_of_the_images_is_kept(model, tmp_path):
    made = Provenance("ViT-B-32", None, "resize 224", "test", True, WIDTH)
    build_index(model, EmbeddingStore.from_array(rows(5)[0], provenance=made), tmp_path / "i")
    assert open_index(tmp_path / "i").provenance == made


@pytest.mark.parametrize("name", ["original.index", "mitigated.index"])
@pytest.mark.parametrize("damage", ["short", "long", "header", "missing", "width"])
def test_a_damaged_flat_index_is_refused(flat, tmp_path, name, damage):
    file = copied(flat, tmp_path) / name
    raw = file.read_bytes()
    changed = {
        "short": raw[:-4],
        "long": raw + b"\0\0\0\0",
        "header": b"IwFl" + raw[4:],
        "width": raw[:4] + b"\xff\xff\xff\x7f" + raw[8:],
    }
    file.unlink() if damage == "missing" else file.write_bytes(changed[damage])
    with pytest.raises(IndexFileError, match=name):
        open_index(file.parent)


def test_a_damaged_index_of_cells_is_refused_before_faiss_reads_it(ivf, tmp_path, monkeypatch, faiss):
    folder = copied(ivf, tmp_path)
    raw = bytearray((folder / "mitigated.index").read_bytes())
    raw[60] ^= 1
    (folder / "mitigated.index").write_bytes(raw)
    read = []
    monkeypatch.setattr(faiss, "read_index", lambda name: read.append(name) or pytest.fail(name))
    monkeypatch.setattr(faiss_index, "MAGIC", {"ivf": b"none"})
    with pytest.raises(IndexFileError, match="original.index: expected .* of kind ivf"):
        open_index(folder)
    monkeypatch.undo()
    with pytest.raises(IndexFileError, match="mitigated.index: expected .* with the digest"):
        open_index(folder)


def test_a_forged_index_of_cells_of_another_shape_is_refused(ivf, tmp_path, faiss):
    folder = copied(ivf, tmp_path)
    other = faiss.IndexIVFFlat(faiss.IndexFlatIP(3), 3, 1, faiss.METRIC_INNER_PRODUCT)
    other.train(np.ones((40, 3), np.float32))
    for raw, message in (
        (faiss.serialize_index(other).tobytes(), "expected an index of kind ivf with 500 rows"),
        (b"IwFl" + b"\xff" * 200, "faiss cannot read it"),
    ):
        (folder / "original.index").write_bytes(raw)
        manifest = json.loads((folder / "index.json").read_text())
        manifest["files"]["original.index"] = [len(raw), hashlib.sha256(raw).hexdigest()]
        (folder / "index.json").write_text(json.dumps(manifest))
        with pytest.raises(IndexFileError, match=message):
            open_index(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "hnsw"},
        {"rows": 0},
        {"rows": 2**60},
        {"width": "12"},
        {"unit": 1},
        {"model": "abc"},
        {"files": {}},
        {"files": None},
        {"provenance": {"model": 1}},
        {"metric": "L2"},
        {"named": None},
        {"more": 1},
        {"format_version": 2},
        {"format": "other"},
    ],
)
def test_a_damaged_description_is_refused(flat, tmp_path, change):
    file = copied(flat, tmp_path) / "index.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(IndexFileError, match="index.json: "):
        open_index(file.parent)


def test_ids_that_do_not_fit_are_refused(flat, tmp_path):
    folder = copied(flat, tmp_path)
    lines = (folder / "ids.txt").read_text().splitlines(keepends=True)
    for text in ("".join(lines[:-1]), "".join([*lines, '"more"\n']), "1\n" * 60, "a\n" * 60):
        (folder / "ids.txt").write_text(text)
        with pytest.raises(IndexFileError, match="ids.txt"):
            open_index(folder).search(QUERIES, 3)


def test_bad_requests_are_refused(flat, tmp_path):
    with pytest.raises(IndexFileError, match="expected a folder that build_index"):
        open_index(tmp_path / "nowhere")
    with pytest.raises(ParameterError, match="leave probe out"):
        open_index(flat, probe=0.5)
    with pytest.raises(ParameterError, match="probe must be a number in"):
        open_index(flat, probe=0)
    index = open_index(flat)
    assert repr(index).endswith("kind='flat', rows=60, width=12)")
    with pytest.raises(ParameterError, match="k must be between 1 and 60"):
        index.search(QUERIES, 61)
    with pytest.raises(ShapeError, match="queries must be embeddings"):
        index.search(QUERIES[:, :3], 3)
    with pytest.raises(ShapeError, match="a name for each of the 3"):
        index.search(QUERIES, 3, names=["a"])
