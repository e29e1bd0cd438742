"""`to_onnx`: a function of a fitted model as an ONNX file, written without torch; its tensors are inside the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairerclip import __version__
from fairerclip._util.extras import require
from fairerclip._util.files import atomic_file, check_free
from fairerclip.errors import ExportError
from fairerclip.export.computation import (
    Affine,
    Computation,
    Cosine,
    Kernel,
    Positive,
    Probabilities,
    Scaled,
    Step,
    Total,
    ToUnit,
    rounded,
)
from fairerclip.export.model_computation import computation_of

OPSET, IR = 17, 8
"""Versions of operators and of the file format: those of onnx 1.12, which every runtime of the last years reads."""
INPUT, LABEL = "embedding", "label"
"""Names of the input (batch, p) and of the output of a classifier that has its labels (batch,)."""
NO_LABEL = int(np.iinfo(np.int64).min)
"""Label of a row with NaN or infinity where labels are whole numbers; it is "" or NaN where they are text or floats."""


def to_onnx(model: Any, file: str | Path, *, part: str | None = None, overwrite: bool = False) -> Path:
    """Write one function of a fitted model as an ONNX file, and return its path.

    The graph takes rows ``embedding`` (batch, p) of float32. A classifier gives ``scores`` (batch, c), ``label``
    (batch,) and, if the model has them, ``probabilities`` (batch, c); the image or the text part gives
    ``representation`` (batch, r), and a mitigator ``mitigated`` (batch, p). See docs/how-to/export.md.

    Parameters
    ----------
    model : FairerCLIP, EmbeddingMitigator or Baseline
        A fitted model.
    file : str or Path
        File to write; it appears whole, or not at all.
    part : {"classifier", "image", "text"}, optional
        Function to write. Default: the classifier, or the map of a mitigator.
    overwrite : bool
        Replace the file.

    Raises
    ------
    ExportError
        The model does not have this part, or cannot be written.
    """
    require("onnx", "onnx", "writing an ONNX file")
    path = Path(file)
    check_free(path, overwrite)
    content = onnx_bytes(computation_of(model, part))
    with atomic_file(path, overwrite=overwrite) as handle:
        handle.write(content)
    return path


def onnx_bytes(computation: Computation) -> bytes:
    """Return the file of a computation, which has been checked by onnx."""
    onnx = require("onnx", "onnx", "writing an ONNX file")
    model = _Graph(onnx, computation).model()
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


class _Graph:
    """Nodes and tensors of a graph that is being written."""

    def __init__(self, onnx: Any, computation: Computation) -> None:
        self._onnx, self._computation = onnx, computation
        self._nodes: list[Any] = []
        self._tensors: dict[str, Any] = {}
        self._values: list[tuple[str, bool]] = [(INPUT, False)]  # name, and whether it is float64

    def model(self) -> Any:
        """Return the whole model."""
        helper, found = self._onnx.helper, self._computation
        for number, step in enumerate(found.steps, start=1):
            self._add(f"step{number}", step)
        outputs = [self._output(name, value) for name, value in found.outputs.items()]
        if found.classes is not None:
            outputs.append(self._label(found.classes))
        graph = helper.make_graph(
            self._nodes,
            f"fairerclip_{found.part}",
            [self._row_info(INPUT, found.width)],
            outputs,
            initializer=[*self._tensors.values()],
        )
        model = helper.make_model(
            graph,
            producer_name="fairerclip",
            producer_version=__version__,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR,
        )
        helper.set_model_props(model, found.about())
        return model

    # Steps --------------------------------------------------------------------------------------

    def _add(self, name: str, step: Step) -> None:
        inputs = [self._as(value, step.wide) for value in step.reads]
        constants = {key: self._constant(f"{name}_{key}", a, step.wide) for key, a in step.constants.items()}
        self._values.append((self._render(name, step, inputs, constants), step.wide))

    def _render(self, name: str, step: Step, x: list[str], constants: dict[str, str]) -> str:
        """Add the nodes of a step, and return the name of its value."""
        match step:
            case ToUnit():
                return self._unit(name, x[0], step.wide)
            case Affine():
                rows = self._node("Sub", x[0], constants["centre"]) if "centre" in constants else x[0]
                product = self._node("MatMul", rows, constants["weight"])
                return self._node("Add", product, constants["bias"]) if "bias" in constants else product
            case Scaled():
                return self._node("Mul", x[0], self._number(f"{name}_factor", step.factor, step.wide))
            case Cosine():
                return self._node("Cos", x[0])
            case Positive():
                return self._node("Relu", x[0])
            case Probabilities():
                factor = self._number(f"{name}_factor", step.factor, step.wide)
                return self._node("Softmax", self._node("Mul", x[0], factor), axis=1)
            case Kernel():
                return self._kernel(name, x[0], constants, step)
            case Total():
                return self._node("Sum", *x)
        raise ExportError(f"there is no ONNX form of {type(step).__name__}")

    def _unit(self, name: str, x: str, wide: bool) -> str:
        """Divide rows by their largest entry, so that squares stay within range, and then by their length."""
        one = self._number(f"{name}_one", 1.0, wide)
        none = self._number(f"{name}_zero", 0.0, wide)
        largest = self._node("ReduceMax", self._node("Abs", x), axes=[1], keepdims=1)
        divisor = self._node("Where", self._node("Equal", largest, none), one, largest)
        rows = self._node("Div", x, divisor)
        length = self._node("ReduceL2", rows, axes=[1], keepdims=1)
        return self._node("Div", rows, self._node("Where", self._node("Equal", length, none), one, length))

    def _kernel(self, name: str, x: str, constants: dict[str, str], step: Kernel) -> str:
        """Add exp(2·min(y·l − ‖l‖²/2 − ‖y‖²/2, 0)), the exponential of minus the squared distances."""
        two, half = (self._number(f"{name}_{key}", n, True) for key, n in (("two", 2.0), ("half", 0.5)))
        scaled = self._node("Mul", x, self._number(f"{name}_factor", step.factor, True))
        rows = self._node("Sub", scaled, constants["centre"])
        squares = self._node("Mul", self._node("ReduceSumSquare", rows, axes=[1], keepdims=1), half)
        inner = self._node("Sub", self._node("MatMul", rows, constants["landmarks"]), constants["halves"])
        near = self._node("Min", self._node("Sub", inner, squares), self._number(f"{name}_zero", 0.0, True))
        return self._node("Exp", self._node("Mul", near, two))

    # Outputs ------------------------------------------------------------------------------------

    def _output(self, name: str, value: int) -> Any:
        self._node("Identity", self._as(value, False), output=name)
        return self._row_info(name, self._width(name))

    def _width(self, name: str) -> int:
        if name in ("scores", "probabilities") and self._computation.classes is not None:
            return len(self._computation.classes)
        return _width_of(self._computation, self._computation.outputs[name])

    def _label(self, classes: NDArray[Any]) -> Any:
        """Add the label of the largest score, the first one of equals, and none for rows that are not finite."""
        labels, kind, none = _label_values(classes)
        helper, tensor = self._onnx.helper, getattr(self._onnx.TensorProto, kind)
        self._tensors["classes"] = helper.make_tensor("classes", tensor, [len(labels)], labels)
        self._tensors["no_label"] = helper.make_tensor("no_label", tensor, [], [none])
        best = self._node("ArgMax", "scores", axis=1, keepdims=0)
        total = self._node("ReduceSum", "scores", self._axes("class_axis", 1), keepdims=0)
        lost = self._node(
            "IsNaN", self._node("Sub", total, total)
        )  # the difference of infinities is NaN, too
        self._node("Where", lost, "no_label", self._node("Gather", "classes", best), output=LABEL)
        return helper.make_tensor_value_info(LABEL, tensor, ["batch"])

    # Parts --------------------------------------------------------------------------------------

    def _as(self, value: int, wide: bool) -> str:
        """Return the name of a value in float64 if ``wide``, else in float32."""
        name, is_wide = self._values[value]
        if is_wide == wide:
            return name
        kind = self._onnx.TensorProto.DOUBLE if wide else self._onnx.TensorProto.FLOAT
        return self._node("Cast", name, to=kind)

    def _constant(self, name: str, array: NDArray[Any], wide: bool) -> str:
        self._tensors[name] = self._onnx.numpy_helper.from_array(rounded(name, array, wide=wide), name)
        return name

    def _number(self, name: str, value: float, wide: bool) -> str:
        return self._constant(name, np.array(value), wide)

    def _axes(self, name: str, axis: int) -> str:
        self._tensors[name] = self._onnx.numpy_helper.from_array(np.array([axis], dtype=np.int64), name)
        return name

    def _node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{operator}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, [*inputs], [name], name=name, **attributes))
        return name

    def _row_info(self, name: str, width: int) -> Any:
        kind = self._onnx.TensorProto.FLOAT
        return self._onnx.helper.make_tensor_value_info(name, kind, ["batch", width])


def _width_of(computation: Computation, value: int) -> int:
    """Return the width of a value that is an output."""
    step = computation.steps[value - 1] if value else None
    if step is None:
        return computation.width
    return int(step.weight.shape[1]) if isinstance(step, Affine) else _width_of(computation, step.reads[0])


def _label_values(classes: NDArray[Any]) -> tuple[list[Any], str, Any]:
    """Return labels as ONNX has them, the name of their type, and the label of rows that have none."""
    labels = classes.tolist()
    if all(isinstance(label, str) for label in labels):
        if "" in labels:
            raise ExportError(
                "the label '' stands for rows with NaN or infinity in ONNX: relabel before fitting"
            )
        return [_utf8(label) for label in labels], "STRING", b""
    if all(isinstance(label, int) for label in labels):
        beyond = [label for label in labels if abs(label) >= -NO_LABEL]
        if beyond:
            raise ExportError(
                f"labels that are whole numbers are int64 in ONNX, which cannot hold {beyond[0]!r:.60}: relabel before "
                "fitting"
            )
        return [int(label) for label in labels], "INT64", NO_LABEL
    if all(isinstance(label, float) for label in labels):
        return labels, "DOUBLE", np.nan
    kinds = sorted({type(label).__name__ for label in labels})
    raise ExportError(
        f"the labels of a classifier in ONNX have one type, text or numbers; got {', '.join(kinds)}, such as "
        f"{labels[0]!r:.60}: relabel before fitting"
    )


def _utf8(label: str) -> bytes:
    try:
        return label.encode()
    except UnicodeEncodeError:
        raise ExportError(
            f"the label {label!r:.60} is no text that UTF-8 can hold: relabel before fitting"
        ) from None
