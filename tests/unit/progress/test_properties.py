"""Whatever a worker sends, in whatever order: a valid view, a valid snapshot, and kept promises."""

import json
import unicodedata
from collections.abc import Iterator
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trt_agent_tools.model.errors import Details, ErrorCode, ErrorInfo
from trt_agent_tools.model.events import (
    Capabilities,
    EngineWritten,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    JsonValue,
    LogLine,
    OptionApplied,
    Origin,
    Outcome,
    PhaseFinished,
    PhaseStarted,
    Ready,
    Severity,
    StepCompleted,
)
from trt_agent_tools.model.snapshot import Detail, Phase, PhaseStatus, Snapshot
from trt_agent_tools.model.states import TERMINAL, Reason, Rung, State
from trt_agent_tools.model.supervisor_events import (
    ActivitySampled,
    BuildEvent,
    Noted,
    StateChanged,
)
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView

T = TypeVar("T")

FACTS = BuildFacts(
    "b_1a2b", None, "default", "replay", "/m.onnx", "/m.engine", "2026-01-31T12:34:56Z"
)

some = settings(
    max_examples=100,
    deadline=None,  # this machine may be busy with others
    suppress_health_check=[HealthCheck.too_slow],
)

# Mostly sane, so that streams get far; now and then anything that a float or an integer can be.
times = st.one_of(st.floats(0, 100), st.floats(0, 100), st.floats())
integers = st.one_of(st.integers(-2, 12), st.integers())
instances = st.integers(0, 8)
# Lone surrogates too: file names that are no UTF-8 come as such.
texts = st.one_of(
    st.sampled_from(
        ["Building engine", "Timing", "\x1b[31mred\n", "\u202eback", "\udcff", "", "  "]
    ),
    st.text(st.characters(exclude_categories=()), max_size=12),
    st.text(st.sampled_from("ab\x00\x1b[m\r\n\x85 "), max_size=40),
    st.integers(150, 5000).map(lambda length: "long " * length),
)
values: st.SearchStrategy[JsonValue] = st.one_of(
    st.none(),
    st.booleans(),
    integers,
    st.floats(),
    texts,
    st.lists(texts, max_size=3),
    st.dictionaries(texts, integers, max_size=3),
)
details: st.SearchStrategy[Details] = st.dictionaries(
    texts,
    st.one_of(st.none(), st.booleans(), integers, st.floats(), texts, st.lists(texts, max_size=3)),
    max_size=3,
)
errors = st.builds(ErrorInfo, st.sampled_from(ErrorCode), texts, texts, details)


def maybe(what: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.one_of(st.none(), what)


phase_events: st.SearchStrategy[BuildEvent] = st.one_of(
    st.builds(
        PhaseStarted,
        times,
        instances,
        texts,
        integers,
        maybe(instances),
        st.sampled_from(Origin),
    ),
    st.builds(StepCompleted, times, instances, integers),
    st.builds(PhaseFinished, times, instances),
)
moves = st.builds(
    StateChanged,
    times,
    st.sampled_from(State),
    maybe(st.sampled_from(Reason)),
    maybe(texts),
    maybe(st.sampled_from(Rung)),
    maybe(errors),
)
other_events: st.SearchStrategy[BuildEvent] = st.one_of(
    st.builds(Hello, times, texts, integers),
    st.builds(
        Ready,
        times,
        st.dictionaries(texts, texts, max_size=3),
        texts,
        texts,
        st.just(Capabilities()),
    ),
    st.builds(Heartbeat, times, integers, maybe(times)),
    st.builds(LogLine, times, st.sampled_from(Severity), texts),
    st.builds(OptionApplied, times, texts, values, values),
    st.builds(EngineWritten, times, texts, integers, texts, texts),
    st.builds(Failed, times, errors),
    st.builds(Goodbye, times, st.sampled_from(Outcome)),
    st.builds(ActivitySampled, times, st.booleans(), times, integers, maybe(times)),
    st.builds(Noted, times, texts),
)
anything = st.lists(
    st.one_of(phase_events, phase_events, phase_events, other_events, moves), max_size=30
)
lively = st.lists(st.one_of(phase_events, phase_events, phase_events, other_events), max_size=20)
ROADS = [
    [State.STARTING, State.BUILDING, State.SUCCEEDED],
    [State.STARTING, State.BUILDING, State.FAILED],
    [State.STARTING, State.BUILDING, State.CANCELLING, State.CANCELLED],
    [State.STARTING, State.BUILDING, State.CANCELLING, State.SUCCEEDED],
    [State.STARTING, State.SUCCEEDED],
    [State.CANCELLING, State.CANCELLED],
    [State.STARTING, State.BUILDING, State.LOST],
]


@st.composite
def whole_lives(draw: st.DrawFn) -> list[BuildEvent]:
    """Every state of a legal life, with whatever the worker says between them and after the end."""
    events = draw(lively)
    for state in draw(st.sampled_from(ROADS)):
        events.append(StateChanged(draw(times), state, draw(maybe(st.sampled_from(Reason)))))
        events += draw(lively)
    return events


streams = whole_lives() | anything


def views(events: list[BuildEvent]) -> Iterator[BuildView]:
    view = BuildView()
    yield view
    for event in events:
        view = fold(view, event)
        yield view


def all_phases(phases: list[Phase]) -> Iterator[Phase]:
    for phase in phases:
        yield phase
        yield from all_phases(phase.children)


def all_strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inside in value.items():
            yield from all_strings(key)
            yield from all_strings(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from all_strings(inside)


def last(events: list[BuildEvent]) -> BuildView:
    *_, view = views(events)
    return view


def tree_of(told: Snapshot) -> list[Phase]:
    assert told.phases is not None
    return list(all_phases(told.phases))


@some
@given(streams, times, st.sampled_from(Detail))
def test_a_snapshot_is_valid_and_survives_json(
    events: list[BuildEvent], now: float, detail: Detail
) -> None:
    for view in views(events):
        told = snapshot(FACTS, view, now, detail)
        for text in (told.model_dump_json(), told.model_dump_json(exclude_none=True)):
            assert Snapshot.model_validate_json(text, strict=True) == told


@some
@given(streams)
def test_seq_rises_by_at_most_one_and_wakes_up_to_itself(events: list[BuildEvent]) -> None:
    before = BuildView()
    for view in views(events):
        assert view.seq - before.seq in (0, 1)
        assert before.changed_seq <= view.changed_seq <= view.seq
        assert view.changed_seq in (before.changed_seq, view.seq)
        before = view


@some
@given(streams, times)
def test_steps_and_spans_stay_in_range(events: list[BuildEvent], now: float) -> None:
    for view in views(events):
        told = snapshot(FACTS, view, now, Detail.FULL)
        for seconds in (told.elapsed_s, told.queue_s, told.gpu_s, told.quiet_s):
            assert seconds is None or seconds >= 0
        for phase in tree_of(told):
            assert 0 <= phase.steps_done <= phase.steps_total
            assert phase.steps_total >= 1
            assert phase.elapsed_s >= 0


@some
@given(streams)
def test_steps_done_of_a_phase_never_fall(events: list[BuildEvent]) -> None:
    done: dict[int, int] = {}
    for view in views(events):
        for node in (*view.phases.running.values(), *view.phases.finished.values()):
            assert node.steps_done >= done.get(node.order, 0)
            done[node.order] = node.steps_done


@some
@given(streams)
def test_the_fraction_never_falls_and_is_whole_only_at_success(events: list[BuildEvent]) -> None:
    reached = 0.0
    for view in views(events):
        progress = snapshot(FACTS, view, 50.0).progress
        assert progress is not None
        assert progress.eta_s is None
        if progress.fraction is not None:
            assert reached <= progress.fraction
            assert progress.fraction <= (1.0 if view.state is State.SUCCEEDED else 0.99)
            reached = progress.fraction


@some
@given(whole_lives(), anything, times, times)
def test_nothing_moves_after_the_end(
    life: list[BuildEvent], after: list[BuildEvent], soon: float, later: float
) -> None:
    ended = last(life)
    assert ended.state in TERMINAL
    for event in after:
        assert fold(ended, event) is ended
    for detail in Detail:
        assert snapshot(FACTS, ended, soon, detail) == snapshot(FACTS, ended, later, detail)


@some
@given(streams)
def test_current_names_a_running_phase_and_only_in_a_live_build(events: list[BuildEvent]) -> None:
    for view in views(events):
        told = snapshot(FACTS, view, 50.0, Detail.FULL)
        running = [each.name for each in tree_of(told) if each.status is PhaseStatus.RUNNING]
        if told.ended:
            assert told.current is None
            assert not running
        elif running:
            assert told.current is not None
            assert any(told.current.endswith(name) for name in running)
        else:
            assert told.current is None


@some
@given(streams)
def test_phases_are_shown_once_under_parents_that_end_after_them(events: list[BuildEvent]) -> None:
    for view in views(events):
        phases = tree_of(snapshot(FACTS, view, 50.0, Detail.FULL))
        assert len(phases) == len(view.phases.running) + len(view.phases.finished)
        for phase in phases:
            if phase.status is PhaseStatus.FINISHED:
                assert all(each.status is PhaseStatus.FINISHED for each in phase.children)


@some
@given(streams, texts)
def test_no_text_has_control_characters(events: list[BuildEvent], text: str) -> None:
    wild = BuildFacts(FACTS.build_id, text, text, text, text, text, text)
    told = snapshot(wild, last(events), 50.0, Detail.FULL)
    for shown in all_strings(json.loads(told.model_dump_json())):
        assert not any(unicodedata.category(each) in ("Cc", "Cs") for each in shown)
