"""The one line of a snapshot: for an agent that reads nothing else. It claims what is known, no more."""

from dataclasses import replace

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.events import Origin
from trt_agent_tools.model.snapshot import Activity, Basis, Progress
from trt_agent_tools.model.states import State
from trt_agent_tools.model.verdict import Action, Verdict
from trt_agent_tools.progress.clock import Spans
from trt_agent_tools.progress.past import Estimate
from trt_agent_tools.progress.phases import PhaseNode, PhaseTree
from trt_agent_tools.progress.place import brief, shorten
from trt_agent_tools.progress.view import BuildView

QUIET_TOLD_S = 2.0
"""A silence shorter than this is not worth a word: callbacks of a lively build come with gaps too."""

_MAX_MESSAGE = 110
_MAX_HINT = 90
_MAX_VERDICT = 200
_MAX_PROPOSAL = 90
_MAX_FILE_NAME = 80
_NONE_PERCENT = 0.5
_TENTHS_BELOW_S = 2.0


def summary(
    build_id: str,
    view: BuildView,
    spans: Spans,
    progress: Progress,
    activity: Activity | None,
    *,
    warned: bool = False,
    estimate: Estimate | None = None,
) -> str:
    """Return `build_id`, the state and what a reader wants to know in this state, on one line.

    `activity` is what the build's processes do now, None where that is not known. `warned` tells that
    a limit is near its end: the last verdict says which. `estimate` is what `progress` rests on: what is
    left stands for steps, and for the silence of a build that works.
    """
    told = f"{build_id} {_told(view, spans, progress, activity, estimate)}"
    verdict = _verdict(view, Action.WARNED, Action.WOULD_CANCEL) if warned else None
    if verdict is not None and view.state in {State.QUEUED, State.STARTING, State.BUILDING}:
        told += f"; warning: {shorten(verdict.message, _MAX_VERDICT)}"
    return told


def _verdict(view: BuildView, *actions: Action) -> Verdict | None:
    found = (verdict for verdict in reversed(view.told.verdicts) if verdict.action in actions)
    return next(found, None)


def _because(view: BuildView) -> str:
    verdict = _verdict(view, Action.CANCEL)
    if verdict is None or view.reason is not verdict.rule.reason:
        return ""
    return f": {shorten(verdict.message, _MAX_VERDICT)}"


def _next(view: BuildView) -> str:
    """Return what to try instead, where that is known and short."""
    best = next(iter(view.life.proposals), None)
    if best is None:
        return ""
    takes = "" if best.expected_s is None else f" (takes about {_about(best.expected_s)})"
    told = f"; try {best.change.text}{takes}"
    return told if len(told) <= _MAX_PROPOSAL else ""


def _told(
    view: BuildView,
    spans: Spans,
    progress: Progress,
    activity: Activity | None,
    estimate: Estimate | None,
) -> str:
    match view.state:
        case State.QUEUED:
            takes = "" if estimate is None else f", then takes {_length(estimate)}"
            return f"queued {_s(spans.elapsed_s)}: waits for its device{takes}"
        case State.STARTING | State.BUILDING:
            return _working(view, spans, progress, activity, estimate)
        case State.CANCELLING:
            return _cancelling(view, spans)
        case State.SUCCEEDED:
            return _succeeded(view, spans)
        case State.FAILED:
            return _failed(view, spans)
        case State.CANCELLED:
            rung = view.life.ended_by
            ended_by = "" if rung is None else f", ended by {rung.value}"
            ended = f"cancelled after {_s(spans.elapsed_s)}{_why(view)}{_where(view)}{ended_by}"
            return ended + _because(view) + _next(view)
        case State.LOST:
            return (
                f"lost after {_s(spans.elapsed_s)}{_where(view)}: its supervisor ended under it;"
                " what it did afterwards is not known"
            )


def _working(
    view: BuildView,
    spans: Spans,
    progress: Progress,
    activity: Activity | None,
    estimate: Estimate | None,
) -> str:
    held = spans.elapsed_s if spans.gpu_s is None else spans.gpu_s
    head = f"{view.state.value} {_s(held)}"
    if estimate is not None:
        in_time = held <= estimate.high_s
        head += f", {_left(progress, estimate) if in_time else _late(estimate)}"
        if activity is not None and activity.busy:
            # A build that works is told of by its time: its silence is no news.
            spans = replace(spans, quiet_s=None)
    tree = view.phases
    path = tree.path()
    leaf = path[-1] if path else None
    if leaf is not None and leaf.origin is Origin.TENSORRT:
        by_steps = progress.basis is Basis.STEPS and progress.fraction is not None
        steps = f", {progress.fraction:.0%} of steps" if by_steps else ""
        in_step = leaf.steps_done < leaf.steps_total
        busy_with = "working inside one step" if in_step else "still working"
        where = brief(path if estimate is None else path[-1:])
        return f"{head}{steps}: {where}{_silence(spans, activity, busy_with)}"
    if view.told.result is not None:
        return f"{head}: the engine is written, its worker process has not ended yet"
    if _is_after_root(tree, leaf):
        doing = "TensorRT's phases have finished"
        if leaf is not None:
            doing += ", its builder has not returned yet"
        return f"{head}: {doing}{_silence(spans, activity, 'still working')}"
    if leaf is not None:
        return f"{head}: {brief(path)}{_lasting(leaf, spans)}"
    return f"{head}: " + ("between two phases" if tree.begun else "its worker process starts")


def _left(progress: Progress, estimate: Estimate) -> str:
    eta, low, high = progress.eta_s, progress.eta_low_s, progress.eta_high_s
    if eta is None or low is None or high is None:
        return f"of {_length(estimate)}"
    return f"about {_about(eta)} left ({_about(low)} to {_about(high)}, {_source(estimate)})"


def _late(estimate: Estimate) -> str:
    return f"longer than expected (about {_about(estimate.total_s)}, {_source(estimate)})"


def _length(estimate: Estimate) -> str:
    low, high = _about(estimate.low_s), _about(estimate.high_s)
    return f"about {_about(estimate.total_s)} ({low} to {high}, {_source(estimate)})"


def _source(estimate: Estimate) -> str:
    builds = "build" if estimate.builds == 1 else "builds"
    return f"from {estimate.builds} {builds if estimate.same else f'similar {builds}'}"


def _about(seconds: float) -> str:
    # Tenths would claim more than is known, except of what is nearly over.
    shown = seconds if seconds < _TENTHS_BELOW_S else round(seconds)
    return format_duration(shown).replace(".0s", "s")


def _is_after_root(tree: PhaseTree, leaf: PhaseNode | None) -> bool:
    # A worker's phase that began after the root is another matter, such as writing the engine.
    root = tree.root
    return root is not None and tree.root_has_finished and (leaf is None or leaf.order < root.order)


def _lasting(leaf: PhaseNode, spans: Spans) -> str:
    lasting = spans.until - leaf.started_at
    return f", for {_s(lasting)} so far" if lasting >= QUIET_TOLD_S else ""


def _silence(spans: Spans, activity: Activity | None, busy_with: str) -> str:
    if spans.quiet_s is None or spans.quiet_s < QUIET_TOLD_S:
        return ""
    text = f"; no callback for {_s(spans.quiet_s)}"
    if activity is None:
        return text
    cpu, gpu = activity.cpu_percent, activity.gpu_percent
    usage = f"CPU {cpu:.0f}%" if gpu is None else f"CPU {cpu:.0f}%, GPU {gpu:.0f}%"
    if activity.busy:
        return f"{text}, {usage}: {busy_with}"
    units = "CPU" if gpu is None else "CPU or GPU"
    if cpu < _NONE_PERCENT and (gpu is None or gpu < _NONE_PERCENT):
        return f"{text} and no {units} use"
    return f"{text} and little {units} use ({usage})"


def _cancelling(view: BuildView, spans: Spans) -> str:
    asked = _s(max(0.0, spans.until - view.life.since))
    waits = "waits to leave the queue"
    if view.started_at is not None:
        waits = "waits until all of its processes are gone"
    path = view.phases.path()
    doing = f"; in {brief(path)}" if path else ""
    return f"cancelling for {asked}{_why(view)}: {waits}{doing}"


def _succeeded(view: BuildView, spans: Spans) -> str:
    result = view.result
    text = f"succeeded in {_s(spans.elapsed_s)}"
    if spans.queue_s >= QUIET_TOLD_S:
        text += f", {_s(spans.queue_s)} of it queued"
    if result is not None:
        name = shorten(result.engine.rsplit("/", 1)[-1], _MAX_FILE_NAME)
        text += f": {name} ({_size(result.bytes)})"
        if result.reused is not None:
            text += f", reused from {result.reused}"
    if view.life.cancel_asked:
        text += "; complete before the cancel reached it"
    return text


def _failed(view: BuildView, spans: Spans) -> str:
    text = f"failed after {_s(spans.elapsed_s)}"
    error = view.error
    if error is None:
        return f"{text}{_why(view)}{_where(view)}"
    message = shorten(error.message, _MAX_MESSAGE).rstrip(".")
    hint = shorten(error.hint, _MAX_HINT)
    told = ". ".join(part for part in (message, hint) if part)
    return f"{text} ({error.code.value}){_where(view)}" + (f": {told}" if told else "")


def _why(view: BuildView) -> str:
    return "" if view.reason is None else f" ({view.reason.value})"


def _where(view: BuildView) -> str:
    path = view.phases.path()
    return f" in {brief(path[-1:])}" if path else ""


def _s(seconds: float) -> str:
    return format_duration(seconds)


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:  # noqa: PLR2004  (the step between units)
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
