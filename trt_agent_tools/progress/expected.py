"""How far a build is by the time that builds like it took."""

import math

from trt_agent_tools.model.snapshot import Basis, Progress
from trt_agent_tools.model.states import State
from trt_agent_tools.progress.clock import finite, spans
from trt_agent_tools.progress.fraction import MOST_BEFORE_SUCCESS
from trt_agent_tools.progress.past import Estimate
from trt_agent_tools.progress.timeline import position
from trt_agent_tools.progress.view import BuildView

SHORTEST_ETA_S = 0.1
"""A build that works is never said to end at once."""

_LEAST_SHARE = 0.03
_SLOWEST = 2.0
_SLOW_TO_BELIEVE = 0.25
"""The share of a build after which a host that is slower or faster than before is half believed."""
_SLOWER_TO_BELIEVE = 1.0
"""Likewise by phases of another model, stretched: its start takes as long whatever the size."""
_DIGITS = 5
"""A second of a day shows."""


def expected(estimate: Estimate, view: BuildView, now: float, floor: float) -> Progress:
    """Return how far the build is at `now`, and how long it still takes, by `estimate`.

    The fraction is the share of the time: elapsed / (elapsed + eta) since it got its device. It is never
    below `floor`, what was shown before, never above 0.99 before success, and moves within a
    silent step too. At success it is 1; a build that ended otherwise keeps what it had reached.

    There is an eta while the build works (starting, building) alone: how long a queue takes is not
    known, and a build that was asked to end is not awaited. It is what came after this point of the
    past build, at the speed that this one has shown so far; one that takes longer than expected has
    what came after its running phase still to come. Bounds are those of the estimate for that part. An
    eta that is used up stays at a small share of the build, while its upper bound widens by as much as
    the build is late.
    """
    if view.state is State.SUCCEEDED:
        return Progress(basis=Basis.HISTORY, fraction=1.0, builds=estimate.builds)
    reached = finite(floor, MOST_BEFORE_SUCCESS)
    elapsed = spans(view, now).gpu_s
    if elapsed is None:
        return Progress(basis=Basis.HISTORY, fraction=reached, builds=estimate.builds)
    eta, low, high = _left(estimate, view, elapsed)
    share = round(elapsed / (elapsed + eta), _DIGITS)
    works = view.state in {State.STARTING, State.BUILDING}
    return Progress(
        basis=Basis.HISTORY,
        fraction=min(max(reached, share), MOST_BEFORE_SUCCESS),
        eta_s=round(eta, 1) if works else None,
        eta_low_s=round(low, 1) if works else None,
        eta_high_s=round(high, 1) if works else None,
        builds=estimate.builds,
    )


def _left(estimate: Estimate, view: BuildView, elapsed: float) -> tuple[float, float, float]:
    """Return how many seconds are left, and their bounds.

    As time goes by and nothing else happens, what is left falls in proportion to what has elapsed:
    that is what lets the fraction rise.
    """
    total = estimate.total_s
    at = position(view, estimate.spans, total)
    believed = total * (_SLOW_TO_BELIEVE if estimate.same else _SLOWER_TO_BELIEVE)
    speed = (at.now_s + believed) / (at.past_s + believed)
    speed = min(max(speed, 1 / _SLOWEST), _SLOWEST)
    ahead = max(0.0, total - at.past_s) * speed
    since = max(0.0, elapsed - at.now_s)
    after = at.after_s * speed
    # The root lets it grow with a late build, and yet fall in proportion to it.
    least = after + max(SHORTEST_ETA_S, _LEAST_SHARE * math.sqrt(total * max(total, elapsed)))
    soonest, latest = estimate.low_s / total, estimate.high_s / total
    eta = max(ahead - since, least)
    late = max(0.0, least - (ahead - since))
    low = max(ahead * soonest - since, after * soonest, 0.0)
    high = max(ahead * latest - since, least * latest + late)
    return eta, min(low, eta), max(high, eta)
