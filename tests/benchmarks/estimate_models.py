"""The models whose builds are foretold in `estimates`: public ones, and two families in several sizes."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.acceptance.public_models import FIVE, MORE, fetch
from trt_agent_tools.cli.demo_models import transformer

CHANNELS = 64
TRANSFORMERS = (12, 36, 4, 120, 24)
CONVOLUTIONS = (100, 400, 10, 200)
"""Blocks, in the order of the first builds: a size is asked for between, below and above known ones."""

Profile = dict[str, dict[str, list[int]]]


@dataclass(frozen=True)
class Model:
    """A model by its file's name. `profile` is empty where it needs none, or has to ask for a proposal."""

    name: str
    family: str
    write: Callable[[Path], object] = field(compare=False)
    profile: Profile = field(compare=False, default_factory=dict)


def public() -> list[Model]:
    """Return the ten public models, each a family of its own.

    Raises:
        UnreachableError: a wheel cannot be had.
    """
    models = (*FIVE, *MORE)
    files = fetch(models)
    return [
        Model(each.name, each.name, partial(shutil.copy, files[each.name]), each.profile)
        for each in models
    ]


def generated() -> list[Model]:
    """Return the generated models of both families, in the order of their first builds."""
    return [
        *(_sized("transformer", blocks, transformer) for blocks in TRANSFORMERS),
        *(_sized("convolutions", blocks, convolutions) for blocks in CONVOLUTIONS),
    ]


def convolutions(path: Path, *, blocks: int) -> None:
    """Write a chain of `blocks` residual blocks, each of two convolutions."""
    random = np.random.default_rng(blocks)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    x = "x"
    for number in range(blocks):
        y = x
        for part in "ab":
            name = f"block{number}/{part}"
            values = random.standard_normal((CHANNELS, CHANNELS, 3, 3), dtype=np.float32) * 0.05
            weights.append(numpy_helper.from_array(values.astype(np.float32), f"{name}/weight"))
            inputs = [y, f"{name}/weight"]
            nodes.append(helper.make_node("Conv", inputs, [f"{name}/conv"], pads=[1, 1, 1, 1]))
            nodes.append(helper.make_node("Relu", [f"{name}/conv"], [name]))
            y = name
        nodes.append(helper.make_node("Add", [x, y], [f"block{number}"]))
        x = f"block{number}"
    nodes.append(helper.make_node("Relu", [x], ["y"]))
    size = [1, CHANNELS, 32, 32]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name in "xy"]
    graph = helper.make_graph(nodes, "convolutions", ends[:1], ends[1:], weights)
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), path)


def _sized(family: str, blocks: int, write: Callable[..., None]) -> Model:
    return Model(f"{family}{blocks}.onnx", family, partial(write, blocks=blocks))
