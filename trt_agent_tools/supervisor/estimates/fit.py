"""Holds a new build against what is left of its session's GPU time, by what past builds took."""

from collections.abc import Iterable

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.progress.past import Estimate
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.sessions import OpenSession

NO_BASIS = (
    "No past build tells how long this one takes: it was started although its session's policy has "
    "require_fit."
)


def check_fit(
    session: OpenSession, estimate: Estimate | None, live: Iterable[Build], now: float
) -> str | None:
    """Judge whether a build can be expected to end within what is left; return what is to be noted.

    What the session's other builds are expected to use still is set aside for them. `live` are all
    builds that wait or run. Where the policy does not ask for it, or there is no limit, all builds fit.

    Raises:
        Refusal: it cannot be.
    """
    left = session.account.left_s(now)
    if left is None or not session.policy.session.require_fit:
        return None
    if estimate is None:
        return NO_BASIS
    promised = sum(_still(build) for build in live if build.session is session)
    if estimate.total_s <= left - promised:
        return None
    taken = f", and {format_duration(promised)} of it go to its other builds" if promised else ""
    raise Refusal(
        ErrorCode.BUDGET_EXHAUSTED,
        f"the build is expected to take about {format_duration(estimate.total_s)}; session "
        f"{session.session_id} has {format_duration(left)} of GPU time left{taken}",
        "Start it in a session with more GPU time (open_session), or with options that build faster.",
        {
            "expected_s": round(estimate.total_s, 1),
            "low_s": round(estimate.low_s, 1),
            "high_s": round(estimate.high_s, 1),
            "left_s": round(left, 1),
            "promised_s": round(promised, 1),
        },
    )


def _still(build: Build) -> float:
    """Return how much GPU time a live build is expected to use from now on; 0 where nothing tells."""
    if build.estimate is None:
        return 0.0
    started = build.view.started_at
    held = 0.0 if started is None else build.now() - started
    return max(0.0, build.estimate.total_s - held)
