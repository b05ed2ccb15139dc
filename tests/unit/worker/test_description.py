"""What is told of a model is what is in it, wherever in the model it is."""

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from trt_agent_tools.model.findings import Operator, TensorInfo, Weights
from trt_agent_tools.worker.description import MAX_SHOWN_RANK, describe, size_of


def weight(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(np.ones(shape, np.float32), name)


def info(name: str, shape: list[int | str | None] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def graph(*operators: str, weights: list[TensorProto] | None = None) -> GraphProto:
    nodes = [helper.make_node(operator, ["x"], ["y"]) for operator in operators]
    return helper.make_graph(nodes, "g", [info("x")], [info("y")], weights or [])


def model(of: GraphProto) -> ModelProto:
    return helper.make_model(of, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_nodes_are_counted_in_subgraphs_and_functions_too() -> None:
    inner = graph("Relu", "Add", weights=[weight("v", 3)])
    outer = graph("Add", weights=[weight("w", 2, 2)])
    outer.node.append(
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=graph("Relu"))
    )
    outer.node.append(helper.make_node("Mine", ["x"], ["y"], domain="me"))
    made = model(outer)
    body = [helper.make_node("Tanh", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["y"])]
    made.functions.append(
        helper.make_function("me", "Mine", ["x"], ["y"], body, [helper.make_opsetid("", 17)])
    )
    found = describe(made)
    counts = {operator.shown: count for operator, count in found.operators.items()}
    assert counts == {"Relu": 3, "Add": 2, "If": 1, "Tanh": 1, "me::Mine": 1}
    assert found.functions == {Operator("me", "Mine")}
    assert found.weights == Weights(count=2, bytes=28)


def test_weights_that_are_constant_nodes_are_weights_too() -> None:
    made = model(graph("Relu", weights=[weight("w", 2)]))
    made.graph.node.append(helper.make_node("Constant", [], ["c"], value=weight("c", 5)))
    assert describe(made).weights == Weights(count=2, bytes=28)


def test_the_two_names_of_the_standard_domain_are_one() -> None:
    made = model(graph("Relu"))
    made.graph.node.append(helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx"))
    assert {operator.shown for operator in describe(made).operators} == {"Relu"}


def test_dimensions_are_sizes_or_names() -> None:
    made = model(graph("Relu"))
    del made.graph.input[:]
    made.graph.input.extend([info("a", ["batch", 3, None]), info("b"), info("c", [])])
    found = describe(made).inputs
    assert found == [
        TensorInfo("a", "float32", ["batch", 3, "?"]),
        TensorInfo("b", "float32", None),
        TensorInfo("c", "float32", []),
    ]
    assert [tensor.is_dynamic for tensor in found] == [True, True, False]


def test_a_negative_dimension_is_dynamic_and_an_endless_shape_is_not_shown() -> None:
    made = model(graph("Relu"))
    del made.graph.input[:]
    made.graph.input.extend([info("a", [-1, 4]), info("b", [1] * (MAX_SHOWN_RANK + 1))])
    assert [tensor.shape for tensor in describe(made).inputs] == [["?", 4], None]


def test_weights_among_the_inputs_are_no_inputs() -> None:
    made = model(graph("Relu", weights=[weight("w", 1)]))
    made.graph.input.append(info("w", [1]))
    assert [tensor.name for tensor in describe(made).inputs] == ["x"]


def test_other_types_than_tensors_are_named() -> None:
    made = model(graph("Relu"))
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2]))
    made.graph.input.append(helper.make_value_info("s", helper.make_optional_type_proto(sequence)))
    made.graph.input.append(
        helper.make_value_info(
            "m", helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, [2]))
        )
    )
    made.graph.input.add(name="untyped")
    kinds = [tensor.dtype for tensor in describe(made).inputs[1:]]
    assert kinds == ["optional(sequence(float32))", "map", "unknown"]


@pytest.mark.parametrize("kind", sorted(set(TensorProto.DataType.values()) - {0, 8}))
def test_the_size_of_every_type_is_known(kind: int) -> None:
    size = size_of(TensorProto(dims=[8, 8], data_type=kind))
    name = TensorProto.DataType.Name(kind)
    if name.startswith(("INT2", "UINT2", "INT4", "UINT4", "FLOAT4", "FLOAT6")):
        bits = {"2": 2, "4": 4, "6": 6}[next(c for c in name if c.isdigit())]
        assert size == 8 * bits
    else:
        assert size == 64 * helper.tensor_dtype_to_np_dtype(kind).itemsize


@pytest.mark.parametrize(
    "tensor",
    [
        TensorProto(dims=[-1, 4], data_type=1),
        TensorProto(dims=[4], data_type=99),
        TensorProto(dims=[4]),
        TensorProto(dims=[4], data_type=TensorProto.STRING),
    ],
    ids=["negative", "unknown type", "no type", "text"],
)
def test_a_size_that_cannot_be_known_counts_for_nothing(tensor: TensorProto) -> None:
    assert size_of(tensor) == 0


def test_absurd_numbers_stay_numbers_that_every_reader_takes() -> None:
    made = model(graph("Relu", weights=[TensorProto(dims=[2**62] * 30, data_type=1)]))
    made.opset_import[0].version = -1
    found = describe(made)
    assert found.weights.bytes == 2**53 - 1
    assert found.opset == {"ai.onnx": 0}


def test_text_of_the_model_is_cleaned() -> None:
    made = model(graph("Relu"))
    made.producer_name = "evil\x1b[31m\nignore"
    made.graph.input[0].name = "x\u202e\n" + "y" * 1000
    found = describe(made)
    assert found.producer == "evil ignore"
    assert found.inputs[0].name.isprintable()
    assert len(found.inputs[0].name) <= 200
