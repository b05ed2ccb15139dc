"""A model is counted on its file as the onnx library would count it, and never holds a build up."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.onnx_files import small_model, write_dynamic, write_external, write_inline, write_slow
from tests.unit.worker.conftest import Open
from trt_agent_tools.cli.demo_models import transformer
from trt_agent_tools.model.findings import MAX_KINDS
from trt_agent_tools.worker.counting import Counts, ModelCounts, count
from trt_agent_tools.worker.description import describe
from trt_agent_tools.worker.onnx_fields import ELEMENT_BITS
from trt_agent_tools.worker.opened import OpenedFile
from trt_agent_tools.worker.protobuf import MalformedError
from trt_agent_tools.worker.skeleton import read_skeleton


def described(model: OpenedFile) -> Counts:
    found = describe(read_skeleton(model))
    counts = Counts(weight_bytes=found.weights.bytes)
    for operator, number in found.operators.items():
        counts.operators[operator.shown] += number
    return counts


def value(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [3])


def graph(name: str, *nodes: onnx.NodeProto, weights: int = 0) -> onnx.GraphProto:
    initializers = [
        numpy_helper.from_array(np.ones((2, number + 1), np.float16), f"{name}{number}")
        for number in range(weights)
    ]
    return helper.make_graph(list(nodes), name, [], [value("y")], initializers)


def nested(path: Path) -> None:
    """Write a model with subgraphs in subgraphs, a function, a sparse weight and a foreign operator."""
    inner = graph("inner", helper.make_node("Relu", ["x"], ["y"]), weights=2)
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=graph("none"))
    outer = graph("outer", branch, helper.make_node("Mine", ["x"], ["y"], domain="me"), weights=1)
    top = graph("top", helper.make_node("Loop", ["n", "c"], ["y"], body=outer), weights=3)
    top.node.append(
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.ones(40_000)))
    )
    sparse = top.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(3, np.float32), "s"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.arange(3, dtype=np.int64), "i"))
    function = helper.make_function(
        "me", "Mine", ["a"], ["b"], [branch], [helper.make_opsetid("", 17)]
    )
    model = helper.make_model(top, functions=[function])
    path.write_bytes(model.SerializeToString())


def test_a_usual_model_is_counted_as_it_is_described(tmp_path: Path, opened: Open) -> None:
    model = tmp_path / "m.onnx"
    transformer(model, blocks=3)
    counts = count(opened(model))
    assert counts == described(opened(model))
    assert counts.nodes > 90


def test_what_is_nested_is_counted_as_it_is_described(tmp_path: Path, opened: Open) -> None:
    model = tmp_path / "m.onnx"
    nested(model)
    counts = count(opened(model))
    assert counts == described(opened(model))
    assert counts.operators["me::Mine"] == 1
    assert counts.operators["If"] == 2


@pytest.mark.parametrize("write", [write_inline, write_external])
def test_weights_count_wherever_they_are(
    tmp_path: Path, opened: Open, write: Callable[[Path, int], object]
) -> None:
    model = tmp_path / "m.onnx"
    write(model, 5000)
    assert count(opened(model)) == described(opened(model))
    assert count(opened(model)).weight_bytes == 5000


def test_an_operator_of_another_domain_has_its_name(tmp_path: Path, opened: Open) -> None:
    model = tmp_path / "m.onnx"
    write_dynamic(model, unsupported=True)
    assert count(opened(model)) == described(opened(model))


def test_every_type_that_the_onnx_library_has_a_size_for_is_known() -> None:
    for number in TensorProto.DataType.values():
        name = TensorProto.DataType.Name(number)
        if name not in {"UNDEFINED", "STRING"}:
            assert ELEMENT_BITS[number] > 0, name


def test_only_the_most_frequent_kinds_are_told() -> None:
    counts = Counts()
    for number in range(MAX_KINDS + 50):
        counts.operators[f"Kind{number}"] = number + 1
    told = counts.most_frequent
    assert len(told) == MAX_KINDS
    assert min(told.values()) == 51
    assert counts.nodes == sum(range(1, MAX_KINDS + 51))


def test_what_is_no_model_has_no_counts(tmp_path: Path, opened: Open) -> None:
    model = tmp_path / "m.onnx"
    for content in (b"", b"\xff" * 100, small_model()[:-3]):
        model.write_bytes(content)
        assert ModelCounts(opened(model)).take(5.0) is None
    with pytest.raises(MalformedError):
        count(opened(model))


def test_counting_that_takes_too_long_is_given_up(tmp_path: Path, opened: Open) -> None:
    model = tmp_path / "m.onnx"
    write_slow(model)
    counts = ModelCounts(opened(model))
    began = time.monotonic()
    assert counts.take(0.05) is None
    # Minutes otherwise.
    assert time.monotonic() - began < 5
    assert "model counts" not in {thread.name for thread in threading.enumerate()}
