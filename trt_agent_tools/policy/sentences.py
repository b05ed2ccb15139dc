"""What is told of a rule: the sentence that an agent acts on, the evidence, and what is used."""

import math

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.verdict import Level, LimitUse, Rule
from trt_agent_tools.policy.observation import Observation
from trt_agent_tools.policy.policy import AnyRule, Mode, PhaseRule, SizeRule, TimeRule
from trt_agent_tools.progress.place import shorten

_MAX_PHASE = 300
_MAX_LOG = 200


_WHAT = {
    Rule.GPU_BUDGET: "the session has used {used} of its {limit} GPU time",
    Rule.GPU_TIME: "the build has held its device for {used} of at most {limit}",
    Rule.BUILD_TIME: "the build has run for {used} of at most {limit}",
    Rule.QUEUE_TIME: "the build has waited for a device for {used} of at most {limit}",
    Rule.STARTUP_TIME: "TensorRT has not begun after {used} of at most {limit}",
    Rule.SILENT: "no callback for {used} of at most {limit}, whether or not the builder is busy",
    Rule.PHASE_TIME: "phase {phase} has run for {used} of at most {limit}",
    Rule.PROJECTED_OVERRUN: "past builds let expect {used} times build_time, at most {limit} allowed",
    Rule.UNATTENDED: "nobody has asked about the build for {used} of at most {limit}",
    Rule.HOST_MEMORY: "the build's processes hold {used} of at most {limit} host memory",
    Rule.GPU_MEMORY: "the build's processes hold {used} of at most {limit} GPU memory",
}
_EXCEEDED_ADVICE = {
    Rule.GPU_BUDGET: "open_session with more GPU time, or build with a lower optimization level",
    Rule.GPU_TIME: "start again with a lower builder_optimization_level, or under a longer limit",
    Rule.BUILD_TIME: "start again with a lower builder_optimization_level, or under a longer limit",
    Rule.QUEUE_TIME: "start it again when fewer builds wait",
    Rule.STARTUP_TIME: "check that the model's storage and the library load at all",
    Rule.STEP_STALL: "start it again; if it hangs in the same phase, change the options or the model",
    Rule.SILENT: "silence alone is no fault: allow more of it if the CPU was busy",
    Rule.PHASE_TIME: "a lower builder_optimization_level shortens tactic timing",
    Rule.PROJECTED_OVERRUN: "start again with a longer build_time or a lower optimization level",
    Rule.UNATTENDED: "call get_progress now and then while a build runs",
    Rule.HOST_MEMORY: "use a smaller model or profile, or a host with more memory",
    Rule.GPU_MEMORY: "limit the workspace with memory_pool_limits, or use smaller profiles",
}

_WARNED_ADVICE = {
    Rule.GPU_BUDGET: "at the limit its builds are ended; open_session gives the next ones a budget",
}


def sentence(
    rule: Rule,
    said: AnyRule,
    used: float,
    seen: Observation,
    *,
    level: Level,
    phase: str | None = None,
) -> str:
    """Return what is found, with its values, and the advice for its level.

    Names and log lines in it come from the model and the library, cleaned and shortened.
    """
    shown, limit = _value(said, used), _value(said, said.limit)
    if rule is Rule.STEP_STALL:
        what = f"no callback and no CPU or GPU use for {shown} of at most {limit}"
        if level is Level.EXCEEDED:
            what = f"no callback and no CPU or GPU use for {shown}: the builder is hung"
            what += f"; last phase {shorten(seen.current or 'none', _MAX_PHASE)}"
            if seen.last_log:
                what += f", last warning {shorten(seen.last_log, _MAX_LOG)!r}"
    else:
        shown_phase = shorten(phase or "", _MAX_PHASE)
        what = _WHAT[rule].format(used=shown, limit=limit, phase=shown_phase)
    if said.mode is Mode.OBSERVE:
        what += " (only observed)"
    if level is Level.EXCEEDED:
        return f"{what}; {_EXCEEDED_ADVICE[rule]}"
    if rule in _WARNED_ADVICE:
        return f"{what}; {_WARNED_ADVICE[rule]}"
    if said.mode is Mode.ENFORCE and isinstance(said, TimeRule):
        ceiling = said.ceiling or said.limit
        if ceiling > said.limit:
            return f"{what}; extend_build can raise {rule.value} to {format_duration(ceiling)}"
    return what


def evidence(rule: Rule, used: float, seen: Observation) -> dict[str, float]:
    """Return the measured values that a verdict rests on, by name."""
    if rule is Rule.STEP_STALL or rule is Rule.SILENT:
        values = {rule.value: used, "quiet_s": seen.quiet_s, "inactive_s": seen.inactive_s}
    elif rule is Rule.PROJECTED_OVERRUN:
        values = {rule.value: used, "projected_s": seen.projected_s, "held_s": seen.held_s}
    else:
        return {rule.value: round(used, 3)}
    return {
        name: round(value, 3)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }


def limit_use(
    rule: Rule, said: AnyRule, used: float, level: Level, pattern: str | None
) -> LimitUse:
    """Return what a snapshot shows of a limit."""
    observed_only = True if said.mode is Mode.OBSERVE else None
    if isinstance(said, PhaseRule):
        return LimitUse(
            rule,
            level,
            limit_s=round(said.limit, 1),
            used_s=round(used, 1),
            ceiling_s=_ceiling(said),
            phase=pattern,
            observed_only=observed_only,
        )
    if isinstance(said, SizeRule):
        return LimitUse(
            rule,
            level,
            limit_bytes=said.limit,
            used_bytes=int(used),
            observed_only=observed_only,
        )
    return LimitUse(
        rule,
        level,
        limit_ratio=said.limit,
        used_ratio=round(used, 2),
        observed_only=observed_only,
    )


def _ceiling(said: PhaseRule) -> float | None:
    """Return what the limit may be raised to; None where it cannot be."""
    if not isinstance(said, TimeRule) or said.ceiling is None or said.ceiling <= said.limit:
        return None
    return round(said.ceiling, 1)


def _value(said: AnyRule, value: float) -> str:
    if isinstance(said, PhaseRule):
        return format_duration(value)
    if isinstance(said, SizeRule):
        return f"{value / 2**30:.2f} GiB"
    return f"{value:.2f}"
