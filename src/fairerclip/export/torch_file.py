"""`to_torch`: a function of a fitted model as a torch module."""

from __future__ import annotations

from typing import Any

from fairerclip._util.checks import check_choice
from fairerclip._util.extras import require
from fairerclip.export.model_computation import computation_of

DTYPES = ("float32", "float64")


def to_torch(model: Any, *, part: str | None = None, dtype: str = "float32") -> Any:
    """Return one function of a fitted model as a `torch.nn.Module` that answers as the package does.

    A classifier returns a dictionary with ``scores`` (n, c), ``probabilities`` (n, c) if the model has them, and
    ``code`` (n,), which counts in ``module.classes``; the other parts return a tensor. Constants are buffers, which are
    not trained; gradients reach the rows. See docs/how-to/export.md.

    Parameters
    ----------
    model : FairerCLIP, EmbeddingMitigator or Baseline
        A fitted model.
    part : {"classifier", "image", "text"}, optional
        Function to return. Default: the classifier, or the map of a mitigator.
    dtype : {"float32", "float64"}
        Precision of the module.

    Raises
    ------
    ExportError
        The model does not have this part.
    """
    torch = require("torch", "torch", "a torch module")
    check_choice("dtype", dtype, DTYPES)
    from fairerclip.export.torch_module import FittedModule

    return FittedModule(computation_of(model, part), getattr(torch, dtype)).eval()
