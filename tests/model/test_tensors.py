"""A fit of a tensor computes where the tensor is, with the numbers of a fit of the same array."""

import pickle

import numpy as np
import pytest

from fairerclip import FairerCLIP
from fairerclip.data import EmbeddingStore, on_device
from fairerclip.errors import (
    NonFiniteError,
    ZeroRowError,
    ZeroRowWarning,
)
from sample_rows import Embeddings

torch = pytest.importorskip("torch", reason="rows on an accelerator are tensors of torch")

from tensor_devices import device_without_float64  # noqa: E402 - needs torch

FIXED = {
    **{"tau": 0.6, "gamma": 1e-3, "criterion": "marginal", "class_offsets": None, "guess_weight": 1.0},
    **{"zero_shot": 0.0, "random_state": 0, "n_features": 40},
}
SHARE = 0.5
"""Zero-shot scores are float32 for every type of X: with a share of them, so are differences."""
DATA = Embeddings(n=400)


def fitted(X, y=DATA.y, s=DATA.s, *, text=DATA.text, sensitive_text=DATA.sensitive_text, **parameters):
    model = FairerCLIP(**{**FIXED, **parameters})
    return model.fit(X, y, sensitive_features=s, text=text, sensitive_text=sensitive_text)


def assert_same_answers(a, b, X, tolerance):
    """Models of arrays and of tensors, asked with each."""
    tensor = torch.tensor(X)
    Z, Z_tensor = a.transform(X), b.transform(tensor)
    assert isinstance(Z_tensor, torch.Tensor)
    assert Z_tensor.device == tensor.device
    assert str(Z_tensor.dtype) == f"torch.{Z.dtype}"
    np.testing.assert_allclose(Z_tensor.numpy(), Z, rtol=0, atol=tolerance * np.abs(Z).max())
    scores = a.scores(X)
    assert isinstance(b.scores(tensor), np.ndarray)
    np.testing.assert_allclose(b.scores(tensor), scores, rtol=0, atol=tolerance * np.abs(scores).max())
    assert (a.predict(X) == b.predict(tensor)).mean() >= 0.9999


def assert_same_fit(dtype, tolerance, **arguments):
    X = DATA.X.astype(dtype)
    a, b = fitted(X, dtype=dtype, **arguments), fitted(torch.tensor(X), dtype=dtype, **arguments)
    assert_same_answers(a, b, X, tolerance)
    return a, b


@pytest.mark.parametrize("kernel", ["rbf", "nystroem", "exact", "linear"])
def test_a_tensor_gives_the_model_of_its_array(kernel):
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-9)):
        assert_same_fit(dtype, tolerance, kernel=kernel)


@pytest.mark.parametrize(
    "arguments",
    [
        {"solver": "cg", "zero_shot": SHARE},
        {"y": None, "s": None, "refine": True, "zero_shot": SHARE},
        {"text": None, "sensitive_text": None, "y": np.where(np.arange(400) % 3 == 0, None, DATA.y)},
        {"class_weight": {0: 2.0, 1: 1.0}, "subsample": "balanced:0.5"},
        {"tau": "auto", "zero_shot": "auto", "gamma": "auto", "criterion": "auto", "class_offsets": "auto"},
    ],
    ids="-".join,
)
def test_a_tensor_gives_the_model_of_its_array_with_other_parameters(arguments):
    a, b = assert_same_fit("float32", 1e-5, **arguments)
    assert (a.tau_, a.gamma_, a.criterion_) == (b.tau_, b.gamma_, b.criterion_)


def test_every_answer_on_a_tensor_is_that_on_its_array():
    X = DATA.X.astype(np.float32)
    tensor, model = torch.tensor(X), fitted(X)
    np.testing.assert_allclose(model.predict_proba(tensor), model.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(model.cosines(tensor), model.cosines(X), atol=1e-5)
    np.testing.assert_allclose(model.decision_function(tensor), model.decision_function(X), atol=1e-4)
    assert model.rank(0, tensor, k=5).indices.tolist() == model.rank(0, X, k=5).indices.tolist()
    assert model.drift(tensor).length == pytest.approx(model.drift(X).length)
    np.testing.assert_allclose(model.embeddings(tensor)[:5].numpy(), X[:5], atol=1e-6)
    np.testing.assert_allclose(model.transform_text(torch.tensor(DATA.text)), model.transform_text(DATA.text))


def test_the_path_of_a_fit_of_a_tensor_is_that_of_its_array():
    a, b = assert_same_fit("float32", 1e-5)
    X = DATA.X.astype(np.float32)
    table = a.path([0.1, 0.8]).evaluate(X, DATA.y, DATA.s)
    assert b.path([0.1, 0.8]).evaluate(torch.tensor(X), DATA.y, DATA.s) == table
    assert_same_answers(a.at(tau=0.2), b.at(tau=0.2), X, 1e-5)


def test_rows_that_are_not_finite_or_zero_are_named():
    X = torch.tensor(DATA.X)
    model = fitted(X)
    X[3] = 0
    with pytest.raises(ZeroRowError):
        fitted(X)
    with pytest.warns(ZeroRowWarning):
        assert model.transform(X).isfinite().all()
    X[5, 0] = float("nan")
    with pytest.raises(NonFiniteError):
        fitted(X)


@pytest.mark.parametrize(("kernel", "solver"), [("rbf", "cg"), ("nystroem", "cholesky")])
def test_sums_of_a_device_without_float64_agree(kernel, solver):
    X = DATA.X.astype(np.float32)
    a = fitted(X, kernel=kernel, solver=solver)
    with device_without_float64():
        b = fitted(torch.tensor(X), kernel=kernel, solver=solver)
        assert_same_answers(a, b, X, 1e-4)


def test_blocks_of_a_store_are_moved_to_a_device():
    X = DATA.X.astype(np.float32)
    moved = on_device(EmbeddingStore.from_array(X), "cpu")
    a, b = fitted(torch.tensor(X)), fitted(moved)
    assert np.array_equal(a.scores(torch.tensor(X)), b.scores(moved))
    assert isinstance(b.transform(moved), np.ndarray)


def test_a_model_of_tensors_is_saved_and_pickled_as_numbers(tmp_path):
    X = DATA.X.astype(np.float32)
    model = fitted(torch.tensor(X))
    model.transform(torch.tensor(X))
    data = pickle.dumps(model)
    assert b"torch" not in data
    for other in (pickle.loads(data), FairerCLIP.load(model.save(tmp_path / "model"))):  # noqa: S301 - ours
        np.testing.assert_allclose(other.scores(X), model.scores(X), atol=1e-5)
