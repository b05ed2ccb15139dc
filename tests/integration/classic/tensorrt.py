"""Classic TensorRT as far as a timing cache shows in a build, for a host without a GPU.

Its names and signatures are the real module's (`test_classic_bindings` holds those against the real
bindings); how its caches behave is what NVIDIA's reference says of them. A model's nodes are what
there is to time: each costs a line of the cache, and is not timed again where the cache has it.

Nodes by these names do what real builds do: `until_cancelled`, `fails`, and `gate`, which waits until
nobody holds a lock on the file GATE of the environment.
"""

# ruff: noqa: ARG002  (the signatures are the library's)

import fcntl
import os
import time
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import onnx

__version__ = os.environ.get("CLASSIC_VERSION", "10.16.1.11")
GPU = os.environ.get("CLASSIC_GPU", "NVIDIA H200")
CANCEL_S = 20.0
_HEADER = f"timing cache of {__version__} on {GPU}\n".encode()


class NetworkDefinitionCreationFlag(IntEnum):
    STRONGLY_TYPED = 1


class OnnxParserFlag(IntEnum):
    NATIVE_INSTANCENORM = 0


class Logger:
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)

    def __init__(self, min_severity: int) -> None:
        self.min_severity = min_severity


class IProgressMonitor:
    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None: ...

    def step_complete(self, phase_name: str, step: int) -> bool:
        raise NotImplementedError

    def phase_finish(self, phase_name: str) -> None: ...


class ITimingCache:
    def __init__(self, header: bytes, lines: set[bytes]) -> None:
        self.header = header
        self.lines = lines

    def combine(self, input_cache: "ITimingCache", ignore_mismatch: bool) -> bool:
        if not ignore_mismatch and input_cache.header != self.header:
            return False
        self.lines |= input_cache.lines
        return True

    def serialize(self) -> memoryview:
        return memoryview(self.header + b"".join(sorted(self.lines)))


class IBuilderConfig:
    progress_monitor: IProgressMonitor | None = None

    def __init__(self) -> None:
        self._cache: ITimingCache | None = None

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None:
        if not serialized_timing_cache:
            return ITimingCache(_HEADER, set())
        header, *lines = serialized_timing_cache.splitlines(keepends=True)
        return ITimingCache(header, set(lines)) if header.startswith(b"timing cache of") else None

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        fits = ignore_mismatch or cache.header == _HEADER
        if fits:
            self._cache = cache
        return fits

    def get_timing_cache(self) -> ITimingCache | None:
        return self._cache


class _Tensor:
    name = "x"
    shape = (1,)
    is_shape_tensor = False


class INetworkDefinition:
    num_inputs = 1
    num_outputs = 0

    def __init__(self) -> None:
        self.nodes: Sequence[str] = ()

    def get_input(self, index: int) -> _Tensor:
        return _Tensor()

    def get_flag(self, flag: NetworkDefinitionCreationFlag) -> bool:
        return False


class OnnxParser:
    num_errors = 0

    def __init__(self, network: INetworkDefinition, logger: Logger) -> None:
        self._network = network

    def parse_from_file(self, model: str) -> bool:
        self._network.nodes = [node.name for node in onnx.load(model).graph.node]
        self._network.num_outputs = 1
        return True


class Builder:
    def __init__(self, logger: Logger) -> None: ...

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        return INetworkDefinition()

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> memoryview | None:
        monitor = config.progress_monitor
        assert monitor
        cache = config.get_timing_cache() or ITimingCache(_HEADER, set())
        monitor.phase_start("Building engine", None, len(network.nodes))
        for step, node in enumerate(network.nodes):
            if node == "fails":
                return None
            if node == "gate":
                with Path(os.environ["GATE"]).open("rb") as gate:
                    fcntl.flock(gate, fcntl.LOCK_SH)
            deadline = time.monotonic() + CANCEL_S
            while node == "until_cancelled" and time.monotonic() < deadline:
                if not monitor.step_complete("Building engine", step):
                    return None
                time.sleep(0.01)
            cache.lines.add(f"{node}\n".encode())
            if not monitor.step_complete("Building engine", step):
                return None
        monitor.phase_finish("Building engine")
        return memoryview(b"an engine")


def init_libnvinfer_plugins(logger: Logger, namespace: str) -> bool:
    return True


def get_plugin_registry() -> None:
    return None
