"""When another look at a build is worth it."""

from trt_agent_tools.model.states import LIVE, State
from trt_agent_tools.progress.clock import Spans

CANCELLING_MS = 1000
"""An end that was asked for is near."""

SHORTEST_MS = 2000

LONGEST_MS = 120_000
LONGEST_SILENT_MS = 180_000

SILENT_S = 2.0
"""So long without a callback, a build is inside a step that nobody can see into."""

_SHARE = 1.0
_SILENT_SHARE = 1.5
_ROUND_MS = 500


def poll_after_ms(state: State, spans: Spans) -> int | None:
    """Return in how many milliseconds to look again; None after the end.

    As long as the build has run by now, or half as long again inside a silent step: most builds end soon
    or take long. Within [`SHORTEST_MS`, `LONGEST_MS`], or `LONGEST_SILENT_MS` in a silent step. Who
    follows it looks at a build of ten minutes at most 11 times, whatever its phases do.
    """
    if state not in LIVE:
        return None
    if state is State.CANCELLING:
        return CANCELLING_MS
    silent = spans.quiet_s is not None and spans.quiet_s >= SILENT_S
    share, longest = (_SILENT_SHARE, LONGEST_SILENT_MS) if silent else (_SHARE, LONGEST_MS)
    run_ms = 1000.0 * (spans.elapsed_s if spans.gpu_s is None else spans.gpu_s)
    rounded = round(share * run_ms / _ROUND_MS) * _ROUND_MS
    return min(max(rounded, SHORTEST_MS), longest)
