"""Doubles of accelerators on the CPU: one that counts what is copied to the host, and one that has no float64."""

from contextlib import contextmanager

import pytest

from fairerclip._util import arrays

torch = pytest.importorskip("torch", reason="rows on an accelerator are tensors of torch")

from torch.overrides import TorchFunctionMode  # noqa: E402 - torch may be missing


class HostCopies(TorchFunctionMode):
    """Shapes and bytes of the tensors whose values were copied out of torch."""

    READS = ("numpy", "__array__", "tolist", "item", "__float__", "__bool__", "__int__")

    def __init__(self):
        super().__init__()
        self.shapes, self.bytes = [], 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in self.READS:
            self.shapes.append(tuple(args[0].shape))
            self.bytes += args[0].nbytes
        return func(*args, **(kwargs or {}))

    def rows_of_width(self, width):
        """Most rows of a copied matrix of some width."""
        return max((shape[0] for shape in self.shapes if len(shape) == 2 and shape[1] == width), default=0)


class _RefuseFloat64(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.dtype == torch.float64:
            raise TypeError(f"{func}: this device has no float64")
        return out


@contextmanager
def device_without_float64():
    """Let the CPU be such a device: any tensor of float64 is an error, wherever it is made."""
    with pytest.MonkeyPatch.context() as patch, _RefuseFloat64():
        patch.setattr(arrays, "WITHOUT_FLOAT64", ("cpu",))
        yield
