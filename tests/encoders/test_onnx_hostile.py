"""ONNX graphs from anybody: nothing outside the file is read, nothing but ONNX's operators runs."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import tracemalloc

import numpy as np
import pytest

from fairerclip._util.files import read_bounded
from fairerclip.encoders import load
from fairerclip.encoders import onnx as ours
from fairerclip.errors import EncoderError, FairerClipError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")
pytest.importorskip("PIL")
h = onnx.helper
FLOAT = onnx.TensorProto.FLOAT
A = onnx.AttributeProto


def external(place="secret.bin"):
    tensor = onnx.TensorProto(name="c", data_type=FLOAT, dims=[3], data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", place), ("offset", "0"), ("length", "12")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def sparse():
    indices = h.make_tensor("i", onnx.TensorProto.INT64, [3], [0, 1, 2])
    return onnx.SparseTensorProto(values=external(), indices=indices, dims=[3])


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


def with_training(tensor):
    out = model(INLINE)
    out.training_info.add(algorithm=onnx.GraphProto(initializer=[tensor]))
    return out


def with_function(node):
    out = model(INLINE)
    out.functions.add(name="F", domain="", node=[node])
    return out


HIDDEN = {
    "initializer": lambda: model(initializer=[external()]),
    "sparse initializer": lambda: model(INLINE, sparse_initializer=[sparse()]),
    "tensor": lambda: model(constant(attribute("value", A.TENSOR, t=external()))),
    "tensors": lambda: model(constant(attribute("value", A.TENSORS, tensors=[external()]))),
    "sparse tensor": lambda: model(
        constant(attribute("sparse_value", A.SPARSE_TENSOR, sparse_tensor=sparse()))
    ),
    "sparse tensors": lambda: model(
        constant(attribute("sparse_value", A.SPARSE_TENSORS, sparse_tensors=[sparse()]))
    ),
    "branch": lambda: model(INLINE, nested(onnx.GraphProto(initializer=[external()]))),
    "graphs": lambda: model(
        INLINE,
        onnx.NodeProto(
            attribute=[attribute("x", A.GRAPHS, graphs=[onnx.GraphProto(initializer=[external()])])]
        ),
    ),
    "training": lambda: with_training(external()),
}


@pytest.mark.parametrize("place", HIDDEN)
def test_weights_outside_the_file_are_found_wherever_they_are_named(place):
    with pytest.raises(EncoderError, match="has weights in another file"):
        ours.check_model(HIDDEN[place]().SerializeToString(), "image.onnx")


@pytest.fixture
def folder(onnx_folder, tmp_path, monkeypatch):
    """A folder for mean colours, and a file of the current directory that is nobody's business."""
    out = shutil.copytree(onnx_folder, tmp_path / "model")
    settings = json.loads((out / "preprocess.json").read_text()) | {"width": 3}
    (out / "preprocess.json").write_text(json.dumps(settings))
    (tmp_path / "secret.bin").write_bytes(struct.pack("<3f", 0, 42, 0))
    monkeypatch.chdir(tmp_path)
    return out


def test_a_file_of_the_current_directory_does_not_get_into_an_embedding(folder):
    (folder / "image.onnx").write_bytes(HIDDEN["sparse tensor"]().SerializeToString())
    with pytest.raises(EncoderError, match="has weights in another file"):
        load(f"onnx:{folder}").encode_images(np.zeros((1, 3, 64, 64), np.float32))


@pytest.mark.parametrize("place", ["sparse tensor", "tensor", "initializer"])
def test_onnxruntime_is_not_told_where_files_are(folder, place, monkeypatch):
    monkeypatch.setattr(ours, "check_model", lambda raw, where: None)  # should it overlook something
    with pytest.raises(EncoderError, match="not a model that onnxruntime can run"):
        ours.open_session(HIDDEN[place]().SerializeToString(), "image.onnx")


def test_a_model_with_its_weights_inside_runs(folder):
    (folder / "image.onnx").write_bytes(model(INLINE).SerializeToString())
    encoder = load(f"onnx:{folder}")
    np.testing.assert_array_equal(
        encoder.encode_images(np.zeros((2, 3, 64, 64), np.float32)), [[0, 0, 1]] * 2
    )


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: model(INLINE, onnx.NodeProto(op_type="EPContext", domain="com.microsoft")),
            "'EPContext' of domain",
        ),
        (
            lambda: model(nested(onnx.GraphProto(node=[onnx.NodeProto(op_type="X", domain="evil")]))),
            "domain 'evil'",
        ),
        (lambda: with_function(INLINE), "defines functions"),
        (model, "onnxruntime can run"),
    ],
)
def test_graphs_that_are_not_plain_are_refused(made, message):
    with pytest.raises(EncoderError, match=message) as caught:
        ours.open_session(made().SerializeToString(), "image.onnx")
    assert "\n" not in str(caught.value)


def field(number, content):
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


@pytest.mark.parametrize("empty", [field(1, b""), field(5, b""), field(11, b""), field(1, field(5, b""))])
def test_nodes_and_tensors_are_counted_before_a_graph_is_made(empty):
    with pytest.raises(EncoderError, match="expected a graph of at most 150,000 fields, got more"):
        ours.open_session(field(7, empty * 1_000_000), "image.onnx")


def test_every_field_of_a_graph_is_counted(monkeypatch):
    raw = model(INLINE).SerializeToString()

    def fields(message):
        values = [v for _, v in message.ListFields() for v in (v if hasattr(v, "append") else [v])]
        return len(values) + sum(fields(v) for v in values if hasattr(v, "ListFields"))

    parsed = onnx.load_model_from_string(raw)
    packed = 2  # the three values of the constant are one field
    monkeypatch.setattr(ours, "MAX_FIELDS", fields(parsed) - packed)
    ours.check_model(raw, "image.onnx")
    monkeypatch.setattr(ours, "MAX_FIELDS", fields(parsed) - packed - 1)
    with pytest.raises(EncoderError, match="got more"):
        ours.check_model(raw, "image.onnx")


@pytest.mark.parametrize("raw", [b"\x3a", b"\x3a\x05\x0a", b"\x3b", b"\xff" * 12, field(7, b"\x0a\x05")])
def test_what_is_no_message_is_refused_when_it_is_counted(raw):
    with pytest.raises((ValueError, IndexError)):
        ours.check_fields(raw, onnx.ModelProto.DESCRIPTOR, "image.onnx")
    with pytest.raises(EncoderError, match="image.onnx is not an ONNX model"):
        ours.check_model(raw, "image.onnx")


@pytest.mark.skipif(not os.path.isfile("/proc/self/statm"), reason="needs /proc")
def test_a_constant_that_grows_is_not_computed_when_a_model_is_loaded():
    def resident():
        with open("/proc/self/statm") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    doublings = [h.make_node("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(25)]
    graph = h.make_graph(
        [*doublings, h.make_node("Add", ["x", "c25"], ["y"])],
        "g",
        [h.make_tensor_value_info("x", FLOAT, [1])],
        [h.make_tensor_value_info("y", FLOAT, [2**25])],
        [h.make_tensor("c0", FLOAT, [1], [1.0])],
    )
    raw = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()
    before = resident()
    session = ours.open_session(raw, "image.onnx")
    assert resident() - before < 2**26  # half of what c25 takes
    assert session.get_inputs()[0].name == "x"


def test_graphs_within_graphs_end_somewhere():
    raw = b""
    for _ in range(5000):
        raw = field(1, field(5, field(6, raw)))  # node, attribute, graph
    with pytest.raises(EncoderError, match="not an ONNX model"):
        ours.open_session(field(7, raw), "image.onnx")


def test_a_graph_that_fails_when_it_runs_is_one_clear_error(folder):
    (folder / "image.onnx").write_bytes(model(INLINE).SerializeToString())
    for name, value in (("width", 4), ("pad_id", 4_000_000)):
        settings = json.loads((folder / "preprocess.json").read_text()) | {name: value}
        (folder / "preprocess.json").write_text(json.dumps(settings))
    encoder = load(f"onnx:{folder}")
    with pytest.raises(EncoderError, match=r"expected embeddings \(1, 4\), got \(1, 3\)"):
        encoder.encode_images(np.zeros((1, 3, 64, 64), np.float32))
    with pytest.raises(
        EncoderError, match="the model cannot be run"
    ):  # an id that the vocabulary does not have
        encoder.encode_text(["a bird"])


def test_damaged_graphs_are_refused_or_run():
    raw, rng, refused = model(INLINE).SerializeToString(), random.Random(3), 0
    for case in range(150):
        damaged = bytearray(raw)
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(damaged))
            damaged[at : at + rng.randrange(4)] = bytes(rng.randrange(256) for _ in range(rng.randrange(4)))
        try:
            session = ours.open_session(bytes(damaged), "image.onnx")
            session.get_inputs()[0].name.encode()
        except FairerClipError as error:
            str(error).encode()
            refused += 1
        except BaseException as error:
            raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
    assert 0 < refused < 150


def test_a_name_that_is_not_utf8_is_refused_without_a_word_on_stdout(capfd):
    raw = model(INLINE).SerializeToString().replace(b"Flatten", b"Fl\xaftten")
    with pytest.raises(EncoderError, match="not a model that onnxruntime can run"):
        ours.open_session(raw, "image.onnx")
    assert capfd.readouterr().out == ""  # it may be JSON that is being written there


def test_the_size_of_a_file_is_checked_before_it_is_read(folder, monkeypatch):
    monkeypatch.setattr(ours, "MAX_ONNX_BYTES", 1000)
    with pytest.raises(EncoderError, match="expected at most 1,000 bytes"):
        load(f"onnx:{folder}")


def test_a_large_limit_takes_no_memory(tmp_path):
    (tmp_path / "a").write_bytes(b"small")
    tracemalloc.start()
    try:
        assert read_bounded(tmp_path / "a", 2**31 - 1, EncoderError) == b"small"
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
