"""The functions that arrays of numpy and tensors of torch share."""

import pickle
import sys

import numpy as np
import pytest

from fairerclip._util.arrays import Placed, accumulate, is_tensor
from fairerclip.data import on_device
from fairerclip.errors import MissingExtraError


def test_without_torch_nothing_is_a_tensor(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not is_tensor(np.ones(3))
    with pytest.raises(MissingExtraError):
        on_device(np.ones((2, 2)), "cuda")


def test_sums_in_float64_keep_what_float32_would_lose():
    total = None
    for _ in range(3):
        total = accumulate(total, np.array([2.0**24], dtype=np.float32))
        total = accumulate(total, np.array([1.0], dtype=np.float32))
    assert total.tolist() == [3 * 2.0**24 + 3]


def test_sums_of_arrays_and_tensors_add_up_where_the_last_one_is():
    torch = pytest.importorskip("torch", reason="rows on an accelerator are tensors of torch")
    large, one = np.array([2.0**24], dtype=np.float32), np.array([1.0], dtype=np.float32)
    total = accumulate(accumulate(None, large), torch.tensor(one))
    assert total.dtype == torch.float64
    total = accumulate(accumulate(total, torch.tensor(one)), one)
    assert isinstance(total, np.ndarray)
    assert total.tolist() == [2.0**24 + 3]


def test_copies_of_constants_are_made_once_and_not_pickled():
    torch = pytest.importorskip("torch", reason="rows on an accelerator are tensors of torch")
    constants = Placed(np.arange(3.0))
    x = torch.zeros(1)
    assert constants.beside(x)[0] is constants.beside(x)[0]
    assert constants.beside(x)[0].dtype == torch.float32
    assert b"torch" not in pickle.dumps(constants)
