"""Whatever a worker writes, the supervisor reads events, notes, or one clear error."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise

import anyio
import pytest
from anyio.abc import ByteReceiveStream
from hypothesis import example, given
from hypothesis import strategies as st

from trt_agent_tools.model.events import (
    MAX_LINE_BYTES,
    Heartbeat,
    Hello,
    PhaseFinished,
    StepCompleted,
    WorkerEvent,
    encode_event,
)
from trt_agent_tools.supervisor.process.pump import (
    MAX_BAD_LINES,
    BadLine,
    EventReader,
    ProtocolError,
    read_lines,
)

NOW = 50.0
HELLO = encode_event(Hello(0.0, "replay", 7, monotonic=13.0))


class Chunks(ByteReceiveStream):
    """A stream that gives what it was made of, chunk by chunk."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = list(chunks)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        del max_bytes
        if not self._chunks:
            raise anyio.EndOfStream
        return self._chunks.pop(0)

    async def aclose(self) -> None:
        self._chunks.clear()


def lines_of(chunks: Sequence[bytes]) -> tuple[list[bytes], str]:
    """Return the lines read, and the error that ended the reading, if one did."""
    lines: list[bytes] = []

    async def read() -> str:
        try:
            async for line in read_lines(Chunks(chunks)):
                lines.append(line)  # noqa: PERF401  (what came before an error counts)
        except ProtocolError as error:
            return str(error)
        return ""

    return lines, anyio.run(read)


def greeted() -> EventReader:
    """Return a reader for a build accepted at 10, launched at 12, whose worker's clock began at 13."""
    reader = EventReader(accepted=10.0, launched=12.0)
    reader.read(HELLO, NOW)
    return reader


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


@given(st.lists(st.sampled_from([b"{", b"\n", b"\n\n", b"ab", b"\xff\x00", b"\r\n"])), st.data())
def test_however_the_bytes_are_cut_the_lines_are_the_same(
    parts: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(parts)
    lines, error = lines_of(cut(whole, data.draw(st.lists(st.integers(0, 200), max_size=10))))
    assert not error
    expected = whole.split(b"\n")
    assert lines == (expected if expected[-1] else expected[:-1])


@pytest.mark.parametrize("chunk", [1000, 65536, MAX_LINE_BYTES + 1, 10**9])
@pytest.mark.parametrize("ending", [b"\n", b"\nmore\n", b""])
def test_a_line_too_long_is_refused_however_it_comes(chunk: int, ending: bytes) -> None:
    whole = b"fine\n" + b"x" * (MAX_LINE_BYTES + 1) + ending
    lines, error = lines_of([whole[i : i + chunk] for i in range(0, len(whole), chunk)])
    assert lines == [b"fine"]
    assert str(MAX_LINE_BYTES) in error


def test_the_longest_line_allowed_is_read() -> None:
    longest = b"x" * MAX_LINE_BYTES
    assert lines_of([longest, b"\n"]) == ([longest], "")


def test_half_a_line_at_the_end_is_read_too() -> None:
    assert lines_of([b'{"type":', b'"good']) == ([b'{"type":"good'], "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
types = st.sampled_from(
    ["hello", "ready", "phase_started", "step_completed", "heartbeat", "log", "failed", "new"]
)
names = st.sampled_from(["at", "instance", "name", "steps", "pid", "protocol", "backend", "error"])
shaped = st.builds(
    lambda kind, rest: json.dumps({**rest, "type": kind}).encode(),
    types,
    st.dictionaries(names, json_values),
)


@given(st.lists(st.one_of(st.binary(), shaped, st.just(HELLO)), max_size=20))
@example([b'{"type":"heartbeat","at":' + b"9" * 5000 + b"}"])
@example([b"[" * 100_000])
@example(
    [b'{"type":"\\ud800","at":1}', b'{"type":"log","at":1,"severity":"error","message":"\\ud800"}']
)
@example([b"\xff\xfe", b"", b"null", b'{"type":null}', b'{"type":{}}'])
def test_any_bytes_are_events_notes_or_a_protocol_error(lines: list[bytes]) -> None:
    reader = EventReader(accepted=10.0, launched=12.0)
    for line in lines:
        try:
            event = reader.read(line, NOW)
        except ProtocolError:
            continue
        if isinstance(event, BadLine):
            assert len(event.text) <= 120
        elif event is not None:
            # Between the launch and now, whatever was said.
            assert 2.0 <= event.at <= 40.0


def test_a_workers_times_are_told_on_the_builds_clock() -> None:
    reader = greeted()
    step = reader.read(encode_event(StepCompleted(4.0, 1, 0)), NOW)
    beat = reader.read(encode_event(Heartbeat(5.0, callbacks=3, last_callback=4.5)), NOW)
    assert step == StepCompleted(7.0, 1, 0)
    assert beat == Heartbeat(8.0, callbacks=3, last_callback=7.5)


def test_without_the_moment_of_its_start_a_workers_clock_is_set_by_the_arrival_of_hello() -> None:
    reader = EventReader(accepted=10.0, launched=12.0)
    assert reader.read(encode_event(Hello(0.5, "replay", 7)), 14.0) == Hello(4.0, "replay", 7)
    assert reader.read(encode_event(PhaseFinished(1.5, 1)), 20.0) == PhaseFinished(5.0, 1)


@pytest.mark.parametrize("monotonic", [0.0, 11.9, NOW + 1, math.nan, math.inf, -math.inf])
def test_a_start_that_cannot_be_is_not_believed(monotonic: float) -> None:
    reader = EventReader(accepted=10.0, launched=12.0)
    reader.read(encode_event(Hello(0.0, "replay", 7, monotonic=monotonic)), 14.0)
    assert reader.read(encode_event(PhaseFinished(1.0, 1)), 20.0) == PhaseFinished(5.0, 1)


@pytest.mark.parametrize("at", [-1.1, 1e9, math.nan, math.inf, -math.inf])
def test_a_time_that_cannot_be_is_the_time_of_arrival(at: float) -> None:
    reader = greeted()
    assert reader.read(encode_event(PhaseFinished(at, 1)), NOW) == PhaseFinished(40.0, 1)
    beat = reader.read(encode_event(Heartbeat(1.0, last_callback=at)), NOW)
    # A callback that cannot have been must not make a silent build look alive.
    assert beat == Heartbeat(4.0, last_callback=None)


@pytest.mark.parametrize("at", [math.nan, math.inf, 1e300])
def test_a_hello_without_sense_does_not_spoil_the_times_after_it(at: float) -> None:
    reader = EventReader(accepted=10.0, launched=12.0)
    reader.read(encode_event(Hello(at, "replay", 7)), 14.0)
    assert reader.read(encode_event(PhaseFinished(1.0, 1)), 20.0) == PhaseFinished(10.0, 1)


def test_an_event_type_of_a_later_version_is_ignored() -> None:
    reader = greeted()
    for _ in range(MAX_BAD_LINES + 1):
        assert reader.read(b'{"type":"memory_sampled","at":1,"bytes":5}', NOW) is None


def test_a_field_of_a_later_version_is_ignored() -> None:
    line = b'{"type":"phase_finished","at":1,"instance":2,"why":"done"}'
    assert greeted().read(line, NOW) == PhaseFinished(4.0, 2)


def test_a_few_lines_of_noise_are_told_and_survived_but_not_a_flood() -> None:
    reader = greeted()
    for _ in range(MAX_BAD_LINES):
        assert reader.read(b"\x1b[31mWarning: \xff noise", NOW) == BadLine("Warning: � noise")
    assert reader.read(encode_event(PhaseFinished(1.0, 1)), NOW) == PhaseFinished(4.0, 1)
    with pytest.raises(ProtocolError, match="no events"):
        reader.read(b"one more", NOW)


def test_a_worker_that_does_not_greet_first_is_refused() -> None:
    reader = EventReader(accepted=0.0, launched=0.0)
    with pytest.raises(ProtocolError, match="hello"):
        reader.read(encode_event(PhaseFinished(1.0, 1)), NOW)


@pytest.mark.parametrize("protocol", [0, 2, -1, 10**30])
def test_a_worker_of_another_protocol_is_refused_by_both_numbers(protocol: int) -> None:
    event: WorkerEvent = Hello(0.0, "replay", 7, protocol=protocol)
    with pytest.raises(ProtocolError, match=rf"protocol {protocol}, this server 1"):
        greeted().read(encode_event(event), NOW)
