"""Judges build options against a library, and has them set and read back."""

import difflib
from collections.abc import Sequence

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import Capabilities
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.worker.config_settings import config_settings, flag_setting, mask
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.features import FEATURES, members
from trt_agent_tools.worker.library import Library
from trt_agent_tools.worker.library_types import (
    Builder,
    EnumMember,
    IBuilderConfig,
    INetworkDefinition,
    OnnxParser,
)
from trt_agent_tools.worker.settings import LastLog, Report, carry_out, not_taken

_STRONGLY_TYPED = (
    "Networks are strongly typed here: precision comes from the model, so export or convert it in "
    "the precision that you want."
)
_GONE = {
    "FP16": _STRONGLY_TYPED,
    "BF16": _STRONGLY_TYPED,
    "INT8": _STRONGLY_TYPED,
    "FP8": _STRONGLY_TYPED,
    "INT4": _STRONGLY_TYPED,
    "FP4": _STRONGLY_TYPED,
    "OBEY_PRECISION_CONSTRAINTS": _STRONGLY_TYPED,
    "PREFER_PRECISION_CONSTRAINTS": _STRONGLY_TYPED,
    "EXPLICIT_BATCH": "Every network has an explicit batch dimension.",
}
"""Names that older versions had and that are still asked for, with what to know instead."""


def check_options(capabilities: Capabilities, options: BuildOptions) -> None:
    """Judge what can be judged before anything is built.

    Raises:
        BuildFault: UNSUPPORTED_OPTION, the library lacks an option; UNKNOWN_OPTION, a name is not
            among an option's; INVALID_ARGUMENT, a flag is to be both set and cleared.
    """
    # What is not in the table, such as `overwrite`, is this project's own and needs no library.
    asked = [name for name in options.model_dump(exclude_defaults=True) if name in FEATURES]
    lacking = [name for name in asked if name not in capabilities.options]
    if lacking:
        raise BuildFault(
            ErrorCode.UNSUPPORTED_OPTION,
            f"this library does not have: {', '.join(lacking)}",
            "Leave it out, or build with a library that has it; the details list what this one has.",
            {"lacking": lacking, "options": capabilities.options},
        )
    for name, names in _names_in(options).items():
        _check_names(name, names, capabilities.choices.get(name, []))
    both = sorted(set(options.flags) & set(options.clear_flags))
    if both:
        raise BuildFault(
            ErrorCode.INVALID_ARGUMENT,
            f"both in flags and in clear_flags: {', '.join(both)}",
            "Name a flag in one of the two.",
            {"names": both},
        )


def apply_options(
    library: Library,
    config: IBuilderConfig,
    options: BuildOptions,
    report: Report,
    last_log: LastLog | None = None,
) -> None:
    """Set on `config` what is the config's of `options`, read each back, and report it.

    Network flags, parser flags, profiles, the timing cache and plugins are not set here, but judged.

    Raises:
        BuildFault: as `check_options`; UNSUPPORTED_OPTION if what is read back differs, with the
            library's last log line in the hint.
    """
    check_options(library.capabilities(), options)
    settings = config_settings(library.module, config, options)
    carry_out(library.backend, settings, report, last_log)


def network_flags_mask(library: Library, names: Sequence[str]) -> int:
    """Return the mask that `Builder.create_network` takes for these flags, in this version alone.

    Raises:
        BuildFault: UNKNOWN_OPTION.
    """
    known = members(library.module, "NetworkDefinitionCreationFlag")
    _check_names("network_flags", names, list(known))
    return mask(known[name] for name in names)


def create_network(
    library: Library,
    builder: Builder,
    names: list[str],
    report: Report,
    last_log: LastLog | None = None,
) -> INetworkDefinition:
    """Return an empty network made with the flags `names`, which are read back and reported.

    Raises:
        BuildFault: UNKNOWN_OPTION; UNSUPPORTED_OPTION if a flag was not taken.
    """
    network = builder.create_network(network_flags_mask(library, names))
    if network is None:
        words = last_log() if last_log else None
        raise not_taken(library.backend, [f"network_flags: asked for {', '.join(names)}"], words)
    if names:
        known = members(library.module, "NetworkDefinitionCreationFlag")
        setting = flag_setting("network_flags", names, known, _set_already, network.get_flag)
        carry_out(library.backend, [setting], report, last_log)
    return network


def set_parser_flags(
    library: Library,
    parser: OnnxParser,
    names: list[str],
    report: Report,
    last_log: LastLog | None = None,
) -> None:
    """Turn the parser's flags `names` on, read them back and report them.

    Raises:
        BuildFault: UNKNOWN_OPTION; UNSUPPORTED_OPTION if a flag was not taken.
    """
    known = members(library.module, "OnnxParserFlag")
    _check_names("parser_flags", names, list(known))
    if names:
        setting = flag_setting("parser_flags", names, known, parser.set_flag, parser.get_flag)
        carry_out(library.backend, [setting], report, last_log)


def _set_already(flag: EnumMember) -> None:
    """Do nothing: a network's flags are set when it is made."""


def _names_in(options: BuildOptions) -> dict[str, list[str]]:
    """Return the names that each option gives from one of the library's enumerations."""
    found: dict[str, list[str]] = {}
    for option, feature in FEATURES.items():
        if feature.enum is None:
            continue
        value: str | list[str] | dict[str, int] | None = getattr(options, option)
        if value:
            found[option] = [value] if isinstance(value, str) else list(value)
    return found


def _check_names(option: str, names: Sequence[str], valid: list[str]) -> None:
    unknown = [name for name in names if name not in valid]
    if not unknown:
        return
    advice = [_GONE[name.upper()] for name in unknown if name.upper() in _GONE]
    for name in unknown:
        near = difflib.get_close_matches(name.upper(), valid, n=1)
        if near and name.upper() not in _GONE:
            advice.append(f"Did you mean {near[0]}?")
    raise BuildFault(
        ErrorCode.UNKNOWN_OPTION,
        f"{option}: this library has no {', '.join(unknown)}",
        " ".join([*dict.fromkeys(advice), f"Valid are: {', '.join(valid) or 'none'}."]),
        {"option": option, "unknown": unknown, "valid": valid},
    )
