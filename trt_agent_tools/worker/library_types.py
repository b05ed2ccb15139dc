"""What is used of TensorRT's Python API, as types.

`tensorrt` and `tensorrt_rtx` come without annotations that a checker could read, and either may be
absent. The parts here have the same shape in both, from TensorRT 10.0 and TensorRT-RTX 1.4 on. What
only some versions have is never declared: it is looked for by name (`worker/features.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, Protocol

LibraryName = Literal["tensorrt", "tensorrt_rtx"]
"""The modules that can build; also the names of their backends."""


class EnumMember(Protocol):
    """A member of one of the library's enumerations. Its integer differs between versions."""

    @property
    def name(self) -> str:
        """The member's name, which is what to store."""

    def __int__(self) -> int:
        """Return its integer in this version."""


class EnumClass(Protocol):
    """One of the library's enumerations."""

    __members__: Mapping[str, EnumMember]


class Dims(Protocol):
    """A shape; -1 is a dynamic dimension."""

    def __iter__(self) -> Iterator[int]:
        """Iterate over the dimensions."""


class IHostMemory(Protocol):
    """Bytes that the library owns; `memoryview()` shows them without a copy."""

    @property
    def nbytes(self) -> int:
        """The size in bytes."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Show the bytes."""


class ILogger(Protocol):
    """Takes the library's log. `log` is called from any thread."""

    def log(self, severity: EnumMember, msg: str) -> None:
        """Take one line."""


class LoggerClass(Protocol):
    """The class `Logger`, whose instances print to stdout without Python's lock."""

    INTERNAL_ERROR: EnumMember
    ERROR: EnumMember
    WARNING: EnumMember
    INFO: EnumMember
    VERBOSE: EnumMember

    def __call__(self, min_severity: EnumMember, /) -> ILogger:
        """Return a logger for this severity and worse."""


class IProgressMonitor(Protocol):
    """Takes the progress of a build. To be subclassed; the methods are called from any thread."""

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """Take the start of a phase."""

    def step_complete(self, phase_name: str, step: int) -> bool:
        """Take a completed step. Return False to cancel the build."""

    def phase_finish(self, phase_name: str) -> None:
        """Take the end of a phase."""


class ITensor(Protocol):
    """An input of the network."""

    @property
    def name(self) -> str:
        """The name in the model."""

    @property
    def shape(self) -> Dims:
        """The shape; -1 is a dynamic dimension."""

    @property
    def is_shape_tensor(self) -> bool:
        """Whether its values are used to compute shapes, and so must be bounded by a profile."""


class INetworkDefinition(Protocol):
    """The model as the library holds it."""

    @property
    def num_inputs(self) -> int:
        """How many inputs there are."""

    @property
    def num_outputs(self) -> int:
        """How many outputs there are."""

    @property
    def num_layers(self) -> int:
        """How many layers there are."""

    def get_input(self, index: int) -> ITensor:
        """Return one input."""

    def get_flag(self, flag: EnumMember) -> bool:
        """Whether the network was created with `flag`."""


class IOptimizationProfile(Protocol):
    """The getters return minimum, optimum and maximum, or nothing."""

    def set_shape(
        self, name: str, low: Sequence[int], best: Sequence[int], high: Sequence[int], /
    ) -> None:
        """Bound the shape of an input."""

    def get_shape(self, name: str, /) -> Sequence[Dims]:
        """Return the bounds of an input's shape."""

    def set_shape_input(
        self, name: str, low: Sequence[int], best: Sequence[int], high: Sequence[int], /
    ) -> None:
        """Bound the values of a shape tensor."""

    def get_shape_input(self, name: str, /) -> Sequence[Sequence[int]]:
        """Return the bounds of a shape tensor's values."""


class ITimingCache(Protocol):
    """How fast the tactics were that were tried."""

    def serialize(self) -> IHostMemory:
        """Return the cache as bytes."""

    def combine(self, input_cache: "ITimingCache", ignore_mismatch: bool) -> bool:
        """Add what another cache has and this one lacks. Return False if that one does not fit."""


class TimingCacheConfig(Protocol):
    """The part of `IBuilderConfig` that has to do with the timing cache."""

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache | None:
        """Return a cache from its bytes, or a cold one from none."""

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        """Use a cache. Return False if it was made by another version or GPU."""

    def get_timing_cache(self) -> ITimingCache | None:
        """Return the cache in use."""


class IBuilderConfig(TimingCacheConfig, Protocol):
    """How to build. Properties that not every version has are set and read by name."""

    progress_monitor: IProgressMonitor | None

    def set_flag(self, flag: EnumMember) -> None:
        """Turn a flag on, which may turn others off."""

    def clear_flag(self, flag: EnumMember) -> None:
        """Turn a flag off."""

    def get_flag(self, flag: EnumMember) -> bool:
        """Whether a flag is on."""

    def set_memory_pool_limit(self, pool: EnumMember, pool_size: int) -> None:
        """Bound a memory pool, in bytes."""

    def get_memory_pool_limit(self, pool: EnumMember) -> int:
        """Return the bound of a memory pool, in bytes."""

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        """Use the sources of this mask. Return False if it is not taken."""

    def get_tactic_sources(self) -> int:
        """Return the mask of the sources in use."""

    def set_preview_feature(self, feature: EnumMember, enable: bool) -> None:
        """Turn a preview feature on or off."""

    def get_preview_feature(self, feature: EnumMember) -> bool:
        """Whether a preview feature is on."""

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        """Add a profile. Return its index, or -1 if it is not valid."""


class ComputeCapabilityConfig(Protocol):
    """The part of `IBuilderConfig` that only TensorRT-RTX has."""

    num_compute_capabilities: int

    def set_compute_capability(self, compute_capability: EnumMember, index: int) -> bool:
        """Build for this architecture too. Return False if it is not taken."""

    def get_compute_capability(self, index: int) -> EnumMember:
        """Return the architecture at `index`."""


class PluginCreator(Protocol):
    """Makes the plugins of one name."""

    @property
    def name(self) -> str:
        """The plugin's name: the operator that it stands for in a model."""


class IPluginRegistry(Protocol):
    """The plugins that are known."""

    @property
    def all_creators(self) -> Sequence[PluginCreator]:
        """What makes each plugin."""

    def load_library(self, plugin_path: str) -> object | None:
        """Load a plugin library. Return None if that fails."""


class Builder(Protocol):
    """Makes networks, configs and engines."""

    def create_network(self, flags: int = 0) -> INetworkDefinition | None:
        """Return an empty network, or None if the flags are not taken."""

    def create_builder_config(self) -> IBuilderConfig:
        """Return a config with the library's defaults."""

    def create_optimization_profile(self) -> IOptimizationProfile:
        """Return an empty profile."""

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> IHostMemory | None:
        """Build. Return None if that fails or is cancelled."""

    def get_plugin_registry(self) -> IPluginRegistry | None:
        """Return the registry whose plugins this builder uses."""


class ParserError(Protocol):
    """It dangles when its parser dies or its errors are cleared: copy what it says at once."""

    def code(self) -> EnumMember:
        """Return what kind of error it is."""

    def desc(self) -> str:
        """Return what happened."""

    def node(self) -> int:
        """Return the index of the node, or -1."""

    def node_name(self) -> str:
        """Return the node's name, perhaps empty."""

    def node_operator(self) -> str:
        """Return the node's operator, perhaps empty."""


class OnnxParser(Protocol):
    """Reads a model into a network."""

    @property
    def num_errors(self) -> int:
        """How many errors the last parse left."""

    def get_error(self, index: int) -> ParserError:
        """Return one error."""

    def parse_from_file(self, model: str) -> bool:
        """Parse a file, sidecars too. Return whether it was understood."""

    def set_flag(self, flag: EnumMember) -> None:
        """Turn a flag on."""

    def get_flag(self, flag: EnumMember) -> bool:
        """Whether a flag is on."""

    def supports_operator(self, op_name: str) -> bool:
        """Whether it reads this operator by itself, whatever the domain. Not in every version."""


# Named here because inside `LibraryModule` the names mean its attributes.
_BuilderClass = Callable[[ILogger], Builder]
_ParserClass = Callable[[INetworkDefinition, ILogger], OnnxParser]
_MonitorClass = type[IProgressMonitor]


class LibraryModule(Protocol):
    """The module itself."""

    __version__: str
    Builder: _BuilderClass
    OnnxParser: _ParserClass
    Logger: LoggerClass
    IProgressMonitor: _MonitorClass
    get_plugin_registry: Callable[[], IPluginRegistry | None]
    init_libnvinfer_plugins: Callable[[ILogger, str], bool]
    get_nv_onnx_parser_version: Callable[[], int]
