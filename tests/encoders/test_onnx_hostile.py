"""ONNX graphs from anybody: nothing outside the file is read, nothing but ONNX's operators runs."""

from __future__ import annotations

import json
import shutil
import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairerclip.encoders import load
from fairerclip.encoders import onnx as ours
from fairerclip.errors import EncoderError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")
pytest.importorskip("PIL")

pytestmark = pytest.mark.slow
h = onnx.helper
FLOAT = onnx.TensorProto.FLOAT
A = onnx.AttributeProto


def external(place="secret.bin"):
    tensor = onnx.TensorProto(name="c", data_type=FLOAT, dims=[3], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", place), ("offset", "0"), ("length", "12")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def attribute(name, kind, **value):
    return onnx.AttributeProto(name=name, type=kind, **value)


def constant(*attributes):
    return onnx.NodeProto(op_type="Constant", output=["c"], attribute=attributes)


INLINE = constant(attribute("value", A.TENSOR, t=h.make_tensor("c", FLOAT, [3], [0.0, 0.0, 1.0])))


def model(*nodes, **graph):
    """Mean colours plus the constant ``c``: pixels (b, 3, 64, 64) to (b, 3)."""
    nodes = [
        *nodes,
        h.make_node("GlobalAveragePool", ["x"], ["m"]),
        h.make_node("Flatten", ["m"], ["f"]),
        h.make_node("Add", ["f", "c"], ["y"]),
    ]
    made = h.make_graph(
        nodes,
        "g",
        [h.make_tensor_value_info("x", FLOAT, ["b", 3, 64, 64])],
        [h.make_tensor_value_info("y", FLOAT, ["b", 3])],
        **graph,
    )
    return h.make_model(made, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


def nested(graph):
    """A node whose branch is the graph."""
    return onnx.NodeProto(op_type="If", attribute=[attribute("then_branch", A.GRAPH, g=graph)])


def with_function(node):
    out = model(INLINE)
    out.functions.add(name="F", domain="", node=[node])
    return out


HIDDEN = {
    "initializer": lambda: model(initializer=[external()]),
    "tensor": lambda: model(constant(attribute("value", A.TENSOR, t=external()))),
    "branch": lambda: model(INLINE, nested(onnx.GraphProto(initializer=[external()]))),
}


@pytest.mark.parametrize("place", HIDDEN)
def test_weights_outside_the_file_are_found_wherever_they_are_named(place):
    with pytest.raises(EncoderError, match="another file"):
        ours.check_model(HIDDEN[place]().SerializeToString(), "image.onnx")


@pytest.fixture
def folder(onnx_folder, tmp_path, monkeypatch):
    """A folder for mean colours, and a file of the current directory that is nobody's business."""
    out = shutil.copytree(onnx_folder, tmp_path / "model")
    values = json.loads((out / "preprocess.json").read_text()) | {"width": 3}
    (out / "preprocess.json").write_text(json.dumps(values))
    (tmp_path / "secret.bin").write_bytes(struct.pack("<3f", 0, 42, 0))
    monkeypatch.chdir(tmp_path)
    return out


def test_a_model_with_its_weights_inside_runs(folder):
    (folder / "image.onnx").write_bytes(model(INLINE).SerializeToString())
    encoder = load(f"onnx:{folder}")
    np.testing.assert_array_equal(
        encoder.encode_images(np.zeros((2, 3, 64, 64), np.float32)), [[0, 0, 1]] * 2
    )


def test_graphs_that_are_not_plain_are_refused():
    foreign = onnx.GraphProto(node=[onnx.NodeProto(op_type="X", domain="evil")])
    for made in (
        model(INLINE, onnx.NodeProto(op_type="EPContext", domain="com.microsoft")),
        model(nested(foreign)),
        with_function(INLINE),
        model(),
    ):
        with pytest.raises(EncoderError):
            ours.open_session(made.SerializeToString(), "image.onnx")


def field(number, content):
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


@settings(max_examples=100, deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), length=st.integers(0, 4), new=st.binary(max_size=4))
def test_damaged_graphs_are_refused_or_run(at, length, new):
    raw = model(INLINE).SerializeToString()
    place = int(at * len(raw))
    with suppress(EncoderError):
        ours.open_session(raw[:place] + new + raw[place + length :], "image.onnx")


def test_nodes_are_counted_before_a_graph_is_made():
    with pytest.raises(EncoderError):
        ours.open_session(field(7, field(1, b"") * 1_000_000), "image.onnx")


def test_a_graph_that_fails_when_it_runs_is_our_error(folder):
    (folder / "image.onnx").write_bytes(model(INLINE).SerializeToString())
    for name, value in (("width", 4), ("pad_id", 4_000_000)):
        values = json.loads((folder / "preprocess.json").read_text()) | {name: value}
        (folder / "preprocess.json").write_text(json.dumps(values))
    encoder = load(f"onnx:{folder}")
    with pytest.raises(EncoderError):
        encoder.encode_images(np.zeros((1, 3, 64, 64), np.float32))
    with pytest.raises(EncoderError):  # an id that the vocabulary does not have
        encoder.encode_text(["a bird"])
