"""`snapshot`: a view as it is shown, at a moment and in a detail."""

from collections.abc import Iterable, Sequence

from trt_agent_tools.model.snapshot import Activity, Detail, Phase, PhaseStatus, Snapshot
from trt_agent_tools.model.untrusted import MAX_NAME, one_line
from trt_agent_tools.model.verdict import Level, LimitUse
from trt_agent_tools.progress.cleaning import MAX_PATH, clean_label
from trt_agent_tools.progress.clock import Spans, spans
from trt_agent_tools.progress.expected import expected
from trt_agent_tools.progress.fraction import progress
from trt_agent_tools.progress.past import Estimate
from trt_agent_tools.progress.phases import MAX_PHASES, PhaseNode, PhaseTree, newest
from trt_agent_tools.progress.place import current
from trt_agent_tools.progress.polling import poll_after_ms
from trt_agent_tools.progress.summary import summary
from trt_agent_tools.progress.view import BuildFacts, BuildView

TREE_PHASES = 100
"""The most phases in detail `tree`, the newest ones; a usual build has 15 to 60."""

SAMPLE_FRESH_S = 10.0
"""A sample of the activity that is older says nothing about now; one is taken about every second."""


def snapshot(
    facts: BuildFacts,
    view: BuildView,
    now: float,
    detail: Detail = Detail.SUMMARY,
    limits: Sequence[LimitUse] = (),
    estimate: Estimate | None = None,
    floor: float = 0.0,
) -> Snapshot:
    """Return what is told of the build at `now`, in seconds since it was accepted.

    After the end, `now` has no effect. Seconds are rounded to tenths. `limits` are what its policy
    said of it last; a summary shows those that are near their end or past it. With an `estimate` progress
    rests on it and its fraction is `floor` at least, the largest that was shown so far; without one
    it rests on steps.
    """
    at = spans(view, now)
    live = view.ended_at is None
    activity = _activity(view, at) if live else None
    how_far = progress(view) if estimate is None else expected(estimate, view, now, floor)
    tree = detail is not Detail.SUMMARY
    full = detail is Detail.FULL
    most = MAX_PHASES if full else TREE_PHASES
    near = [use for use in limits if use.level is not Level.OK]
    return Snapshot(
        build_id=facts.build_id,
        seq=view.seq,
        state=view.state,
        reason=view.reason,
        summary=summary(
            facts.build_id,
            view,
            at,
            how_far,
            _about_silence(view, activity),
            warned=bool(near) and live,
            estimate=estimate,
        ),
        elapsed_s=round(at.elapsed_s, 1),
        queue_s=round(at.queue_s, 1) if tree else None,
        gpu_s=_tenths(at.gpu_s),
        quiet_s=_tenths(at.quiet_s),
        progress=how_far,
        current=current(view.phases, whole=tree) if live else None,
        activity=activity if tree else _percentages(activity),
        ended_by=view.life.ended_by,
        result=view.result,
        error=view.error,
        limits=(list(limits) if tree else near) or None,
        verdicts=list(view.told.verdicts) or None if tree else None,
        notes=list(view.told.notes) or None,
        proposals=list(view.life.proposals) or None,
        poll_after_ms=poll_after_ms(view.state, at),
        label=clean_label(facts.label) if tree else None,
        session_id=facts.session_id if tree else None,
        policy=one_line(facts.policy, MAX_PATH) if tree else None,
        backend=one_line(facts.backend, MAX_NAME) if tree else None,
        device=view.device if tree else None,
        model=one_line(facts.model, MAX_PATH) if tree else None,
        output=one_line(facts.output, MAX_PATH) if tree else None,
        created_at=one_line(facts.created_at, MAX_NAME) if tree else None,
        phases=_tree(newest(view.phases, most), at, live=live) if tree else None,
        phases_left_out=_left_out(view.phases, most) if tree else None,
        options=list(view.told.options) if full else None,
        versions=dict(view.told.versions) if full else None,
        warnings=list(view.told.warnings) if full else None,
    )


def at_detail(full: Snapshot, detail: Detail) -> Snapshot:
    """Return a snapshot that was rendered in full as it is shown in `detail`."""
    hidden = {Detail.SUMMARY: _NOT_IN_SUMMARY, Detail.TREE: _NOT_IN_TREE, Detail.FULL: ()}[detail]
    return full.model_copy(update=dict.fromkeys(hidden))


_NOT_IN_TREE = ("options", "versions", "warnings")
_NOT_IN_SUMMARY = (
    *_NOT_IN_TREE,
    *("queue_s", "label", "session_id", "policy", "backend", "device", "model", "output"),
    *("created_at", "phases", "phases_left_out", "verdicts", "limits"),
)


def _left_out(tree: PhaseTree, most: int) -> int | None:
    kept = len(tree.running) + len(tree.finished)
    return tree.left_out + max(0, kept - most) or None


def _tenths(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def _activity(view: BuildView, at: Spans) -> Activity | None:
    sample = view.sample
    if sample is None or at.until - sample.at > SAMPLE_FRESH_S:
        return None
    return sample.activity


def _percentages(activity: Activity | None) -> Activity | None:
    if activity is None:
        return None
    return Activity(
        busy=activity.busy,
        cpu_percent=round(activity.cpu_percent),
        gpu_percent=None if activity.gpu_percent is None else round(activity.gpu_percent),
    )


def _about_silence(view: BuildView, activity: Activity | None) -> Activity | None:
    # A sample from before the last callback says nothing about the silence since.
    if view.sample is None or view.last_callback is None or view.sample.at < view.last_callback:
        return None
    return activity


def _tree(newest_first: Iterable[PhaseNode], at: Spans, *, live: bool) -> list[Phase]:
    top: list[Phase] = []
    inside: dict[int, list[Phase]] = {}
    for node in newest_first:
        if node.finished_at is not None:
            status = PhaseStatus.FINISHED
        else:
            status = PhaseStatus.RUNNING if live else PhaseStatus.STOPPED
        until = at.until if node.finished_at is None else node.finished_at
        phase = Phase(
            name=node.name,
            origin=node.origin,
            status=status,
            steps_done=node.steps_done,
            steps_total=node.steps_total,
            elapsed_s=round(max(0.0, until - node.started_at), 1),
            children=inside.pop(node.instance, [])[::-1],
        )
        beside = top if node.parent is None else inside.setdefault(node.parent, [])
        beside.append(phase)
    return top[::-1]
