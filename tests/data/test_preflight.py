from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from fairerclip.data.preflight import preflight
from fairerclip.data.provenance import Provenance
from fairerclip.data.stores import EmbeddingStore, open_store
from fairerclip.errors import ProvenanceError, ShapeError

MADE = Provenance("ViT-B-32", "openai", "resize 224", "test", True, 16)


def unit(n=300, p=16, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, p)).astype(np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_every_kind_of_bad_row_is_counted_and_named(monkeypatch):
    monkeypatch.setattr(sys.modules["fairerclip.data.preflight"], "BLOCK_ROWS", 64)
    X = unit()
    X[5], X[200, 3] = np.nan, np.inf
    X[[7, 8]] = 0
    X[[250, 299]] = X[100]
    X[20] *= 4
    ids = [str(i) for i in range(300)]
    ids[9] = ids[11] = "10"
    found = preflight(EmbeddingStore.from_array(X, ids=ids))
    assert not found.usable
    assert not found.unit_rows
    assert found.norm_max == pytest.approx(4, abs=1e-5)
    assert found.norm_min == 0
    assert (found.non_finite_rows, found.first_non_finite) == (2, (5, 200))
    assert (found.zero_rows, found.first_zero) == (2, (7, 8))
    assert (found.duplicate_rows, found.first_duplicate) == (3, (8, 250, 299))
    assert found.repeated_ids == 2
    assert "Images come from an unknown model." in found.lines()


def test_float16_lengths_are_those_on_disk_and_count_as_unit(tmp_path):
    X = unit(p=512)
    np.save(tmp_path / "x.npy", X.astype(np.float16))
    found = preflight(open_store(tmp_path / "x.npy"))
    assert found.unit_rows
    assert 1e-7 < abs(found.norm_max - 1) < 1e-3
    assert found.dtype_on_disk == "float16"
    assert not found.has_ids
    assert "Rows have no ids: labels can be joined to them only by position." in found.lines()


def test_the_modality_gap_is_the_distance_of_the_means():
    X, T = unit(), unit(20, seed=1) * 5
    found = preflight(X, T)
    a, b = X.mean(axis=0), (T / 5).mean(axis=0)
    assert found.modality_gap == pytest.approx(np.linalg.norm(a - b), rel=1e-4)
    assert found.modality_cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-3)
    assert "Texts come from an unknown model." in found.lines()


def test_good_rows_are_called_good():
    found = preflight(EmbeddingStore.from_array(unit(), ids=range(300), provenance=MADE))
    assert found.usable
    assert found.unit_rows
    assert (found.non_finite_rows, found.zero_rows, found.duplicate_rows, found.repeated_ids) == (0, 0, 0, 0)
    assert found.norm_median == pytest.approx(1, abs=1e-6)


def test_texts_of_another_width_or_model_are_refused():
    for texts in (unit(3, 5), unit(3)[0]):
        with pytest.raises(ShapeError):
            preflight(unit(), texts)
    other = replace(MADE, model="ViT-L-14")
    with pytest.raises(ProvenanceError, match=r"ViT-B-32.*ViT-L-14"):
        preflight(*(EmbeddingStore.from_array(unit(), provenance=one) for one in (MADE, other)))


def test_the_findings_are_json_even_where_no_row_is_finite():
    found = preflight(EmbeddingStore.from_array(np.full((3, 16), np.nan, np.float32), provenance=MADE))
    values = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert values["norm_median"] is None
    assert values["provenance"]["model"] == "ViT-B-32"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_embeddings(tmp_path, tracemalloc_peak):
    n, p = 60_000, 256
    X = np.random.default_rng(0).normal(size=(n, p)).astype(np.float16)
    np.save(tmp_path / "x.npy", X)
    found, peak = tracemalloc_peak(lambda: preflight(open_store(tmp_path / "x.npy")))
    assert found.duplicate_rows == 0
    assert peak < 0.75 * n * p * 4
