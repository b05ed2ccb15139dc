"""What an agent may change about the limits of its build: tighten them, or extend them to a ceiling."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from trt_agent_tools.model.duration import format_duration, parse_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.model.verdict import Rule
from trt_agent_tools.policy.policy import (
    AnyRule,
    Mode,
    PhaseRule,
    Policy,
    Rules,
    SizeRule,
    TimeRule,
)

LIMIT_NAMES = tuple(Rules.model_fields)
EXTENDABLE = tuple(
    rule.value
    for rule in (
        Rule.GPU_TIME,
        Rule.BUILD_TIME,
        Rule.QUEUE_TIME,
        Rule.STARTUP_TIME,
        Rule.STEP_STALL,
        Rule.SILENT,
        Rule.UNATTENDED,
    )
)
"""The limits that `extend` knows: those in seconds, but for single phases."""

_ROUNDING_S = 1e-6


def tighten(policy: Policy, limits: Mapping[str, Any]) -> Policy:
    """Return `policy` with the caller's own limits, each at most what the policy allows.

    A limit that the policy does not have is added; all of them are enforced.

    Raises:
        Refusal: a name is unknown, a value is no limit, or a limit would be loosened.
    """
    unknown = [name for name in limits if name not in LIMIT_NAMES]
    if unknown:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"there is no limit {one_line(str(unknown[0]), 60)!r}",
            f"Valid limits: {', '.join(LIMIT_NAMES)}.",
            {"valid": list(LIMIT_NAMES)},
        )
    empty = [name for name, value in limits.items() if value is None]
    if empty:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"limits.{empty[0]} is null: no limit of the policy can be taken away",
            "Leave it out, or give a value.",
        )
    try:
        asked = Rules.model_validate(dict(limits))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(
            str(part) for part in first["loc"] if part not in {"limit", "str", "float"}
        )
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            one_line(f"limits.{place}: {first['msg'].removeprefix('Value error, ')}", 300),
            'Durations are seconds or text such as "15m"; sizes bytes or "16GiB".',
        ) from error
    changed: dict[str, object] = {}
    for name in limits:
        if name == Rule.PHASE_TIME.value:
            changed[name] = {
                **policy.rules.phase_time,
                **{
                    pattern: _tighter(
                        f"{name} {one_line(pattern, 200)!r}",
                        said,
                        policy.rules.phase_time.get(pattern),
                    )
                    for pattern, said in asked.phase_time.items()
                },
            }
        else:
            said = getattr(asked, name)
            changed[name] = _tighter(name, said, getattr(policy.rules, name))
    return policy.model_copy(update={"rules": policy.rules.model_copy(update=changed)})


def _tighter(name: str, asked: AnyRule, allowed: AnyRule | None) -> AnyRule:
    if allowed is None:
        return asked.model_copy(update={"mode": Mode.ENFORCE, **_ceiling(asked, None)})
    kept = {"mode": Mode.ENFORCE, "warn_at": asked.warn_at or allowed.warn_at}
    # A limit that is only observed ends nothing: any limit of the caller's own is tighter.
    if allowed.mode is Mode.ENFORCE and asked.limit > allowed.limit:
        raise Refusal(
            ErrorCode.ABOVE_CEILING,
            f"{name} is {_shown(allowed)} under this policy and can only be tightened",
            "Leave it out, give at most that, or ask for more with extend_build while it runs.",
            {"limit": allowed.limit},
        )
    return asked.model_copy(update={**kept, **_ceiling(asked, allowed)})


def _ceiling(asked: AnyRule, allowed: AnyRule | None) -> dict[str, float | None]:
    """Return the ceiling of a caller's limit: what the policy allowed is never beyond reach."""
    if not isinstance(asked, TimeRule):
        return {}
    if not isinstance(allowed, TimeRule):
        return {"ceiling": None}
    return {"ceiling": max(asked.limit, allowed.ceiling or allowed.limit)}


def extend(policy: Policy, name: str, by_s: float, *, left_s: float) -> Policy:
    """Return `policy` with the limit `name` longer by `by_s` seconds.

    `left_s` is what the session may still extend by in all.

    Raises:
        Refusal: the limit is not there or is no duration, or it would pass its ceiling or the session's.
    """
    said = getattr(policy.rules, name, None) if name in EXTENDABLE else None
    if not isinstance(said, TimeRule):
        there = [rule for rule in EXTENDABLE if getattr(policy.rules, rule) is not None]
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{one_line(name, 60)!r} is no limit of this build that can be extended",
            f"Its limits that can be: {', '.join(there) or 'none'}.",
            {"valid": there},
        )
    ceiling = said.ceiling or said.limit
    if said.limit + by_s > ceiling + _ROUNDING_S:
        raise Refusal(
            ErrorCode.ABOVE_CEILING,
            f"{name} is {_shown(said)} and may reach {format_duration(ceiling)}",
            f"Ask for at most {format_duration(max(0.0, ceiling - said.limit))} more."
            if ceiling > said.limit
            else "This policy allows no extension of it.",
            {"limit": said.limit, "ceiling": ceiling},
        )
    if by_s > left_s:
        raise Refusal(
            ErrorCode.ABOVE_CEILING,
            f"this session may extend limits by {format_duration(left_s)} more in all",
            f"Ask for at most {format_duration(left_s)}.",
            {"extension_left_s": left_s},
        )
    longer = said.model_copy(update={"limit": min(said.limit + by_s, ceiling)})
    return policy.model_copy(update={"rules": policy.rules.model_copy(update={name: longer})})


def parse_extension(value: object) -> float:
    """Return the seconds of an extension.

    Raises:
        Refusal: it is no duration, or not positive.
    """
    try:
        seconds = parse_duration(value)
    except ValueError as error:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT, f"by: {error}", 'Give seconds or text such as "15m".'
        ) from error
    if seconds <= 0:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT, "by: an extension is positive", 'Give more, such as "15m".'
        )
    return seconds


def _shown(said: AnyRule) -> str:
    if isinstance(said, PhaseRule):
        return format_duration(said.limit)
    return f"{said.limit} bytes" if isinstance(said, SizeRule) else f"{said.limit:g}"
