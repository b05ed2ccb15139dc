"""A skeleton says all that its model says, but for the values of tensors; any bytes are survived."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
)

from tests.onnx_files import field, small_model, varint
from tests.unit.worker.conftest import Open
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.worker import skeleton as module
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.protobuf import MalformedError
from trt_agent_tools.worker.skeleton import MAX_VALUE_BYTES, read_skeleton, skeleton

DATA = (
    *("float_data", "int32_data", "string_data", "int64_data"),
    *("raw_data", "double_data", "uint64_data"),
)

names = st.text(max_size=8)
shapes = st.lists(st.integers(0, 3), max_size=3)


@st.composite
def tensors(draw: st.DrawFn) -> TensorProto:
    shape = draw(shapes)
    kind = draw(st.sampled_from([np.float32, np.int64, np.float64, np.uint64, np.int8]))
    values = np.ones(shape, kind)
    if draw(st.booleans()):
        made = numpy_helper.from_array(values, draw(names))
    else:
        elements = helper.np_dtype_to_tensor_dtype(values.dtype)
        made = helper.make_tensor(draw(names), elements, shape, values.flatten().tolist())
    made.doc_string = draw(names)
    if draw(st.booleans()):
        for field_name in DATA:
            made.ClearField(field_name)
        made.data_location = TensorProto.EXTERNAL
        entry = made.external_data.add()
        entry.key, entry.value = "location", draw(names)
    return made


@st.composite
def nodes(draw: st.DrawFn, depth: int) -> NodeProto:
    node = helper.make_node(
        draw(names), draw(st.lists(names, max_size=2)), draw(st.lists(names, max_size=2))
    )
    node.domain = draw(names)
    kinds = ["ints", "s", "t", "tensors", "sparse"] + (["g", "graphs"] if depth else [])
    for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=3))):
        attribute = AttributeProto(name=f"a{number}", type=AttributeProto.UNDEFINED)
        if kind == "ints":
            attribute.ints.extend(draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3)))
        elif kind == "s":
            attribute.s = draw(st.binary(max_size=8))
        elif kind == "t":
            attribute.t.CopyFrom(draw(tensors()))
        elif kind == "tensors":
            attribute.tensors.extend(draw(st.lists(tensors(), max_size=2)))
        elif kind == "sparse":
            attribute.sparse_tensor.values.CopyFrom(draw(tensors()))
            attribute.sparse_tensor.indices.CopyFrom(draw(tensors()))
        elif kind == "g":
            attribute.g.CopyFrom(draw(graphs(depth - 1)))
        else:
            attribute.graphs.append(draw(graphs(depth - 1)))
        node.attribute.append(attribute)
    return node


@st.composite
def graphs(draw: st.DrawFn, depth: int = 2) -> GraphProto:
    graph = GraphProto(name=draw(names), doc_string=draw(names))
    graph.node.extend(draw(st.lists(nodes(depth), max_size=3)))
    graph.initializer.extend(draw(st.lists(tensors(), max_size=3)))
    for name in draw(st.lists(names, max_size=3)):
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, None]))
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    for values in draw(st.lists(tensors(), max_size=1)):
        graph.sparse_initializer.add().values.CopyFrom(values)
    return graph


@st.composite
def models(draw: st.DrawFn) -> ModelProto:
    model = ModelProto(ir_version=draw(st.integers(0, 20)), producer_name=draw(names))
    model.graph.CopyFrom(draw(graphs()))
    model.opset_import.add(domain=draw(names), version=draw(st.integers(0, 30)))
    for inside in draw(st.lists(nodes(1), max_size=2)):
        model.functions.add(name=draw(names), domain=draw(names)).node.append(inside)
    return model


def clear_data(tensor: TensorProto) -> None:
    for name in DATA:
        tensor.ClearField(name)


def clear_node(node: NodeProto) -> None:
    for attribute in node.attribute:
        for tensor in [*attribute.tensors, *([attribute.t] if attribute.HasField("t") else [])]:
            clear_data(tensor)
        if attribute.HasField("sparse_tensor"):
            clear_data(attribute.sparse_tensor.values)
            clear_data(attribute.sparse_tensor.indices)
        for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            clear_graph(graph)


def clear_graph(graph: GraphProto) -> None:
    for tensor in graph.initializer:
        clear_data(tensor)
    for sparse in graph.sparse_initializer:
        clear_data(sparse.values)
    for node in graph.node:
        clear_node(node)


@given(models())
def test_everything_is_kept_but_the_values_of_tensors(model: ModelProto) -> None:
    bones = onnx.load_model_from_string(skeleton(model.SerializeToString()))
    clear_graph(model.graph)
    for function in model.functions:
        for node in function.node:
            clear_node(node)
    assert bones == model


def test_a_graph_in_two_parts_is_merged_as_the_parser_merges_it() -> None:
    weight = numpy_helper.from_array(np.ones(4, np.uint8), "w")
    second = field(7, field(5, weight.SerializeToString()))
    bones = onnx.load_model_from_string(skeleton(small_model() + second))
    clear_data(weight)
    assert list(bones.graph.initializer) == [weight]
    assert [node.op_type for node in bones.graph.node] == ["Add"]


@pytest.mark.parametrize("size", [MAX_VALUE_BYTES, MAX_VALUE_BYTES + 1])
def test_only_a_long_text_is_left_out(size: int) -> None:
    model = onnx.load_model_from_string(small_model())
    model.doc_string = "x" * size
    model.graph.node[0].attribute.append(helper.make_attribute("engine", bytes(size)))
    bones = onnx.load_model_from_string(skeleton(model.SerializeToString()))
    assert len(bones.doc_string) == (size if size <= MAX_VALUE_BYTES else 0)
    assert bones.graph.node[0].attribute[0].name == "engine"
    assert len(bones.graph.node[0].attribute[0].s) == len(bones.doc_string)


def test_an_input_is_kept_however_long_it_is() -> None:
    model = onnx.load_model_from_string(small_model())
    model.graph.input[0].name = "x" * (MAX_VALUE_BYTES + 1)
    assert onnx.load_model_from_string(skeleton(model.SerializeToString())) == model


def test_a_graph_that_is_too_large_is_refused_before_it_is_copied(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SKELETON_BYTES", 10_000)
    names = field(7, field(1, field(3, b"n" * 100)) * 200)
    (tmp_path / "m.onnx").write_bytes(small_model() + names)
    with pytest.raises(BuildFault) as fault:
        read_skeleton(opened(tmp_path / "m.onnx"))
    assert fault.value.info.code is ErrorCode.INVALID_ARGUMENT


def nest(inner: bytes, levels: int) -> bytes:
    for _ in range(levels):
        inner = field(1, field(5, field(6, inner)))
    return field(7, inner)


def test_what_is_nested_deeper_than_the_parser_goes_is_refused() -> None:
    assert skeleton(nest(b"", 30))
    with pytest.raises(MalformedError):
        skeleton(nest(b"", 34))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[:-1],
    "a field that is too long": lambda data: data + varint(7 << 3 | 2) + varint(1 << 40),
    "zeros": lambda data: data + bytes(8),
    "a number without an end": lambda data: data + b"\xff" * 20,
    "a group without an end": lambda data: data + varint(9 << 3 | 3),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_message_is_refused(damage: str) -> None:
    with pytest.raises(MalformedError):
        skeleton(DAMAGES[damage](small_model()))


@given(st.binary(max_size=300), st.lists(st.sampled_from([1, 5, 6, 7, 15, 22, 25]), max_size=8))
def test_any_bytes_are_survived_and_never_grow(data: bytes, around: list[int]) -> None:
    for number in around:
        data = field(number, data)
    with contextlib.suppress(MalformedError):
        assert len(skeleton(data)) <= len(data)
