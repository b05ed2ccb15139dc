"""What the rules look at: a build's clocks and measures at one moment, taken from its view."""

from dataclasses import dataclass

from trt_agent_tools.model.snapshot import Basis, Progress
from trt_agent_tools.model.states import State
from trt_agent_tools.progress.clock import spans
from trt_agent_tools.progress.view import BuildView

SAMPLE_FRESH_S = 5.0
"""Activity that was sampled longer ago is not known: no rule acts on it."""


@dataclass(frozen=True, slots=True)
class RunningPhase:
    """A phase that runs: the names from the top down to its own, and how long it has run."""

    path: tuple[str, ...]
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """A build at one moment. Seconds and bytes; None is what does not apply or is not known.

    `held_s` counts from getting the device, `startup_s` while TensorRT has not begun, `quiet_s` since
    TensorRT's last callback, `inactive_s` since the last sign of any kind: a phase, a step, a callback
    or a use of CPU or GPU. Once the builder has returned neither silence means anything: what is left
    is writing the engine, and a slow disk uses no CPU.
    """

    at: float
    seq: int
    state: State
    queue_s: float | None = None
    held_s: float | None = None
    startup_s: float | None = None
    quiet_s: float | None = None
    inactive_s: float | None = None
    unattended_s: float | None = None
    projected_s: float | None = None
    rss_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    phases: tuple[RunningPhase, ...] = ()
    """Every phase that runs, parents before their children."""
    current: str | None = None
    last_log: str | None = None


def observe(
    view: BuildView,
    now: float,
    *,
    attended_at: float = 0.0,
    watched_since: float = 0.0,
    estimate: Progress | None = None,
) -> Observation:
    """Return what is known of a build at `now`, in seconds since it was accepted.

    `attended_at` is when somebody last asked about it. Silence before `watched_since` does not count: the
    supervisor itself was stopped then and can have missed what happened. `estimate` is what past
    builds let expect, without which nothing is projected.
    """
    state = view.state
    at = spans(view, now)
    now, since = at.until, watched_since
    if state is State.QUEUED:
        return Observation(
            at=at.until,
            seq=view.seq,
            state=state,
            queue_s=at.queue_s,
            unattended_s=max(0.0, now - max(0.0, attended_at, since)),
        )
    if state not in {State.STARTING, State.BUILDING}:
        return Observation(at=at.until, seq=view.seq, state=state)
    held, called = at.gpu_s, view.last_callback
    sample = view.sample
    activity = sample.activity if sample and now - sample.at <= SAMPLE_FRESH_S else None
    tree = view.phases
    at_work = not tree.builder_has_returned
    quiet = inactive = None
    if at_work and state is State.BUILDING and called is not None:
        quiet = max(0.0, now - max(called, since))
    if at_work and activity and held is not None:
        signs = max(view.last_sign, view.last_busy, called or 0.0, since)
        inactive = min(held, max(0.0, now - signs))
    names: dict[int, tuple[str, ...]] = {}
    phases: list[RunningPhase] = []
    path: tuple[str, ...] = ()
    for node in tree.running.values():
        above = names.get(node.parent, ()) if node.parent is not None else ()
        names[node.instance] = path = (*above, node.name)
        phases.append(RunningPhase(path, max(0.0, now - node.started_at)))
    warnings = view.told.warnings
    return Observation(
        at.until,
        view.seq,
        state,
        None,
        held,
        held if state is State.STARTING else None,
        quiet,
        inactive,
        max(0.0, now - max(0.0, attended_at, since)),
        _projected(held, estimate),
        activity.rss_bytes if activity else None,
        activity.gpu_memory_bytes if activity else None,
        tuple(phases),
        path[-1] if path else None,
        warnings[-1] if warnings else None,
    )


def _projected(held_s: float | None, estimate: Progress | None) -> float | None:
    # Only what past builds let expect counts: steps say too little about time.
    if estimate is None or estimate.basis is not Basis.HISTORY:
        return None
    if estimate.eta_s is None or held_s is None:
        return None
    return held_s + estimate.eta_s
