"""A policy run over yesterday's build: what it would have done, when, and what cannot be told."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.policy.builds import policy_with, tensorrt_build
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.events import (
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    LogLine,
    Outcome,
    PhaseFinished,
    PhaseStarted,
    Severity,
    StepCompleted,
    WorkerEvent,
    encode_event,
)
from trt_agent_tools.model.verdict import Action, Rule
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.policy.replay import INTERVAL_S, NotKnown, Timeline, read_recording, replay

DATA = Path(__file__).parents[2] / "data"


def tried(events: list[WorkerEvent], **rules: object) -> Timeline:
    return replay(Policy.model_validate({"rules": rules}), events)


def told(timeline: Timeline) -> list[tuple[float, str, str]]:
    return [(each.at_s, each.rule.value, each.action.value) for each in timeline.verdicts]


def test_a_silence_is_warned_of_and_ended_in_time() -> None:
    timeline = tried(tensorrt_build(silent_s=60, busy=True), silent="20s")
    assert told(timeline) == [(17.0, "silent", "warned"), (21.0, "silent", "cancel")]
    assert timeline.ended is timeline.verdicts[-1]
    assert timeline.ended.observed["quiet_s"] == 20.0


def test_how_the_build_ended_in_the_recording_is_told_beside() -> None:
    timeline = tried(tensorrt_build(silent_s=60, busy=True), silent="20s")
    assert timeline.recorded.outcome is Outcome.SUCCEEDED
    assert timeline.recorded.at_s == pytest.approx(61.1)


def test_a_recorded_failure_is_told_with_its_error() -> None:
    error = ErrorInfo(ErrorCode.BUILDER_ERROR, "no engine")
    events: list[WorkerEvent] = [Failed(3.0, error), Goodbye(3.5, Outcome.FAILED)]
    recorded = tried(events).recorded
    assert (recorded.at_s, recorded.outcome, recorded.error) == (3.5, Outcome.FAILED, error)


def test_a_recording_of_a_killed_build_just_stops() -> None:
    timeline = tried(tensorrt_build(silent_s=60, busy=True)[:30])
    assert timeline.recorded.outcome is None
    assert timeline.ended is None


def test_a_hung_build_is_ended_and_a_busy_one_is_not() -> None:
    hung = tried(tensorrt_build(silent_s=300, busy=False), step_stall="60s")
    assert hung.ended is not None
    assert hung.ended.rule is Rule.STEP_STALL
    assert hung.ended.at_s == pytest.approx(61.0, abs=INTERVAL_S)
    assert "the builder is hung; last phase Determining refit engines" in hung.ended.message
    busy = tried(tensorrt_build(silent_s=300, busy=True), step_stall="60s")
    assert busy.ended is None
    assert busy.not_known == ()


def test_a_build_that_hangs_after_work_is_ended_from_when_it_stopped_working() -> None:
    beats = [Heartbeat(float(at), cpu_s=float(min(at, 100))) for at in range(1, 300)]
    events: list[WorkerEvent] = [PhaseStarted(0.5, 1, "Building engine", 6), *beats]
    ended = tried(events, step_stall="60s").ended
    assert ended is not None
    assert ended.at_s == pytest.approx(160.0, abs=INTERVAL_S)


def test_a_phase_is_held_to_its_own_limit() -> None:
    timeline = tried(
        tensorrt_build(silent_s=60, busy=True),
        phase_time={"Determining*": "30s", "Building engine": "2m"},
    )
    assert timeline.ended is not None
    assert timeline.ended.phase == "Building > Building engine > Determining refit engines"
    assert timeline.ended.at_s == pytest.approx(31.0, abs=INTERVAL_S)


def test_steps_that_trickle_are_no_silence_and_still_have_build_time() -> None:
    events: list[WorkerEvent] = [PhaseStarted(0.5, 1, "Building engine", 1000)]
    events += [StepCompleted(10.0 * number, 1, number) for number in range(1, 100)]
    timeline = tried(events, silent="11s", build_time="5m")
    assert timeline.ended is not None
    assert (timeline.ended.rule, timeline.ended.at_s) == (Rule.BUILD_TIME, 300.0)


def test_a_limit_passed_between_two_evaluations_is_seen() -> None:
    events: list[WorkerEvent] = [
        PhaseStarted(0.3, 1, "Building engine", 1000),
        StepCompleted(1.34, 1, 1),
        StepCompleted(9.0, 1, 2),
    ]
    ended = tried(events, silent="1020ms").ended
    assert ended is not None
    assert ended.at_s == 1.34


def test_every_action_of_a_rule_and_pattern_is_told_once() -> None:
    events: list[WorkerEvent] = []
    for number in range(10):
        events += [
            PhaseStarted(10.0 * number, number, "Timing", 1),
            PhaseFinished(10.0 * number + 9, number),
        ]
    observed = {"limit": "8s", "mode": "observe"}
    timeline = tried(events, phase_time={"Timing": observed, "T*": observed}, silent=observed)
    keys = [(each.rule, each.action) for each in timeline.verdicts]
    assert keys.count((Rule.PHASE_TIME, Action.WOULD_CANCEL)) == 2
    assert keys.count((Rule.SILENT, Action.WOULD_CANCEL)) == 1
    assert all(before.at_s <= after.at_s for before, after in pairwise(timeline.verdicts))


def test_the_budget_of_a_session_with_this_build_alone_ends_it_first() -> None:
    policy = Policy.model_validate(
        {"rules": {"build_time": "10s", "gpu_time": "10s"}, "session": {"gpu_time": "10s"}}
    )
    ended = replay(policy, tensorrt_build(silent_s=60, busy=True)).ended
    assert ended is not None
    assert (ended.rule, ended.at_s) == (Rule.GPU_BUDGET, 10.0)


def test_rules_that_a_recording_cannot_tell_about_are_named_and_end_nothing() -> None:
    timeline = tried(
        tensorrt_build(silent_s=60, busy=True),
        queue_time=1,
        unattended=1,
        host_memory=1,
        gpu_memory=1,
        projected_overrun=1,
        build_time="1h",
    )
    assert timeline.ended is None
    assert timeline.verdicts == ()
    assert [each.rule for each in timeline.not_known] == [
        Rule.QUEUE_TIME,
        Rule.PROJECTED_OVERRUN,
        Rule.UNATTENDED,
        Rule.HOST_MEMORY,
        Rule.GPU_MEMORY,
    ]
    assert all(each.why for each in timeline.not_known)


def test_without_cpu_time_a_stall_is_not_known_and_that_is_said() -> None:
    events = [
        Heartbeat(event.at, event.callbacks, event.last_callback)
        if isinstance(event, Heartbeat)
        else event
        for event in tensorrt_build(silent_s=300, busy=False)
    ]
    timeline = tried(events, step_stall="60s")
    assert timeline.ended is None
    assert timeline.not_known == (
        NotKnown(Rule.STEP_STALL, "this recording's heartbeats tell no CPU time (cpu_s)"),
    )
    assert tried(events, silent="1h").not_known == ()


def test_a_startup_that_takes_too_long_is_ended() -> None:
    ended = tried(tensorrt_build(silent_s=5, busy=True), startup_time="500ms").ended
    assert ended is not None
    assert (ended.rule, ended.at_s) == (Rule.STARTUP_TIME, 0.5)


def test_events_out_of_order_are_due_with_the_one_before() -> None:
    events: list[WorkerEvent] = [
        PhaseStarted(5.0, 1, "Building engine", 6),
        LogLine(0.5, Severity.WARNING, "written late"),
        StepCompleted(4.0, 1, 0),
        LogLine(30.0, Severity.WARNING, "the end"),
    ]
    ended = tried(events, silent="10s").ended
    assert ended is not None
    assert ended.at_s == 15.0


def test_no_events_give_an_empty_timeline() -> None:
    timeline = tried([], build_time="1s")
    assert (timeline.verdicts, timeline.ended, timeline.recorded.at_s) == ((), None, 0.0)


@pytest.mark.parametrize("interval_s", [0, -1, float("nan"), float("inf")])
def test_an_interval_is_positive_and_finite(interval_s: float) -> None:
    with pytest.raises(ValueError, match="interval"):
        replay(Policy(), [], interval_s=interval_s)


@given(st.lists(st.floats(allow_nan=True), max_size=8), st.lists(st.floats(), max_size=8))
def test_absurd_times_and_cpu_times_do_not_raise(ats: list[float], cpus: list[float]) -> None:
    events: list[WorkerEvent] = [PhaseStarted(0.0, 1, "Building engine", 6)]
    for at, cpu_s in zip(ats, cpus, strict=False):
        if at <= 1e6:
            events.append(Heartbeat(at, 0, at, cpu_s=cpu_s))
    replay(policy_with({Rule.STEP_STALL: 5.0, Rule.SILENT: 5.0}), events)


def test_an_absurdly_long_recording_takes_no_time() -> None:
    events: list[WorkerEvent] = [
        PhaseStarted(0.0, 1, "Building engine", 6),
        StepCompleted(300 * 86400.0, 1, 0),
    ]
    limits = {"limit": "1s", "mode": "observe"}
    timeline = tried(events, silent=limits, build_time=limits, phase_time={"*": limits})
    assert timeline.evaluated < 50


def test_an_hour_with_many_events_is_evaluated_about_once_a_heartbeat() -> None:
    events: list[WorkerEvent] = [PhaseStarted(0.5, 1, "Building engine", 1 << 30)]
    for second in range(1, 3601):
        events.append(Heartbeat(float(second), second, float(second), cpu_s=float(second)))
        events += [StepCompleted(second + part / 10, 1, second * 10 + part) for part in range(5)]
    timeline = tried(events, silent="30s", step_stall="1m", build_time="2h")
    assert timeline.verdicts == ()
    assert timeline.evaluated < 2 * 3600


# Files


def refused(path: Path) -> str:
    with pytest.raises(Refusal) as caught:
        read_recording(path)
    assert caught.value.info.code is ErrorCode.INVALID_ARGUMENT
    assert caught.value.info.hint
    return caught.value.info.message


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_what_a_worker_recorded_is_read_back(file: Path) -> None:
    events = [Hello(0.1, "tensorrt_rtx", 42), *tensorrt_build(silent_s=20, busy=True)]
    file.write_bytes(b"".join(map(encode_event, events)))
    assert read_recording(file) == events


@pytest.mark.parametrize("name", ["silent_step.jsonl", "quick.jsonl"])
def test_the_examples_are_recordings(name: str) -> None:
    assert replay(Policy(), read_recording(DATA / name)).recorded.outcome is Outcome.SUCCEEDED


def test_the_half_line_of_a_killed_worker_is_left_out(file: Path) -> None:
    whole = encode_event(PhaseStarted(1.0, 1, "Building engine", 6))
    file.write_bytes(whole + encode_event(StepCompleted(2.0, 1, 0))[:20])
    assert read_recording(file) == [PhaseStarted(1.0, 1, "Building engine", 6)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"garbage", "JSON"),
        (b'{"type":"phase_finished","at":"soon","instance":1}', "at"),
        (b'{"type":"phase_finished","at":-1,"instance":1}', "at: must be between 0 and"),
        (b'{"type":"phase_finished","at":1e300,"instance":1}', "at: must be between 0 and"),
        (b'{"type":"no_such","at":1}', "no_such"),
        (b'{"at":1}', "type"),
        (b'{"type":"replay","speed":2}', "first line"),
        (b"x" * (256 * 1024 + 1), "longer than"),
    ],
)
def test_a_line_that_is_no_event_is_named(file: Path, line: bytes, words: str) -> None:
    first = encode_event(PhaseStarted(1.0, 1, "Building engine", 6))
    file.write_bytes(first + line + b"\n" + first)
    message = refused(file)
    assert message.startswith(f"{file}: line 2: ")
    assert words in message
    assert len(message) < 800


def test_settings_of_the_replay_backend_are_passed_over_but_not_its_actions(file: Path) -> None:
    event = encode_event(PhaseStarted(1.0, 1, "Building engine", 6))
    file.write_bytes(b'{"type":"replay","speed":10}\n' + event)
    assert len(read_recording(file)) == 1
    file.write_bytes(b'{"type":"replay","actions":[{"at":1,"do":"hang_idle"}]}\n' + event)
    assert "line 1: its actions are done by a build" in refused(file)


def test_a_file_without_events_or_without_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n\n")
    assert "there is no event" in refused(tmp_path / "empty")
    assert "No such file" in refused(tmp_path / "none")
    assert "cannot be read" in refused(tmp_path)
