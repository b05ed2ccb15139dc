"""Run in a process of its own: applies build options to the real TensorRT-RTX, and builds if asked.

Reads an `Order` as JSON on stdin; prints what was applied, the fault and whether an engine came of it.
The network passes its inputs through. With `reshape` its first input is reshaped to the values of its
second, which makes that one a shape tensor. With `unchecked` the profiles are not validated first.
"""

import json
import os
import sys
from dataclasses import asdict
from typing import Protocol, cast

from pydantic import BaseModel

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.events import JsonValue
from trt_agent_tools.model.options import BuildOptions, ShapeRange
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.library import load_library
from trt_agent_tools.worker.library_types import (
    EnumMember,
    ILogger,
    INetworkDefinition,
    LibraryModule,
)
from trt_agent_tools.worker.options import apply_options, create_network, set_parser_flags
from trt_agent_tools.worker.plugins import load_plugins
from trt_agent_tools.worker.profiles import add_profiles


class Input(BaseModel):
    name: str
    dtype: str
    shape: list[int]


class Bounds(BaseModel):
    min: list[int]
    opt: list[int]
    max: list[int]


class Profiles(BaseModel):
    profiles: list[dict[str, Bounds]]


class Order(BaseModel):
    options: dict[str, object]
    inputs: list[Input]
    reshape: bool = False
    unchecked: bool = False
    build: bool = False

    def build_options(self) -> BuildOptions:
        if not self.unchecked:
            return BuildOptions.model_validate(self.options)
        profiles = [
            {
                name: ShapeRange.model_construct(min=given.min, opt=given.opt, max=given.max)
                for name, given in profile.items()
            }
            for profile in Profiles.model_validate(self.options).profiles
        ]
        return BuildOptions().model_copy(update={"profiles": profiles})


class Layer(Protocol):
    def get_output(self, index: int, /) -> object: ...

    def set_input(self, index: int, tensor: object, /) -> None: ...


class Network(Protocol):
    """The part of `INetworkDefinition` by which a network is made without a model."""

    def add_input(self, name: str, dtype: object, shape: list[int], /) -> object: ...

    def add_identity(self, tensor: object, /) -> Layer: ...

    def add_shuffle(self, tensor: object, /) -> Layer: ...

    def mark_output(self, tensor: object, /) -> None: ...


class LogLines:
    """Keeps what the library logs, but for the complaint that there is no GPU."""

    def __init__(self, module: LibraryModule) -> None:
        self.lines: list[str] = []
        base: type = getattr(module, "ILogger")  # noqa: B009  (not among the types of the worker)

        def log(_: object, severity: EnumMember, msg: str) -> None:
            if severity.name in {"ERROR", "WARNING"} and "catchCudaError" not in msg:
                self.lines.append(msg)

        self.logger = cast("ILogger", type("Logger", (base,), {"log": log})())

    def last(self) -> str | None:
        return self.lines[-1] if self.lines else None


def fill(module: LibraryModule, definition: INetworkDefinition, order: Order) -> None:
    network = cast("Network", definition)
    tensors = [
        network.add_input(one.name, getattr(module, one.dtype), one.shape) for one in order.inputs
    ]
    if order.reshape:
        layer = network.add_shuffle(tensors[0])
        layer.set_input(1, tensors[1])
        network.mark_output(layer.get_output(0))
        return
    for tensor in tensors:
        network.mark_output(network.add_identity(tensor).get_output(0))


def carry_out(order: Order, applied: list[tuple[str, JsonValue, JsonValue]]) -> bool:
    """Return whether an engine was asked for and built."""

    def report(name: str, requested: JsonValue, effective: JsonValue) -> None:
        applied.append((name, requested, effective))

    options = order.build_options()
    library = load_library("tensorrt_rtx")
    log = LogLines(library.module)
    builder = library.module.Builder(log.logger)
    load_plugins(library, options.plugins, report, log.last)
    network = create_network(library, builder, options.network_flags, report, log.last)
    parser = library.module.OnnxParser(network, log.logger)
    set_parser_flags(library, parser, options.parser_flags, report, log.last)
    fill(library.module, network, order)
    config = builder.create_builder_config()
    apply_options(library, config, options, report, log.last)
    add_profiles(library, builder, network, config, options, report, log.last)
    return order.build and builder.build_serialized_network(network, config) is not None


def main() -> None:
    # The library prints to fd 1; only the answer may.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    order = Order.model_validate_json(sys.stdin.read())
    applied: list[tuple[str, JsonValue, JsonValue]] = []
    fault: ErrorInfo | None = None
    built = False
    try:
        built = carry_out(order, applied)
    except BuildFault as raised:
        fault = raised.info
    told = {"applied": applied, "fault": fault and asdict(fault), "built": built}
    json.dump(told, answer)
    answer.close()


main()
