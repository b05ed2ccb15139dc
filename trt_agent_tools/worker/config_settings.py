"""How each build option is set on, and read from, an `IBuilderConfig`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar, cast

from trt_agent_tools.model.events import JsonValue
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.worker.features import NAMES, NUMBERS, members
from trt_agent_tools.worker.library_types import (
    ComputeCapabilityConfig,
    EnumMember,
    IBuilderConfig,
    LibraryModule,
)
from trt_agent_tools.worker.settings import Setting

_Item = TypeVar("_Item")
_Known = Mapping[str, EnumMember]


def config_settings(
    module: LibraryModule, config: IBuilderConfig, options: BuildOptions
) -> list[Setting]:
    """Return a setting for everything in `options` that is the config's.

    The options were judged before: every name in them is a member of its enumeration.
    """
    return [
        *_numbers(config, options),
        *_names(module, config, options),
        *_collections(module, config, options),
        *_flags(module, config, options),
    ]


def mask(enum_members: Iterable[EnumMember]) -> int:
    """Return the bit mask of these members, valid for this version of the library alone."""
    bits = 0
    for member in enum_members:
        bits |= 1 << int(member)
    return bits


def flag_setting(
    name: str,
    names: list[str],
    known: _Known,
    apply: Callable[[EnumMember], None],
    read: Callable[[EnumMember], bool],
) -> Setting:
    """Return a setting whose value is the names for which `read` holds after `apply`."""
    return Setting(
        name,
        names,
        lambda: _each(apply, (known[flag] for flag in names)),
        lambda: [flag for flag in names if read(known[flag])],
    )


def _numbers(config: IBuilderConfig, options: BuildOptions) -> Iterator[Setting]:
    for name in NUMBERS:
        value: int | None = getattr(options, name)
        if value is not None:
            yield Setting(
                name, value, partial(setattr, config, name, value), partial(getattr, config, name)
            )


def _names(
    module: LibraryModule, config: IBuilderConfig, options: BuildOptions
) -> Iterator[Setting]:
    for name, enum in NAMES.items():
        value: str | None = getattr(options, name)
        if value is not None:
            member = members(module, enum)[value]
            yield Setting(
                name,
                value,
                partial(setattr, config, name, member),
                partial(_name_in_effect, config, name, value, member),
            )


def _collections(
    module: LibraryModule, config: IBuilderConfig, options: BuildOptions
) -> Iterator[Setting]:
    if options.memory_pool_limits:
        pools = members(module, "MemoryPoolType")
        yield _memory_pools(config, options.memory_pool_limits, pools)
    if options.tactic_sources is not None:
        yield _tactic_sources(config, options.tactic_sources, members(module, "TacticSource"))
    if options.preview_features:
        yield flag_setting(
            "preview_features",
            options.preview_features,
            members(module, "PreviewFeature"),
            lambda feature: config.set_preview_feature(feature, True),
            config.get_preview_feature,
        )
    if options.compute_capabilities:
        yield _compute_capabilities(
            cast("ComputeCapabilityConfig", config),
            options.compute_capabilities,
            members(module, "ComputeCapability"),
        )


def _flags(
    module: LibraryModule, config: IBuilderConfig, options: BuildOptions
) -> Iterator[Setting]:
    known = members(module, "BuilderFlag")
    if options.flags:
        yield flag_setting("flags", options.flags, known, config.set_flag, config.get_flag)
    if options.clear_flags:
        yield flag_setting(
            "clear_flags",
            options.clear_flags,
            known,
            config.clear_flag,
            lambda flag: not config.get_flag(flag),
        )


def _memory_pools(config: IBuilderConfig, limits: dict[str, int], known: _Known) -> Setting:
    def apply() -> None:
        for pool, limit in limits.items():
            config.set_memory_pool_limit(known[pool], limit)

    def read() -> JsonValue:
        return {pool: config.get_memory_pool_limit(known[pool]) for pool in limits}

    return Setting("memory_pool_limits", limits, apply, read)


def _tactic_sources(config: IBuilderConfig, sources: list[str], known: _Known) -> Setting:
    def read() -> JsonValue:
        bits = config.get_tactic_sources()
        on = [name for name, member in known.items() if bits >> int(member) & 1]
        # In the order asked for, so that the same set reads as the same value.
        return sorted(on, key=lambda name: sources.index(name) if name in sources else len(sources))

    return Setting(
        "tactic_sources",
        sources,
        lambda: config.set_tactic_sources(mask(known[name] for name in sources)),
        read,
    )


def _compute_capabilities(
    config: ComputeCapabilityConfig, names: list[str], known: _Known
) -> Setting:
    def apply() -> bool:
        config.num_compute_capabilities = len(names)
        taken = [config.set_compute_capability(known[name], at) for at, name in enumerate(names)]
        return all(taken)

    def read() -> JsonValue:
        count = config.num_compute_capabilities
        return [config.get_compute_capability(at).name for at in range(count)]

    return Setting("compute_capabilities", names, apply, read)


def _name_in_effect(config: IBuilderConfig, option: str, asked: str, member: EnumMember) -> str:
    effective: EnumMember = getattr(config, option)
    # Some members have two names; the one asked for is as good as the other.
    return asked if effective == member else effective.name


def _each(action: Callable[[_Item], None], items: Iterable[_Item]) -> None:
    for item in items:
        action(item)
