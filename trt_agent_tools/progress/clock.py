"""Times and spans of a build, in seconds since it was accepted."""

import math
from dataclasses import dataclass

from trt_agent_tools.model.duration import MAX_S
from trt_agent_tools.progress.view import BuildView


def usable(at: float, latest: float) -> float:
    """Return `at` where it can be a build's time, within [0, `MAX_S`].

    A negative time is the start; one that is no number or is absurd says nothing, so that `latest`,
    a time known before, stands for it.
    """
    if 0.0 <= at <= MAX_S:
        return at
    return 0.0 if at < 0.0 else latest


def finite(value: float, limit: float) -> float:
    """Return `value` within [0, `limit`]; what is no number is 0."""
    return 0.0 if math.isnan(value) else min(max(value, 0.0), limit)


@dataclass(frozen=True, slots=True)
class Spans:
    """How long a build has been where. None is negative; none moves after the end.

    `until` is the moment to which they run: now, or the end.
    """

    until: float
    elapsed_s: float
    queue_s: float
    gpu_s: float | None
    quiet_s: float | None


def spans(view: BuildView, now: float) -> Spans:
    """Return the spans of `view` at `now`, on the clock of its events."""
    life = view.life
    until = usable(now, view.latest) if life.ended_at is None else life.ended_at
    started = life.started_at
    return Spans(
        until=until,
        elapsed_s=until,
        queue_s=until if started is None else started,
        gpu_s=None if started is None else max(0.0, until - started),
        quiet_s=_quiet(view, until),
    )


def _quiet(view: BuildView, until: float) -> float | None:
    # A builder that has returned makes no callbacks: its silence says nothing about the build.
    if (
        view.last_callback is None
        or view.life.ended_at is not None
        or view.phases.builder_has_returned
    ):
        return None
    return max(0.0, until - view.last_callback)
