"""Which build options a library has: the table of where each lives, and the detection over it.

Nothing here depends on a version: an option is there when the library has what it is set and read
back through. Classes and enumerations suffice, so no GPU and no builder is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trt_agent_tools.model.events import Capabilities
from trt_agent_tools.worker.library_types import EnumClass, EnumMember, LibraryModule, LibraryName


@dataclass(frozen=True, slots=True)
class Feature:
    """Where an option lives: a class of the module, the attributes used, its names' enumeration."""

    owner: str
    attributes: tuple[str, ...]
    enum: str | None = None


NUMBERS = (
    "builder_optimization_level",
    "max_aux_streams",
    "avg_timing_iterations",
    "max_num_tactics",
    "l2_limit_for_tiling",
    "DLA_core",
)
"""Options that are an integer property of the same name on `IBuilderConfig`."""

NAMES = {
    "tiling_optimization_level": "TilingOptimizationLevel",
    "profiling_verbosity": "ProfilingVerbosity",
    "hardware_compatibility_level": "HardwareCompatibilityLevel",
    "runtime_platform": "RuntimePlatform",
    "engine_capability": "EngineCapability",
    "default_device_type": "DeviceType",
}
"""Options that are a property of the same name on `IBuilderConfig`, with their enumerations."""

_CONFIG = "IBuilderConfig"

FEATURES: Mapping[str, Feature] = {
    **{name: Feature(_CONFIG, (name,)) for name in NUMBERS},
    **{name: Feature(_CONFIG, (name,), enum) for name, enum in NAMES.items()},
    "memory_pool_limits": Feature(
        _CONFIG, ("set_memory_pool_limit", "get_memory_pool_limit"), "MemoryPoolType"
    ),
    "tactic_sources": Feature(
        _CONFIG, ("set_tactic_sources", "get_tactic_sources"), "TacticSource"
    ),
    "preview_features": Feature(
        _CONFIG, ("set_preview_feature", "get_preview_feature"), "PreviewFeature"
    ),
    "compute_capabilities": Feature(
        _CONFIG,
        ("num_compute_capabilities", "set_compute_capability", "get_compute_capability"),
        "ComputeCapability",
    ),
    "flags": Feature(_CONFIG, ("set_flag", "get_flag"), "BuilderFlag"),
    "clear_flags": Feature(_CONFIG, ("clear_flag", "get_flag"), "BuilderFlag"),
    "network_flags": Feature("INetworkDefinition", ("get_flag",), "NetworkDefinitionCreationFlag"),
    "parser_flags": Feature("OnnxParser", ("set_flag", "get_flag"), "OnnxParserFlag"),
    "profiles": Feature(_CONFIG, ("add_optimization_profile",)),
    "timing_cache": Feature(
        _CONFIG, ("create_timing_cache", "set_timing_cache", "get_timing_cache")
    ),
    "plugins": Feature("IPluginRegistry", ("load_library",)),
}
"""Every build option, by its name in `BuildOptions`."""

WITHOUT_EFFECT: Mapping[LibraryName, frozenset[str]] = {
    "tensorrt": frozenset(),
    # Its timing cache calls are there and return success, but do nothing to the engine and make a
    # build without a GPU fail (NVIDIA, "Timing Cache Migration", TensorRT-RTX inference library).
    "tensorrt_rtx": frozenset({"timing_cache"}),
}
"""Options that a library has by name alone, which nothing in the library itself tells."""


def members(module: LibraryModule, enum: str) -> Mapping[str, EnumMember]:
    """Return the members of an enumeration of the library by name; none if it lacks it."""
    found: EnumClass | None = getattr(module, enum, None)
    return {} if found is None else found.__members__


def can_watch(module: LibraryModule) -> bool:
    """Whether the library tells of its progress and can be asked to stop."""
    return hasattr(module, "IProgressMonitor") and hasattr(
        getattr(module, _CONFIG, None), "progress_monitor"
    )


def detect(module: LibraryModule, backend: LibraryName) -> Capabilities:
    """Return what the library takes."""
    options = [
        name
        for name, feature in FEATURES.items()
        if name not in WITHOUT_EFFECT[backend] and _has(module, feature)
    ]
    choices = {
        name: list(members(module, enum))
        for name in options
        if (enum := FEATURES[name].enum) is not None
    }
    watched = can_watch(module)
    return Capabilities(options, choices, progress=watched, cooperative_cancel=watched)


def _has(module: LibraryModule, feature: Feature) -> bool:
    owner: object = getattr(module, feature.owner, None)
    return all(hasattr(owner, attribute) for attribute in feature.attributes) and (
        feature.enum is None or hasattr(module, feature.enum)
    )
