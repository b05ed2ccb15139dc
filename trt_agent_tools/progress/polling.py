"""When another look at a build is worth it."""

from trt_agent_tools.model.states import LIVE, State
from trt_agent_tools.progress.clock import Spans

QUEUED_MS = 2000
"""A place in the queue moves when another build ends, which nobody can tell."""

SHORTEST_MS = 1000
LONGEST_MS = 60_000

_SHARE = 0.5
_ROUND_MS = 500


def poll_after_ms(state: State, spans: Spans) -> int | None:
    """Return in how many milliseconds to look again; None after the end.

    Half as long as the build has run by now, within [`SHORTEST_MS`, `LONGEST_MS`]: so that the end is
    seen after at most one and a half times the build's length, with few looks, however long it is.
    An end that was asked for is near.
    """
    if state not in LIVE:
        return None
    if state is State.QUEUED:
        return QUEUED_MS
    if state is State.CANCELLING:
        return SHORTEST_MS
    run_ms = 1000.0 * (spans.elapsed_s if spans.gpu_s is None else spans.gpu_s)
    rounded = round(_SHARE * run_ms / _ROUND_MS) * _ROUND_MS
    return min(max(rounded, SHORTEST_MS), LONGEST_MS)
