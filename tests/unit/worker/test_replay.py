"""What an event file may hold, and when each of its events is due."""

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.worker.conftest import Open
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import (
    EngineWritten,
    Heartbeat,
    LogLine,
    PhaseFinished,
    PhaseStarted,
    Severity,
    StepCompleted,
    encode_event,
)
from trt_agent_tools.model.log_lines import split_line
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.replay import log_line
from trt_agent_tools.worker.replay_actions import BurnCpu, Crash
from trt_agent_tools.worker.replay_file import (
    PlayedEvent,
    Settings,
    parse_recording,
    read_recording,
    schedule,
)
from trt_agent_tools.worker.replay_perform import perform

DATA = Path(__file__).parents[2] / "data"

STARTED = b'{"type":"phase_started","at":1.0,"instance":1,"name":"Building engine","steps":6}\n'
FINISHED = b'{"type":"phase_finished","at":2.0,"instance":1}\n'


def refused(data: bytes) -> BuildFault:
    with pytest.raises(BuildFault) as caught:
        parse_recording(data, "m.jsonl")
    assert caught.value.info.code is ErrorCode.INVALID_MODEL
    return caught.value


def test_a_file_of_the_protocols_own_lines_is_a_recording() -> None:
    settings, events = parse_recording(STARTED + FINISHED, "m.jsonl")
    assert settings == Settings()
    assert events == [PhaseStarted(1.0, 1, "Building engine", 6), PhaseFinished(2.0, 1)]


def test_every_event_that_the_worker_plays_is_read_back_as_it_was_written() -> None:
    played: list[PlayedEvent] = [
        PhaseStarted(0.5, 3, "Parsing the model", 1, None),
        StepCompleted(0.6, 3, 0),
        LogLine(0.7, Severity.INTERNAL_ERROR, "a \u202e b \U0001f600"),
        EngineWritten(9.0, "/e.engine", 12, "ab", "/e.engine.json"),
    ]
    _, events = parse_recording(b"".join(map(encode_event, played)), "m.jsonl")
    assert events == played


@pytest.mark.parametrize("name", ["silent_step.jsonl", "quick.jsonl"])
def test_the_examples_are_valid_and_in_order(opened: Open, name: str) -> None:
    recording = read_recording(opened(DATA / name))
    times = [event.at for event in recording.events]
    assert times == sorted(times)
    assert sum(isinstance(event, EngineWritten) for event in recording.events) == 1


def test_the_silent_example_has_a_gap_of_18_seconds_inside_a_step(opened: Open) -> None:
    recording = read_recording(opened(DATA / "silent_step.jsonl"))
    due = schedule(recording.settings, recording.events)
    gaps = [(after.at_s - before.at_s, before.item) for before, after in pairwise(due)]
    gap, item = max(gaps, key=lambda found: found[0])
    assert gap == pytest.approx(18.0)
    assert isinstance(item, PhaseStarted)
    assert item.name == "Determining refit engines"
    assert due[-1].at_s == pytest.approx(20.0, abs=0.05)


def test_settings_are_the_first_line() -> None:
    line = b'{"type":"replay","speed":10,"actions":[{"at":1,"do":"crash","signal":"SIGABRT"}]}\n'
    settings, events = parse_recording(line + STARTED, "m.jsonl")
    assert settings.speed == 10
    assert settings.actions == [Crash(at=1.0, do="crash", signal="SIGABRT")]
    assert len(events) == 1
    assert "first line" in refused(STARTED + line).info.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"not json", "JSON"),
        (b"\xff\xfe\x00", "JSON"),
        (b'{"type":"phase_', "JSON"),
        (b"[]", "line 2"),
        (b"null", "line 2"),
        (b'{"at":1.0}', "type"),
        (b'{"type":"phase_started","at":1.0,"instance":1,"steps":6}', "name"),
        (b'{"type":"phase_finished","at":"soon","instance":1}', "at"),
        (b'{"type":"phase_finished","at":true,"instance":1}', "at"),
        (b'{"type":"phase_finished","at":-1.0,"instance":1}', "at"),
        (b'{"type":"phase_finished","at":NaN,"instance":1}', "at"),
        (b'{"type":"phase_finished","at":1e300,"instance":1}', "at"),
        (b'{"type":"no_such_event","at":1.0}', "type"),
        (b"x" * (256 * 1024 + 1), "longer"),
        (b"[" * 100_000, "JSON"),
    ],
)
def test_a_line_that_is_not_valid_is_named(line: bytes, words: str) -> None:
    fault = refused(STARTED + line + b"\n" + FINISHED)
    assert "line 2" in fault.info.message
    assert words in fault.info.message
    assert fault.info.details == {"line": 2}


@pytest.mark.parametrize(
    "settings",
    [
        {"speed": 0},
        {"speed": -1},
        {"speed": "2"},
        {"speed": float("inf")},
        {"speeed": 2},
        {"engine_bytes": 0},
        {"engine_bytes": 10**15},
        {"actions": [{"at": 1, "do": "dance"}]},
        {"actions": [{"at": 1, "do": "crash", "signal": "SIGWHAT"}]},
        {"actions": [{"at": 1, "do": "crash", "loud": True}]},
        {"actions": [{"do": "crash"}]},
        {"actions": [{"at": -1, "do": "crash"}]},
        {"actions": [{"at": 1, "do": "allocate"}]},
        {"actions": [{"at": 1, "do": "exit", "status": 256}]},
        {"actions": [{"at": 1, "do": "fail", "code": "no_such_code"}]},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object]) -> None:
    line = json.dumps({"type": "replay", **settings}).encode() + b"\n"
    assert "line 1" in refused(line + STARTED).info.message


def test_a_file_without_events_is_refused() -> None:
    refused(b"")
    refused(b"\n \n")
    refused(b'{"type":"replay"}\n')
    refused(encode_event(Heartbeat(1.0)))


def test_a_file_that_cannot_be_read_is_refused(opened: Open) -> None:
    file = opened(DATA / "quick.jsonl")
    # A folder's descriptor: reading it fails as a disk might.
    folder = os.open(DATA, os.O_RDONLY)
    try:
        with pytest.raises(BuildFault) as caught:
            read_recording(replace(file, descriptor=folder))
    finally:
        os.close(folder)
    assert caught.value.info.code is ErrorCode.MODEL_UNREADABLE


def test_speed_divides_every_time() -> None:
    _, events = parse_recording(STARTED + FINISHED, "m.jsonl")
    assert [due.at_s for due in schedule(Settings(speed=4), events)] == [0.25, 0.5]


def test_an_event_recorded_out_of_order_keeps_its_place_in_the_file() -> None:
    events: list[PlayedEvent] = [
        PhaseStarted(2.0, 1, "a", 1),
        StepCompleted(1.9, 1, 0),
        PhaseFinished(3.0, 1),
    ]
    due = schedule(Settings(), events)
    assert [moment.item for moment in due] == events
    assert [moment.at_s for moment in due] == [2.0, 2.0, 3.0]


def test_an_action_follows_the_events_of_its_time_and_precedes_later_ones() -> None:
    settings = Settings(
        actions=[BurnCpu(at=2.5, do="burn_cpu"), Crash(at=1.0, do="crash")], speed=2
    )
    _, events = parse_recording(STARTED + FINISHED, "m.jsonl")
    due = schedule(settings, events)
    assert [type(moment.item).__name__ for moment in due] == [
        "PhaseStarted",
        "Crash",
        "PhaseFinished",
        "BurnCpu",
    ]
    assert [moment.at_s for moment in due] == [0.5, 0.5, 1.0, 1.25]


@given(
    st.lists(st.floats(0, 1e6), max_size=30),
    st.lists(st.floats(0, 1e6), max_size=10),
    st.floats(0.01, 1000),
)
def test_a_schedule_is_complete_and_never_goes_back(
    event_times: list[float], action_times: list[float], speed: float
) -> None:
    actions = [Crash(at=at, do="crash") for at in action_times]
    due = schedule(
        Settings(speed=speed, actions=list(actions)),
        [StepCompleted(at, 1, step) for step, at in enumerate(event_times)],
    )
    times = [moment.at_s for moment in due]
    assert times == sorted(times)
    played = [moment.item.step for moment in due if isinstance(moment.item, StepCompleted)]
    assert played == list(range(len(event_times)))
    assert len(due) == len(event_times) + len(action_times)


@pytest.mark.parametrize("severity", list(Severity))
def test_a_replayed_log_line_reads_as_the_librarys_own(severity: Severity) -> None:
    line = log_line(LogLine(1.0, severity, "a\nb")).decode()
    assert line.endswith("\n")
    assert split_line(line[:-1]) == (severity, "a b")


def test_every_action_can_be_performed() -> None:
    schema = Settings.model_json_schema()["$defs"]
    named = {name for name, part in schema.items() if "do" in part.get("properties", {})}
    assert named == {kind.__name__ for kind in perform.registry} - {"object"} | {"BurnCpu"}
