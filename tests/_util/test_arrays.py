"""The functions that arrays of numpy and tensors of torch share."""

import pickle
import sys

import numpy as np
import pytest

from fairerclip._util.arrays import Placed, accumulate, is_on_device, is_tensor, type_name
from fairerclip.data import on_device
from fairerclip.errors import MissingExtraError


class Labelled:
    """Something with a column called device, as a data frame may have."""

    device = np.array(["phone", "camera"])


@pytest.mark.parametrize("x", [np.ones(3), [1.0], None, Labelled()])
def test_what_is_no_tensor_is_not_taken_for_one(x):
    assert not is_tensor(x)
    assert not is_on_device(x)


def test_without_torch_nothing_is_a_tensor(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert not is_tensor(np.ones(3))
    with pytest.raises(MissingExtraError, match="on_device needs torch"):
        on_device(np.ones((2, 2)), "cuda")


def test_a_torch_that_another_thread_is_importing_has_no_tensors(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    assert not is_tensor(np.ones(3))


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


def test_a_sum_does_not_change_what_is_added():
    first = np.ones(2)
    accumulate(accumulate(None, first), np.ones(2))
    assert first.tolist() == [1.0, 1.0]


def test_types_of_both_libraries_have_one_name():
    torch = pytest.importorskip("torch", reason="rows on an accelerator are tensors of torch")
    assert type_name(torch.float32) == type_name(np.dtype("<f4")) == type_name(np.float32) == "float32"
    assert type_name(torch.bfloat16) == "bfloat16"


def test_copies_of_constants_are_made_once_and_not_pickled():
    torch = pytest.importorskip("torch", reason="rows on an accelerator are tensors of torch")
    constants = Placed(np.arange(3.0))
    x = torch.zeros(1)
    assert constants.beside(x)[0] is constants.beside(x)[0]
    assert constants.beside(x)[0].dtype == torch.float32
    assert b"torch" not in pickle.dumps(constants)
