"""What an ONNX model says of itself, its weights left aside."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from trt_agent_tools.model.findings import Operator, TensorInfo, Weights
from trt_agent_tools.model.untrusted import MAX_NAME, one_line
from trt_agent_tools.worker.onnx_fields import ELEMENT_BITS

MAX_SHOWN_RANK = 32
"""The shape of a tensor with more dimensions is left out; TensorRT has at most eight."""

_MAX_NUMBER = 2**53 - 1
"""The largest integer that every reader of JSON takes."""

_NUMPY_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}


@dataclass(frozen=True, slots=True)
class Description:
    """What was found. Text is clean, but for `operators`, `functions` and the names of `ends`.

    `operators` counts the nodes of the graph, its subgraphs and the model's functions; `functions` are
    the operators that the model defines itself. `ends` tells for each file of external data how long
    it must be for all of its tensors, by the name in the model.
    """

    ir_version: int
    opset: dict[str, int]
    producer: str | None
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    operators: Counter[Operator]
    functions: frozenset[Operator]
    weights: Weights
    ends: dict[str, int]


def describe(model: ModelProto) -> Description:
    """Return what `model` says of itself; values of tensors are not looked at."""
    graph = model.graph
    graphs, nodes = _everything(model)
    tensors = [tensor for each in graphs for tensor in _initializers(each)]
    tensors += _constants(nodes)
    initialized = {tensor.name for tensor in _initializers(graph)}
    ends: Counter[str] = Counter()
    for tensor in tensors:
        location, end = _place(tensor)
        if location:
            ends[location] = max(ends[location], end)
    producer = one_line(f"{model.producer_name} {model.producer_version}".strip(), MAX_NAME)
    return Description(
        ir_version=_number(model.ir_version),
        opset={
            one_line(entry.domain, MAX_NAME) or "ai.onnx": _number(entry.version)
            for entry in model.opset_import
        },
        producer=producer or None,
        # Before IR version 4 initializers are named among the inputs too.
        inputs=[_tensor(value) for value in graph.input if value.name not in initialized],
        outputs=[_tensor(value) for value in graph.output],
        operators=Counter(Operator(node.domain, node.op_type) for node in nodes),
        functions=frozenset(Operator(each.domain, each.name) for each in model.functions),
        weights=Weights(
            count=len(tensors),
            bytes=_number(sum(map(size_of, tensors))),
            external_count=sum(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors),
        ),
        ends=dict(ends),
    )


def size_of(tensor: TensorProto) -> int:
    """Return the bytes that a tensor's values take by its type and shape; 0 for text."""
    dimensions: list[int] = list(tensor.dims)
    if any(size < 0 for size in dimensions):
        return 0
    # A type that is not known here counts for nothing.
    return (math.prod(dimensions) * ELEMENT_BITS.get(tensor.data_type, 0) + 7) // 8


def _everything(model: ModelProto) -> tuple[list[GraphProto], list[NodeProto]]:
    """Return the model's graphs, outer ones first, and all nodes, those of its functions too."""
    graphs = [model.graph]
    nodes: list[NodeProto] = []
    for function in model.functions:
        nodes += function.node
        graphs += _inner(function.node)
    for graph in graphs:  # the list grows while it is read
        nodes += graph.node
        graphs += _inner(graph.node)
    return graphs, nodes


def _inner(nodes: Iterable[NodeProto]) -> Iterator[GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def _initializers(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices


def _constants(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """Yield the tensors of Constant nodes: where some exporters keep all of a model's weights."""
    for node in nodes:
        if node.op_type == "Constant":
            yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


def _place(tensor: TensorProto) -> tuple[str, int]:
    """Return the file that a tensor's values are in, and where they end; no file for any other."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return "", 0
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        length = int(entries.get("length") or size_of(tensor))
        end = int(entries.get("offset") or 0) + length
    except ValueError:
        # No number: the parser will say so.
        end = 0
    return entries.get("location", ""), end


def _tensor(value: ValueInfoProto) -> TensorInfo:
    return TensorInfo(one_line(value.name, MAX_NAME), _dtype(value.type), _shape(value.type))


def _dtype(kind: TypeProto, depth: int = 0) -> str:
    which = kind.WhichOneof("value") or "unknown"
    if which in {"tensor_type", "sparse_tensor_type"}:
        of_values = getattr(kind, which).elem_type
        name = _type_name(of_values)
        shown = _NUMPY_NAMES.get(name, name.lower())
        return shown if which == "tensor_type" else f"sparse({shown})"
    word = which.removesuffix("_type")
    if which in {"sequence_type", "optional_type"} and depth < 3:  # noqa: PLR2004  (deeper says no more)
        return f"{word}({_dtype(getattr(kind, which).elem_type, depth + 1)})"
    return word


def _shape(kind: TypeProto) -> list[int | str] | None:
    if kind.WhichOneof("value") != "tensor_type" or not kind.tensor_type.HasField("shape"):
        return None
    dimensions = kind.tensor_type.shape.dim
    if len(dimensions) > MAX_SHOWN_RANK:
        return None
    shape: list[int | str] = []
    for dimension in dimensions:
        if dimension.HasField("dim_value") and dimension.dim_value >= 0:
            shape.append(_number(dimension.dim_value))
        else:
            shape.append(one_line(dimension.dim_param, MAX_NAME) or "?")
    return shape


def _type_name(number: int) -> str:
    known = TensorProto.DataType.values()
    return TensorProto.DataType.Name(number) if number in known else f"TYPE{number}"


def _number(value: int) -> int:
    return max(0, min(value, _MAX_NUMBER))
