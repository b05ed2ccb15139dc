"""A replayed policy as lines of text: what it would have found, and what it would have done."""

from collections.abc import Iterator

from pydantic import TypeAdapter

from trt_agent_tools.cli.wording import finding
from trt_agent_tools.model.duration import format_duration, parse_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import Outcome
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.policy.replay import RecordedEnd, Timeline

SHORTEST_INTERVAL_S = 0.001
"""A shorter interval tells nothing more: recorded times are no finer."""

_ENDS = {
    Outcome.SUCCEEDED: "succeeded",
    Outcome.FAILED: "failed",
    Outcome.CANCELLED: "was cancelled",
}


def interval_s(text: str) -> float:
    """Return the seconds that `text`, a whole number or a duration, means as an interval.

    Raises:
        Refusal: it is no duration, or shorter than a millisecond.
    """
    try:
        seconds = parse_duration(float(text) if text.isdecimal() else text)
    except ValueError as error:
        raise _bad_interval(str(error)) from error
    if seconds < SHORTEST_INTERVAL_S:
        raise _bad_interval("an interval is a millisecond at least")
    return seconds


def _bad_interval(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_ARGUMENT, f"--interval: {why}", "such as --interval 250ms")


def as_json_text(timeline: Timeline) -> str:
    """Return the whole timeline as one JSON object on one line."""
    return TypeAdapter(Timeline).dump_json(timeline, exclude_none=True).decode()


def timeline_lines(timeline: Timeline) -> Iterator[str]:
    """Yield a line for each verdict (time, rule, action, finding), then what it comes to."""
    verdicts = timeline.verdicts
    rules = max((len(verdict.rule.value) for verdict in verdicts), default=0)
    actions = max((len(verdict.action.value) for verdict in verdicts), default=0)
    for verdict in verdicts:
        rule, action = verdict.rule.value, verdict.action.value
        at = format_duration(verdict.at_s)
        yield f"{at:>8}  {rule:<{rules}}  {action:<{actions}}  {one_line(finding(verdict))}"
    for unknown in timeline.not_known:
        yield f"not known: {unknown.rule.value}, because {unknown.why}"
    recorded = _recorded(timeline.recorded)
    if timeline.ended is None:
        yield f"would not have been cancelled; {recorded}"
    else:
        at = format_duration(timeline.ended.at_s)
        yield f"would have been cancelled at {at} by {timeline.ended.rule.value}; {recorded}"


def _recorded(end: RecordedEnd) -> str:
    at = format_duration(end.at_s)
    if end.outcome is None:
        return f"the recording stops at {at} without an end"
    return f"the recording {_ENDS[end.outcome]} at {at}"
