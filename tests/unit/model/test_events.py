"""The protocol's lines: one event each, whatever is in it, read back as it was."""

import json
import subprocess
import sys
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import (
    Capabilities,
    EngineWritten,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    LogLine,
    OptionApplied,
    Origin,
    Outcome,
    PhaseFinished,
    PhaseStarted,
    Ready,
    Severity,
    StepCompleted,
    WorkerEvent,
    encode_event,
)
from trt_agent_tools.supervisor.process.pump import EventReader

KINDS: tuple[type[WorkerEvent], ...] = get_args(WorkerEvent)

texts = st.text()
times = st.floats(0, 1e6)
events: st.SearchStrategy[WorkerEvent] = st.one_of(
    st.builds(Hello, times, texts, st.integers(1), st.just(1), st.just(100.0)),
    st.builds(
        Ready,
        times,
        st.dictionaries(texts, texts, max_size=3),
        texts,
        texts,
        st.builds(Capabilities, st.lists(texts), st.dictionaries(texts, st.lists(texts))),
    ),
    st.builds(
        PhaseStarted,
        times,
        st.integers(),
        texts,
        st.integers(),
        st.none() | st.integers(),
        st.sampled_from(Origin),
    ),
    st.builds(StepCompleted, times, st.integers(), st.integers()),
    st.builds(PhaseFinished, times, st.integers()),
    st.builds(Heartbeat, times, st.integers()),
    st.builds(LogLine, times, st.sampled_from(Severity), texts),
    st.builds(OptionApplied, times, texts, st.lists(texts), st.dictionaries(texts, st.integers())),
    st.builds(EngineWritten, times, texts, st.integers(0), texts, texts),
    st.builds(
        Failed,
        times,
        st.builds(ErrorInfo, st.sampled_from(ErrorCode), texts, texts, st.just({"names": ["a"]})),
    ),
    st.builds(Goodbye, times, st.sampled_from(Outcome)),
)


@given(events)
def test_an_event_is_one_line_of_ascii_and_is_read_back_as_it_was(event: WorkerEvent) -> None:
    line = encode_event(event)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert line.isascii()
    reader = EventReader(accepted=0.0, launched=0.0)
    # The worker's clock begins with the reader's: times are told as they are.
    reader.read(encode_event(Hello(0.0, "replay", 1, monotonic=0.0)), 1e7)
    read = reader.read(line[:-1], 1e7)
    if isinstance(event, Hello):
        assert isinstance(read, Hello)
        assert (read.backend, read.pid) == (event.backend, event.pid)
    else:
        assert read == event


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_event_says_its_type_and_its_time(kind: type[WorkerEvent]) -> None:
    names = [field.name for field in fields(kind)]
    assert names[0] == "at"
    assert names[-1] == "type"


def test_no_two_events_have_the_same_type() -> None:
    types = [field.default for kind in KINDS for field in fields(kind) if field.name == "type"]
    assert len(set(types)) == len(KINDS)


def test_a_worker_takes_the_events_without_paying_for_pydantic() -> None:
    program = "import sys, json, trt_agent_tools.model.events; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = json.loads(done.stdout)
    assert not {"pydantic", "anyio", "mcp", "onnx", "psutil", "tensorrt_rtx"} & set(loaded)
