"""Faults that odd arrays have shown, each by name."""

import numpy as np
import pytest

from fairerclip import EmbeddingMitigator, baselines
from fairerclip.errors import RowTypeError, ShapeError
from sample_rows import Embeddings
from small_models import small

E = Embeddings(seed=1, n=60, p=6, correlation=0.5)


@pytest.fixture(scope="module")
def model():
    return small().fit(E.X, E.y, text=E.text, sensitive_features=E.s)


def test_values_behind_a_mask_are_not_used(model):
    hidden = np.ma.masked_array(E.X, mask=np.zeros(E.X.shape, dtype=bool))
    assert model.scores(hidden).tolist() == model.scores(E.X).tolist()
    hidden[3, 2] = np.ma.masked
    with pytest.raises(RowTypeError, match="X has 1 masked values"):
        model.scores(hidden)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[s]"])
def test_dates_are_no_embeddings(model, dtype):
    with pytest.raises(RowTypeError, match="got an array of .*64"):
        model.predict(np.ones((4, 6), dtype=dtype))


def test_a_baseline_does_not_read_numbers_out_of_text():
    with pytest.raises(RowTypeError, match="X must hold real numbers; got an array of <U"):
        baselines.ZeroShot().fit(E.X.astype(str), text=E.text)


def test_imaginary_parts_of_prompts_are_not_dropped(model):
    with pytest.raises(RowTypeError, match="Complex data not supported: text"):
        model.transform_text(E.text + 1j)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths_of_the_largest_rows_are_finite(dtype, tmp_path):
    X = (E.X / np.abs(E.X).max() * np.finfo(dtype).max).astype(dtype)
    found = small().fit(X, E.y, text=E.text, sensitive_features=E.s)
    assert np.isfinite(found.rows_.lengths).all()
    assert np.isfinite(found.drift(X).length)
    assert type(found).load(found.save(tmp_path / "m")).rows_.lengths.tolist() == found.rows_.lengths.tolist()


def test_leace_changes_no_row_where_all_training_rows_are_equal():
    X = np.repeat(E.X[:1], 60, axis=0)
    eraser = baselines.LEACE().fit(X, E.y, text=E.text, sensitive_features=E.s)
    assert np.abs(eraser.transform(E.X) - E.X).max() < 1e-12


def test_wise_does_not_divide_by_rounding_errors_where_all_training_rows_are_equal():
    X = np.repeat(E.X[:1], 60, axis=0)
    assert np.abs(baselines.WiSE().fit(X, E.y, text=E.text).scores(E.X)).max() < 10


def test_a_store_of_another_width_is_our_error_in_a_baseline():
    from fairerclip.data.stores import EmbeddingStore

    probe = baselines.LinearProbe().fit(E.X, E.y)
    with pytest.raises(ShapeError, match="X has 5 features"):
        probe.predict(EmbeddingStore.from_array(E.X[:, 1:]))


def test_a_masked_query_is_refused():
    fairer = EmbeddingMitigator().fit(E.X, sensitive_features=E.s)
    with pytest.raises(RowTypeError, match="query has 1 masked"):
        fairer.rank(np.ma.masked_array(E.text[0], mask=np.arange(6) == 2), E.X)
