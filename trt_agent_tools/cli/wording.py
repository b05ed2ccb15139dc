"""Limits, verdicts and hints in the command line's words: the service's own name tools of an agent."""

import re

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.verdict import Action, LimitUse, Rule, Verdict

_HINTS = {
    ErrorCode.OUTPUT_EXISTS: "Name another --output, or add --overwrite.",
    ErrorCode.MISSING_PROFILE: "Give each of these inputs a --profile INPUT=MIN:OPT:MAX, such as "
    "--profile x=1x3x224x224:4x3x224x224:8x3x224x224.",
    ErrorCode.BUILDER_ERROR: "The lines of the log above tell what came before.",
    ErrorCode.WORKER_CRASHED: "The log above has what it printed last, if anything; another try uses "
    "a fresh process.",
    ErrorCode.ABOVE_CEILING: "A --limit can only be tighter than the policy's: give at most that, "
    "leave it out, or choose another --policy.",
    ErrorCode.BUDGET_EXHAUSTED: "Give a smaller --limit gpu_time=..., or choose a --policy that allows "
    "more GPU time.",
    ErrorCode.TOO_LATE: "Start the build again.",
    ErrorCode.UNKNOWN_SESSION: "Leave --session out to see the builds of all sessions.",
}
_OPTIONS = re.compile(r'options \{"(\w+)": (.*)\}')
"""How a hint names a build option as an argument of a tool."""

_TOOLS = re.compile(
    r"\b(?:start_build|get_progress|cancel_build|extend_build|list_builds|get_log|open_session"
    r"|get_session|inspect_model)\b"
)
_CLAUSES = "; "
_MORE_GPU_TIME = "choose a --policy that allows more GPU time"


def hint(error: ErrorInfo) -> str:
    """Return what a person at a terminal can do about `error`; empty if nothing is known."""
    told = _HINTS.get(error.code) or _OPTIONS.sub(r"--option \1='\2'", error.hint)
    return told.replace("list_builds", "`trt-agent-tools list`")


def without_tools(text: str) -> str:
    """Return `text` without the clauses that tell an agent to call a tool; the first one stays."""
    first, *others = text.split(_CLAUSES)
    return _CLAUSES.join([first, *(clause for clause in others if not _TOOLS.search(clause))])


def finding(verdict: Verdict) -> str:
    """Return what the verdict's rule found, with its values, and what can be done at a terminal."""
    text = without_tools(verdict.message)
    if verdict.rule is Rule.GPU_BUDGET and verdict.action is Action.CANCEL:
        text += _CLAUSES + _MORE_GPU_TIME
    return text


def verdict_text(verdict: Verdict) -> str:
    """Return the verdict's rule and its finding."""
    return f"{verdict.rule.value}: {finding(verdict)}"


def stop_text(final: Snapshot) -> str:
    """Return which policy ended the build, by which rule, and on what evidence."""
    ending = (v for v in reversed(final.verdicts or []) if v.action is Action.CANCEL)
    verdict = next(ending, None)
    why = verdict_text(verdict) if verdict else (final.reason.value if final.reason else "unknown")
    return f"stopped by policy {final.policy}: {why}"


def limit_text(use: LimitUse) -> str:
    """Return how much of a limit is used, such as "build_time 2.5s of 3.0s"."""
    name = use.rule.value + (f" {use.phase}" if use.phase else "")
    end = " (only observed)" if use.observed_only else ""
    if use.used_s is not None and use.limit_s is not None:
        values = f"{format_duration(use.used_s)} of {format_duration(use.limit_s)}"
    elif use.used_bytes is not None and use.limit_bytes is not None:
        values = f"{use.used_bytes / 2**30:.2f} of {use.limit_bytes / 2**30:.2f} GiB"
    else:
        values = f"{use.used_ratio} of {use.limit_ratio}"
    return f"{name} {values}{end}"
