"""From the words of a command line to a build request."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import LimitValue, StartRequest
from trt_agent_tools.model.verdict import Rule

_SHAPE = re.compile(r"\d+(?:x\d+)*")
_PROFILE_HINT = (
    "write a profile as INPUT=MIN:OPT:MAX, such as x=1x3x224x224:4x3x224x224:8x3x224x224"
)
_OF_PHASE = f"{Rule.PHASE_TIME.value}:"
_LIMIT_HINT = (
    "write a limit as RULE=VALUE, such as build_time=20m or host_memory=16GiB, and one of a phase as "
    "'phase_time:Timing tactics=20m'"
)


def make_request(
    model: Path,
    *,
    output: Path | None = None,
    backend: str = "auto",
    options: Sequence[str] = (),
    profiles: Sequence[str] = (),
    options_file: Path | None = None,
    limits: Sequence[str] = (),
    overwrite: bool = False,
    reuse: bool = True,
    label: str | None = None,
) -> StartRequest:
    """Return the request that the arguments of `build` mean; its paths are absolute.

    `options` are NAME=VALUE and win over the file's; `profiles` are INPUT=MIN:OPT:MAX and make one
    optimization profile together, in place of any other; `limits` are RULE=VALUE, or for one phase
    phase_time:PATTERN=VALUE.

    Raises:
        Refusal: an argument is not understood; nothing about the model was looked at yet.
    """
    asked = _read_options(options_file) if options_file else {}
    for text in options:
        name, value = _parse_option(text)
        asked[name] = value
    if profiles:
        asked["profiles"] = [_parse_profile(profiles)]
    if overwrite:
        asked["overwrite"] = True
    if not reuse:
        asked["reuse"] = "off"
    try:
        valid = BuildOptions.model_validate(asked)
        return StartRequest.model_validate(
            {
                "model": _absolute(model),
                "output": _absolute(output) if output else None,
                "backend": backend,
                "options": _with_absolute_paths(valid),
                "limits": _parse_limits(limits),
                "label": label,
            }
        )
    except ValidationError as error:
        raise _refusal(error) from error


def folders_of(request: StartRequest) -> tuple[Path, ...]:
    """Return the folders that `request` names: of the model, the output and the timing cache.

    Both a path's own folder and the one that its symbolic links lead to.
    """
    named = [request.model, request.output, request.options.timing_cache]
    paths = [Path(text).absolute() for text in named if text]
    folders = [folder for path in paths for folder in (path.parent, path.resolve().parent)]
    return tuple(dict.fromkeys(folders))


def _absolute(path: Path) -> str:
    return str(path.expanduser().absolute())


def _with_absolute_paths(options: BuildOptions) -> BuildOptions:
    # A server takes relative paths from its first root; a person means the current folder.
    cache = options.timing_cache
    if cache is not None:
        # A path does not keep the end that says that a folder is meant.
        cache = _absolute(Path(cache)) + ("/" if cache.endswith("/") else "")
    plugins = [_absolute(Path(plugin)) for plugin in options.plugins]
    return options.model_copy(update={"timing_cache": cache, "plugins": plugins})


def _read_options(path: Path) -> dict[str, object]:
    try:
        content: object = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"--options-file {path}: {error}",
            "give a file that holds one JSON object of build options",
        ) from error
    if not isinstance(content, dict):
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"--options-file {path}: holds no JSON object",
            'write it as {"builder_optimization_level": 2, "flags": ["TF32"]}',
        )
    return content


def _parse_option(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"--option {text!r} is not NAME=VALUE",
            "such as --option builder_optimization_level=2",
        )
    try:
        parsed: object = json.loads(value)
    except ValueError:
        return name, value
    return name, parsed


def _parse_profile(texts: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    profile: dict[str, dict[str, list[int]]] = {}
    for text in texts:
        # The last one: a tensor's name may hold any character.
        name, _, ranges = text.rpartition("=")
        shapes = ranges.split(":")
        if not name or len(shapes) != 3 or not all(map(_SHAPE.fullmatch, shapes)):  # noqa: PLR2004  (min, opt, max)
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT, f"--profile {text!r} is not understood", _PROFILE_HINT
            )
        if name in profile:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT, f"--profile names {name!r} twice", _PROFILE_HINT
            )
        low, best, high = ([int(size) for size in shape.split("x")] for shape in shapes)
        profile[name] = {"min": low, "opt": best, "max": high}
    return profile


def _parse_limits(texts: Sequence[str]) -> dict[str, LimitValue]:
    limits: dict[str, LimitValue] = {}
    phases: dict[str, str | int | float] = {}
    for text in texts:
        # The last one: a phase's name may hold any character, and no value holds this one.
        name, _, value = text.rpartition("=")
        pattern = name.removeprefix(_OF_PHASE) if name.startswith(_OF_PHASE) else None
        if not (name and value.strip()) or pattern == "":
            raise _bad_limit(text, "is not RULE=VALUE")
        if name == Rule.PHASE_TIME.value:
            raise _bad_limit(text, "names no phase")
        if name in limits or pattern in phases:
            raise _bad_limit(text, "is the second one of its rule")
        if pattern is None:
            limits[name] = _number_or_text(value)
        else:
            phases[pattern] = _number_or_text(value)
    return {**limits, Rule.PHASE_TIME.value: phases} if phases else limits


def _bad_limit(text: str, what: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_ARGUMENT, f"--limit {text!r} {what}", _LIMIT_HINT)


def _number_or_text(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _refusal(error: ValidationError) -> Refusal:
    first = error.errors(include_url=False)[0]
    where = [str(part) for part in first["loc"]]
    message = f"{'.'.join(where)}: {first['msg']}"
    if error.title != BuildOptions.__name__:
        return Refusal(ErrorCode.INVALID_ARGUMENT, message, "Correct it; see build --help.")
    if first["type"] == "extra_forbidden":
        valid = sorted(BuildOptions.model_fields)
        return Refusal(
            ErrorCode.UNKNOWN_OPTION,
            f"unknown option {where[-1]!r}",
            f"valid options: {', '.join(valid)}",
            {"valid": valid},
        )
    code = ErrorCode.INVALID_PROFILE if "profiles" in where else ErrorCode.INVALID_ARGUMENT
    return Refusal(code, message, "lists are written in JSON, such as flags='[\"TF32\"]'")
