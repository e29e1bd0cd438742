"""A mitigator of tensors computes where they are, with the numbers of one of the same arrays."""

import numpy as np
import pytest

from fairerclip import EmbeddingMitigator
from fairerclip.data import EmbeddingStore, on_device
from sample_rows import Embeddings

torch = pytest.importorskip("torch", reason="rows on an accelerator are tensors of torch")

from tensor_devices import HostCopies, device_without_float64  # noqa: E402 - needs torch

DATA = Embeddings(n=400)


def fitted(X, **given):
    return EmbeddingMitigator().fit(X, **{"sensitive_text": DATA.sensitive_text, **given})


def assert_same_answers(a, b, X, tolerance):
    tensor = torch.tensor(X)
    mapped, mapped_tensor = a.transform(X), b.transform(tensor)
    assert isinstance(mapped_tensor, torch.Tensor)
    assert str(mapped_tensor.dtype) == f"torch.{mapped.dtype}"
    np.testing.assert_allclose(mapped_tensor.float().numpy(), mapped.astype(np.float32), atol=tolerance)
    scores = b.scores(tensor, torch.tensor(DATA.text))
    assert isinstance(scores, np.ndarray)
    np.testing.assert_allclose(scores, a.scores(X, DATA.text), atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("float32", 1e-5), ("float64", 1e-8)])
def test_a_tensor_gives_the_map_of_its_array(dtype, tolerance):
    X = DATA.X.astype(dtype)
    few = (torch.tensor(X[:60]), DATA.s[:60])
    for given in ({}, {"sensitive_features": DATA.s}, {"labelled": few}):
        assert_same_answers(fitted(X, **given), fitted(torch.tensor(X), **given), X, tolerance)


def test_arrays_and_tensors_may_follow_each_other_and_have_the_same_drift_and_path():
    X = DATA.X.astype(np.float32)
    parts = [X[:100], torch.tensor(X[100:250]), X[250:300], torch.tensor(X[300:])]
    a, b = EmbeddingMitigator(), EmbeddingMitigator()
    for number, part in enumerate(parts):
        text = {"sensitive_text": DATA.sensitive_text} if number == 0 else {}
        a.partial_fit(np.asarray(part), **text)
        b.partial_fit(part, **text)
    assert_same_answers(a, b, X, 1e-5)
    drift, of_tensor = a.drift(X), b.drift(torch.tensor(X))
    assert of_tensor.mean_shift == pytest.approx(drift.mean_shift, abs=1e-5)
    assert of_tensor.variance_kept == pytest.approx(drift.variance_kept, abs=1e-5)
    paths = [
        m.path(rows, DATA.text, DATA.s, strengths=[0.0, 1.0], k=100)
        for m, rows in ((a, X), (b, torch.tensor(X)))
    ]
    skews = [[point.max_skew[0] for point in path.points] for path in paths]
    np.testing.assert_allclose(skews[1], skews[0], atol=1e-9)


def test_neither_rows_nor_mapped_rows_are_copied_to_the_host():
    data = Embeddings(n=3000, p=48)
    X = torch.tensor(data.X.astype(np.float32))
    with HostCopies() as copies:
        model = EmbeddingMitigator().fit(X, sensitive_text=data.sensitive_text)
        model.transform(X)
    width = 48 + 1  # rows, and a label column
    assert (width, width) in copies.shapes  # the copies are counted
    assert max(copies.rows_of_width(48), copies.rows_of_width(width)) <= width
    assert copies.bytes < X.nbytes / 2


def test_a_device_without_float64_and_blocks_of_a_store_on_a_device_agree():
    X = DATA.X.astype(np.float32)
    expected = fitted(X).transform(X)
    with device_without_float64():
        mapped = fitted(torch.tensor(X)).transform(torch.tensor(X))
    np.testing.assert_allclose(mapped.numpy(), expected, atol=1e-4)
    rows = on_device(EmbeddingStore.from_array(X), "cpu")
    mapped = fitted(rows).transform(rows)
    assert isinstance(mapped, np.ndarray)
    np.testing.assert_allclose(mapped, expected, atol=1e-5)
