"""`to_torch`: a function of a fitted model as a torch module; `write_pt2` writes it as an archive of torch."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from fairerclip._util.checks import check_choice
from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file, check_free
from fairerclip.export.computation import Computation
from fairerclip.export.model_computation import computation_of

DTYPES = ("float32", "float64")
ABOUT = "fairerclip.json"
"""Name of the extra file of an archive with its method, part, width and classes."""


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
    require("torch", "torch", "a torch module")
    check_choice("dtype", dtype, DTYPES)
    return module_of(computation_of(model, part), dtype)


def module_of(computation: Computation, dtype: str = "float32") -> Any:
    """Return a computation as a torch module."""
    torch = require("torch", "torch", "a torch module")
    from fairerclip.export.torch_module import FittedModule

    return FittedModule(computation, getattr(torch, dtype)).eval()


def write_pt2(model: Any, file: str | Path, *, part: str | None = None, overwrite: bool = False) -> Path:
    """Write one function of a fitted model as an archive that ``torch.export.load(file).module()`` opens.

    It takes float32 rows (n, p) of any number n, and needs torch alone. Its graph is JSON and its tensors are bytes.
    torch would also unpickle objects that a forged archive may hold, so load only files that you trust.

    Parameters
    ----------
    model, part
        As in `to_torch`.
    file : str or Path
        File to write; it appears whole, or not at all.
    overwrite : bool
        Replace the file.
    """
    torch = require("torch", "torch", "a torch archive")
    path = Path(file)
    check_free(path, overwrite)
    computation = computation_of(model, part)
    module = module_of(computation)
    example = torch.zeros(2, computation.width)
    with torch.no_grad():
        exported = torch.export.export(
            module, (example,), dynamic_shapes={"rows": {0: torch.export.Dim("batch", min=0)}}
        )
    exported.example_inputs = None  # they would be pickled
    content = io.BytesIO()
    torch.export.save(exported, content, extra_files={ABOUT: json.dumps(computation.about())})
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(content.getvalue())
    return path
