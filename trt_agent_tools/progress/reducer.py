"""`fold`: one event more. Pure and total: whatever comes, in whatever order, gives a valid view."""

import math
import re
from collections import Counter
from dataclasses import replace

from trt_agent_tools.model.duration import MAX_S
from trt_agent_tools.model.events import (
    EngineWritten,
    Failed,
    Heartbeat,
    InputFile,
    InputsDigested,
    LogLine,
    ModelRead,
    OptionApplied,
    Origin,
    PhaseFinished,
    PhaseStarted,
    Ready,
    Severity,
    StepCompleted,
)
from trt_agent_tools.model.findings import most_frequent
from trt_agent_tools.model.snapshot import Activity, AppliedOption, Result
from trt_agent_tools.model.states import TERMINAL, Reason, State, is_legal
from trt_agent_tools.model.supervisor_events import (
    ActivitySampled,
    BuildEvent,
    EngineReused,
    Noted,
    StateChanged,
    VerdictGiven,
)
from trt_agent_tools.model.untrusted import MAX_LINE, MAX_NAME, one_line
from trt_agent_tools.progress import phases
from trt_agent_tools.progress.cleaning import (
    MAX_ITEMS,
    MAX_PATH,
    clean_error,
    clean_map,
    value_text,
)
from trt_agent_tools.progress.clock import finite, usable
from trt_agent_tools.progress.fraction import reached
from trt_agent_tools.progress.past import Shape
from trt_agent_tools.progress.view import BuildView, Inputs, Life, Sample, Told

MAX_NOTES = 10
"""How many notes are kept, the last ones."""

MAX_WARNINGS = 20
"""How many log lines at warning or worse are kept, the last ones."""

MAX_VERDICTS = 20
"""How many verdicts are kept, the last ones."""

_WARNINGS = frozenset({Severity.INTERNAL_ERROR, Severity.ERROR, Severity.WARNING})
_MAX_PERCENT = 1e6
_MAX_BYTES = 2**63 - 1
_MAX_ENERGY_J = 1e12
_MAX_LEVEL = 1000
_SHA256 = re.compile(r"[0-9a-f]{64}")


def fold(view: BuildView, event: BuildEvent) -> BuildView:
    """Return the view of the build after `event`.

    An event that cannot be (an illegal move, a phase that is not known or known already, anything
    after the end) is ignored: the view itself is returned, and `seq` does not rise.
    """
    if view.life.ended_at is not None:
        return view
    # The most frequent first.
    if isinstance(event, StepCompleted):
        return _step(view, event)
    if isinstance(event, PhaseStarted):
        return _phase_started(view, event)
    if isinstance(event, PhaseFinished):
        return _phase_finished(view, event)
    if isinstance(event, Heartbeat):
        return _heartbeat(view, event)
    if isinstance(event, StateChanged):
        return _state_changed(view, event)
    at = usable(event.at, view.latest)
    if isinstance(event, ActivitySampled):
        return replace(
            view,
            seq=view.seq + 1,
            latest=at,
            sample=_sample(event, at),
            last_busy=max(view.last_busy, at) if event.busy else view.last_busy,
        )
    seq = view.seq + 1
    return replace(
        view,
        seq=seq,
        changed_seq=seq if isinstance(event, Noted | VerdictGiven) else view.changed_seq,
        latest=at,
        told=_told(view.told, event),
    )


def _step(view: BuildView, event: StepCompleted) -> BuildView:
    node = view.phases.running.get(event.instance)
    if node is None:
        return view
    at = usable(event.at, view.latest)
    tree = phases.step(view.phases, node, event.step)
    fraction, called = view.fraction, view.last_callback
    if node.origin is Origin.TENSORRT:
        called = at if called is None or at > called else called
        fraction = max(fraction, reached(tree, tree.running[event.instance]))
    # By position, which takes a third of the time of `replace`.
    return BuildView(
        view.seq + 1,
        view.changed_seq,
        at,
        called,
        fraction,
        tree,
        view.life,
        view.told,
        view.sample,
        max(view.last_sign, at),
        view.last_busy,
    )


def _phase_started(view: BuildView, event: PhaseStarted) -> BuildView:
    at = usable(event.at, view.latest)
    tree = phases.start(
        view.phases,
        event.instance,
        at=at,
        name=event.name,
        steps=event.steps,
        parent=event.parent,
        origin=event.origin,
    )
    if tree is view.phases:
        return view
    return _with_phases(view, tree, event.origin, at, view.fraction)


def _phase_finished(view: BuildView, event: PhaseFinished) -> BuildView:
    node = view.phases.running.get(event.instance)
    if node is None:
        return view
    at = usable(event.at, view.latest)
    tree = phases.finish(view.phases, node, at)
    # Fewer steps than announced may be reported, yet a finished root has no more to come.
    root_ended = tree.root_has_finished and not view.phases.root_has_finished
    fraction = 1.0 if root_ended else view.fraction
    return _with_phases(view, tree, node.origin, at, fraction)


def _with_phases(
    view: BuildView, tree: phases.PhaseTree, origin: Origin, at: float, fraction: float
) -> BuildView:
    seq = view.seq + 1
    called = _later(view.last_callback, at) if origin is Origin.TENSORRT else view.last_callback
    return BuildView(
        seq=seq,
        changed_seq=seq,
        latest=at,
        last_callback=called,
        fraction=fraction,
        phases=tree,
        life=view.life,
        told=view.told,
        sample=view.sample,
        last_sign=max(view.last_sign, at),
        last_busy=view.last_busy,
    )


def _heartbeat(view: BuildView, event: Heartbeat) -> BuildView:
    heard = event.last_callback
    if heard is None or not 0.0 <= heard <= MAX_S:
        return view
    called = _later(view.last_callback, heard)
    return view if called == view.last_callback else replace(view, last_callback=called)


def _later(known: float | None, at: float) -> float:
    return at if known is None else max(known, at)


def _state_changed(view: BuildView, event: StateChanged) -> BuildView:
    life = view.life
    if not is_legal(life.state, event.state):
        return view
    at = max(usable(event.at, view.latest), life.since)
    seq = view.seq + 1
    cancelling = event.state is State.CANCELLING
    moved = Life(
        state=event.state,
        since=at,
        reason=_reason(life, event),
        device=life.device if event.device is None else one_line(event.device, MAX_NAME),
        started_at=at if event.state is State.STARTING else life.started_at,
        ended_at=at if event.state in TERMINAL else None,
        ended_by=life.ended_by if event.ended_by is None else event.ended_by,
        cancel_asked=cancelling or life.cancel_asked,
        cancel_reason=event.reason if cancelling else life.cancel_reason,
        error=life.error if event.error is None else clean_error(event.error),
        proposals=event.proposals,
    )
    return replace(view, seq=seq, changed_seq=seq, latest=at, life=moved)


def _reason(life: Life, event: StateChanged) -> Reason | None:
    if event.reason is not None:
        return event.reason
    if event.state is State.SUCCEEDED:
        return Reason.COMPLETED
    return life.cancel_reason if event.state is State.CANCELLED else None


def _sample(event: ActivitySampled, at: float) -> Sample:
    gpu = event.gpu_percent
    if gpu is not None and math.isnan(gpu):
        gpu = None
    return Sample(
        at,
        Activity(
            busy=event.busy,
            cpu_percent=round(finite(event.cpu_percent, _MAX_PERCENT), 1),
            gpu_percent=gpu if gpu is None else round(finite(gpu, _MAX_PERCENT), 1),
            rss_bytes=_bytes(event.rss_bytes),
            gpu_memory_bytes=_optional_bytes(event.gpu_memory_bytes),
            gpu_energy_j=_energy(event.gpu_energy_j),
        ),
    )


def _told(told: Told, event: BuildEvent) -> Told:
    match event:
        case Noted():
            note = one_line(event.text, MAX_LINE)
            return replace(told, notes=(*told.notes, note)[-MAX_NOTES:])
        case VerdictGiven():
            return replace(told, verdicts=(*told.verdicts, event.verdict)[-MAX_VERDICTS:])
        case LogLine() if event.severity in _WARNINGS:
            line = f"{event.severity.value}: {one_line(event.message, MAX_LINE)}"
            return replace(told, warnings=(*told.warnings, line)[-MAX_WARNINGS:])
        case OptionApplied():
            return replace(told, options=_options(told.options, event))
        case Ready():
            return replace(told, versions=clean_map(event.versions))
        case EngineWritten() | EngineReused():
            return _with_result(told, event)
        case Failed():
            return replace(told, error=clean_error(event.error))
        case ModelRead():
            return replace(told, shape=_shape(event))
        case InputsDigested() if _SHA256.fullmatch(event.sha256):
            return replace(told, inputs=_inputs(event))
        case _:
            return told


def _options(known: tuple[AppliedOption, ...], event: OptionApplied) -> tuple[AppliedOption, ...]:
    applied = AppliedOption(
        name=one_line(event.name, MAX_NAME),
        requested=value_text(event.requested),
        effective=value_text(event.effective),
    )
    others = tuple(option for option in known if option.name != applied.name)
    return (*others, applied)[-MAX_ITEMS:]


def _with_result(told: Told, event: EngineWritten | EngineReused) -> Told:
    if isinstance(event, EngineWritten):
        return replace(told, result=_result(event))
    made_by = one_line(event.made_by, MAX_NAME)
    note = f"Nothing was built: the engine of {made_by} was verified and is used again."
    result = _result(event.written).model_copy(update={"reused": made_by})
    return replace(told, result=result, notes=(*told.notes, note)[-MAX_NOTES:])


def _result(event: EngineWritten) -> Result:
    return Result(
        engine=one_line(event.path, MAX_PATH),
        bytes=_bytes(event.bytes),
        sha256=one_line(event.sha256, MAX_NAME),
        manifest=one_line(event.manifest, MAX_PATH),
    )


def _shape(event: ModelRead) -> Shape:
    operators: Counter[str] = Counter()
    for name, number in most_frequent(event.operators).items():
        operators[one_line(name, MAX_NAME)] += _bytes(number)
    level = event.optimization_level
    return Shape(
        nodes=_bytes(event.nodes),
        weight_bytes=_bytes(event.weight_bytes),
        operators=dict(operators),
        profile_elements=_bytes(event.profile_elements),
        optimization_level=level if level is not None and 0 <= level <= _MAX_LEVEL else None,
    )


def _inputs(event: InputsDigested) -> Inputs:
    files = [
        InputFile(
            one_line(each.path, MAX_PATH), _bytes(each.bytes), one_line(each.sha256, MAX_NAME)
        )
        for each in event.files[:MAX_ITEMS]
    ]
    left_out = _bytes(event.files_left_out) + len(event.files) - len(files)
    return Inputs(event.sha256, tuple(files), left_out)


def _bytes(value: int) -> int:
    return min(max(value, 0), _MAX_BYTES)


def _optional_bytes(value: int | None) -> int | None:
    return None if value is None else _bytes(value)


def _energy(value: float | None) -> float | None:
    return None if value is None else round(finite(value, _MAX_ENERGY_J), 1)
