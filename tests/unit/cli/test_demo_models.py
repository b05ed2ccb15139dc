import math
from collections import Counter
from pathlib import Path

import onnx
import pytest

from trt_agent_tools.cli.demo_models import resnet50, transformer


def checked(path: Path) -> onnx.ModelProto:
    onnx.checker.check_model(str(path), full_check=True)
    return onnx.load(path)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    path = tmp_path_factory.mktemp("models") / "resnet50.onnx"
    resnet50(path)
    return checked(path)


def test_the_resnet_is_valid_and_has_the_operators_of_resnet50(resnet: onnx.ModelProto) -> None:
    operators = Counter(node.op_type for node in resnet.graph.node)

    assert operators["Conv"] == 53
    assert operators["BatchNormalization"] == 53
    assert operators["Add"] == 16
    assert operators["Relu"] == 49
    assert operators["Gemm"] == 1


def test_the_resnet_has_the_weights_of_resnet50(resnet: onnx.ModelProto) -> None:
    trained = [
        tensor
        for tensor in resnet.graph.initializer
        if not tensor.name.endswith(("/mean", "/variance"))
    ]

    assert sum(math.prod(tensor.dims) for tensor in trained) == 25_557_032


def test_a_transformer_block_has_attention_and_an_mlp(tmp_path: Path) -> None:
    transformer(tmp_path / "t.onnx", blocks=3)

    operators = Counter(node.op_type for node in checked(tmp_path / "t.onnx").graph.node)

    assert operators["Softmax"] == 3
    assert operators["LayerNormalization"] == 7
    assert operators["Erf"] == 3
    assert operators["MatMul"] == 24


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        transformer(tmp_path / name, blocks=1, seed=seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")

    assert a == b
    assert a != c


def test_width_and_sequence_are_the_shape(tmp_path: Path) -> None:
    transformer(tmp_path / "t.onnx", blocks=1, width=32, sequence=8)

    (tensor,) = checked(tmp_path / "t.onnx").graph.output

    assert [size.dim_value for size in tensor.type.tensor_type.shape.dim] == [1, 8, 32]
