"""ONNX models with random weights, for the demo, the tests and the benchmarks."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET = 17
_IR_VERSION = 9
_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""ResNet-50's four stages: blocks, inner channels, stride of the first block."""
_EXPANSION = 4
_HEADS = 4


class _Graph:
    """Collects nodes and weights; every name is unique and tells where it belongs."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(seed)

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        name: str,
        **attributes: int | Sequence[int],
    ) -> str:
        node = helper.make_node(operator, inputs, [name], name=name)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
        self.nodes.append(node)
        return name

    def random(self, name: str, shape: tuple[int, ...], deviation: float) -> str:
        values = self._random.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
        return self._keep(name, values)

    def filled(self, name: str, shape: tuple[int, ...], value: float) -> str:
        return self._keep(name, np.full(shape, value, dtype=np.float32))

    def shape(self, name: str, dimensions: Sequence[int]) -> str:
        self.weights.append(numpy_helper.from_array(np.array(dimensions, dtype=np.int64), name))
        return name

    def save(
        self, path: Path, name: str, inputs: dict[str, list[int]], outputs: dict[str, list[int]]
    ) -> None:
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()],
            [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in outputs.items()],
            self.weights,
        )
        onnx.save(
            helper.make_model(
                graph,
                opset_imports=[helper.make_opsetid("", _OPSET)],
                ir_version=_IR_VERSION,
                producer_name="trt-agent-tools",
            ),
            path,
        )

    def _keep(self, name: str, values: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> str:
        self.weights.append(numpy_helper.from_array(values, name))
        return name


def resnet50(path: Path, *, seed: int = 0) -> None:
    """Write a model of ResNet-50's shape to `path`: 25.6 million float32 weights, about 102 MB.

    The topology is the real one (bottleneck blocks 3, 4, 6, 3 with batch normalization and
    projections); the weights are random, the same for the same `seed`. Input `x` is 1x3x224x224,
    output `logits` is 1x1000.
    """
    graph = _Graph(seed)
    x = _conv_norm(graph, "stem", "x", 3, 64, kernel=7, stride=2, relu=True)
    x = graph.node(
        "MaxPool", [x], "stem/pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    channels = 64
    for number, (blocks, inner, stride) in enumerate(_STAGES, start=1):
        for block in range(blocks):
            step = stride if block == 0 else 1
            x = _bottleneck(graph, f"stage{number}/block{block}", x, channels, inner, stride=step)
            channels = inner * _EXPANSION
    x = graph.node("GlobalAveragePool", [x], "head/pool")
    x = graph.node("Flatten", [x], "head/flatten", axis=1)
    weight = graph.random("head/weight", (channels, 1000), channels**-0.5)
    graph.node("Gemm", [x, weight, graph.filled("head/bias", (1000,), 0.0)], "logits")
    graph.save(path, "resnet50", {"x": [1, 3, 224, 224]}, {"logits": [1, 1000]})


def transformer(
    path: Path, *, blocks: int, width: int = 128, sequence: int = 64, seed: int = 0
) -> None:
    """Write a pre-norm transformer encoder of `blocks` blocks to `path`.

    Each block has layer norm, attention with four heads and an MLP with GELU, 33 nodes in all. The
    deeper it is, the longer TensorRT stays in one step without a callback. `width` is a multiple
    of 4. Input `x` and output `y` are 1 x `sequence` x `width`.
    """
    graph = _Graph(seed)
    x = "x"
    for number in range(blocks):
        name = f"block{number}"
        attended = _attention(graph, f"{name}/attention", x, width, sequence)
        x = graph.node("Add", [x, attended], f"{name}/attention/residual")
        x = graph.node("Add", [x, _mlp(graph, f"{name}/mlp", x, width)], f"{name}/mlp/residual")
    _layer_norm(graph, "y", x, width)
    size = [1, sequence, width]
    graph.save(path, f"transformer{blocks}", {"x": size}, {"y": size})


def _conv_norm(
    graph: _Graph,
    name: str,
    x: str,
    channels: int,
    filters: int,
    *,
    kernel: int,
    stride: int,
    relu: bool,
) -> str:
    deviation = (2 / (channels * kernel * kernel)) ** 0.5
    weight = graph.random(f"{name}/weight", (filters, channels, kernel, kernel), deviation)
    x = graph.node(
        "Conv",
        [x, weight],
        f"{name}/conv",
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[kernel // 2] * 4,
    )
    statistics = [
        graph.filled(f"{name}/{part}", (filters,), value)
        for part, value in (("scale", 1.0), ("bias", 0.0), ("mean", 0.0), ("variance", 1.0))
    ]
    x = graph.node("BatchNormalization", [x, *statistics], f"{name}/norm")
    return graph.node("Relu", [x], f"{name}/relu") if relu else x


def _bottleneck(graph: _Graph, name: str, x: str, channels: int, inner: int, *, stride: int) -> str:
    outer = inner * _EXPANSION
    y = _conv_norm(graph, f"{name}/reduce", x, channels, inner, kernel=1, stride=1, relu=True)
    y = _conv_norm(graph, f"{name}/conv", y, inner, inner, kernel=3, stride=stride, relu=True)
    y = _conv_norm(graph, f"{name}/expand", y, inner, outer, kernel=1, stride=1, relu=False)
    if stride != 1 or channels != outer:
        x = _conv_norm(
            graph, f"{name}/project", x, channels, outer, kernel=1, stride=stride, relu=False
        )
    return graph.node("Relu", [graph.node("Add", [x, y], f"{name}/add")], f"{name}/relu")


def _linear(graph: _Graph, name: str, x: str, inputs: int, outputs: int) -> str:
    weight = graph.random(f"{name}/weight", (inputs, outputs), inputs**-0.5)
    product = graph.node("MatMul", [x, weight], f"{name}/product")
    return graph.node("Add", [product, graph.filled(f"{name}/bias", (outputs,), 0.0)], name)


def _layer_norm(graph: _Graph, name: str, x: str, width: int) -> str:
    scale = graph.filled(f"{name}/scale", (width,), 1.0)
    bias = graph.filled(f"{name}/bias", (width,), 0.0)
    return graph.node("LayerNormalization", [x, scale, bias], name, axis=-1)


def _attention(graph: _Graph, name: str, x: str, width: int, sequence: int) -> str:
    x = _layer_norm(graph, f"{name}/norm", x, width)
    split = graph.shape(f"{name}/split", [1, sequence, _HEADS, width // _HEADS])

    def heads(part: str, order: list[int]) -> str:
        y = _linear(graph, f"{name}/{part}", x, width, width)
        y = graph.node("Reshape", [y, split], f"{name}/{part}/split")
        return graph.node("Transpose", [y], f"{name}/{part}/heads", perm=order)

    query = heads("query", [0, 2, 1, 3])
    key = heads("key", [0, 2, 3, 1])
    value = heads("value", [0, 2, 1, 3])
    scores = graph.node("MatMul", [query, key], f"{name}/scores")
    factor = graph.filled(f"{name}/factor", (), (width // _HEADS) ** -0.5)
    scores = graph.node("Mul", [scores, factor], f"{name}/scaled")
    weights = graph.node("Softmax", [scores], f"{name}/weights", axis=-1)
    y = graph.node("MatMul", [weights, value], f"{name}/mix")
    y = graph.node("Transpose", [y], f"{name}/mix/transpose", perm=[0, 2, 1, 3])
    merge = graph.shape(f"{name}/merge", [1, sequence, width])
    y = graph.node("Reshape", [y, merge], f"{name}/mix/merge")
    return _linear(graph, f"{name}/output", y, width, width)


def _mlp(graph: _Graph, name: str, x: str, width: int) -> str:
    x = _layer_norm(graph, f"{name}/norm", x, width)
    x = _linear(graph, f"{name}/up", x, width, 4 * width)
    # GELU as x * 0.5 * (1 + erf(x / sqrt(2))): the operator of that name is younger than the opset.
    root = graph.filled(f"{name}/gelu/root", (), 2**0.5)
    one = graph.filled(f"{name}/gelu/one", (), 1.0)
    half = graph.filled(f"{name}/gelu/half", (), 0.5)
    y = graph.node("Erf", [graph.node("Div", [x, root], f"{name}/gelu/div")], f"{name}/gelu/erf")
    y = graph.node("Add", [y, one], f"{name}/gelu/add")
    y = graph.node("Mul", [graph.node("Mul", [x, half], f"{name}/gelu/half_x"), y], f"{name}/gelu")
    return _linear(graph, f"{name}/down", y, 4 * width, width)
