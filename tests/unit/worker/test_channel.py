"""The event channel: nobody who emits waits, nothing of the build's course is lost."""

import os
import threading
import time
from pathlib import Path

import pytest

from tests.unit.worker.wire import TIMEOUT_S, Wire
from trt_agent_tools.model.events import (
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
from trt_agent_tools.worker import channel as channel_module
from trt_agent_tools.worker.channel import COALESCE_S, MAX_QUEUED_LOG_LINES, Channel


class Steps:
    """A source of steps that does what a test wants when it is asked for them."""

    callbacks = 7
    last_callback: float | None = 0.25

    def __init__(self) -> None:
        self.fresh: list[StepCompleted] = []

    def take_steps(self) -> list[StepCompleted]:
        taken, self.fresh = self.fresh, []
        return taken


def test_nobody_who_emits_waits_for_a_reader_who_does_not_read() -> None:
    slowest = 0.0
    with Wire() as wire:
        began = time.perf_counter()
        for instance in range(50_000):
            before = time.perf_counter()
            wire.channel.emit(PhaseFinished(0.0, instance))
            slowest = max(slowest, time.perf_counter() - before)
        total = time.perf_counter() - began
    # A pipe holds about a thousand of these: had one waited, it would have waited for ever. On a busy
    # machine this thread may lose the processor for a while all the same.
    assert total < 10
    assert slowest < 2
    assert wire.events == [PhaseFinished(0.0, instance) for instance in range(50_000)]


def test_events_are_read_in_the_order_of_their_times() -> None:
    expected: list[WorkerEvent] = [Hello(0.0, "replay", 1)]
    expected += [PhaseStarted(n / 1000, n, "phase", 1) for n in range(1, 500)]
    expected += [Goodbye(1.0, Outcome.SUCCEEDED)]
    with Wire() as wire:
        for event in expected:
            wire.channel.emit(event)
    assert wire.events == expected


def test_of_one_moment_the_start_comes_first_then_steps_then_the_end() -> None:
    steps = Steps()
    with Wire() as wire:
        wire.channel.attach(steps)
        wire.channel.emit(PhaseStarted(1.0, 1, "phase", 5))
        steps.fresh.append(StepCompleted(1.0, 1, 3))
        wire.channel.emit(PhaseFinished(1.0, 1))
        wire.channel.emit(Goodbye(1.0, Outcome.SUCCEEDED))
    assert [event.type for event in wire.events] == [
        "phase_started",
        "step_completed",
        "phase_finished",
        "goodbye",
    ]


def test_a_phase_that_begins_while_the_writer_fetches_steps_is_told_before_its_step() -> None:
    class Late(Steps):
        begun = False

        def take_steps(self) -> list[StepCompleted]:
            # Between two looks of the writer another thread began a phase and completed a step.
            if not self.begun:
                self.begun = True
                wire.channel.emit(PhaseStarted(1.0, 9, "late", 5))
                return [StepCompleted(1.0, 9, 0)]
            return []

    with Wire() as wire:
        wire.channel.attach(Late())
    assert [event.type for event in wire.of_instance(9)] == ["phase_started", "step_completed"]


def test_a_step_completed_while_the_writer_writes_is_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Far away, so that no heartbeat brings the step along.
    monkeypatch.setattr(channel_module, "HEARTBEAT_S", TIMEOUT_S)

    class During(Steps):
        calls = 0

        def take_steps(self) -> list[StepCompleted]:
            taken = super().take_steps()
            self.calls += 1
            if self.calls == 1:
                # The writer has looked and goes on to write; TensorRT completes a step.
                self.fresh.append(StepCompleted(1.0, 1, 4))
                wire.channel.nudge()
            return taken

    with Wire() as wire:
        wire.read()
        wire.channel.attach(During())
        wire.channel.emit(PhaseStarted(0.5, 1, "phase", 5))
        assert wire.wait_for(b'"step":4', timeout_s=5.0)


def test_what_is_emitted_is_read_within_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "HEARTBEAT_S", TIMEOUT_S)
    delays = []
    with Wire() as wire:
        wire.read()
        for instance in range(1000, 1050):
            before = time.monotonic()
            wire.channel.emit(PhaseFinished(0.0, instance))
            assert wire.wait_for(f'"instance":{instance}'.encode())
            delays.append(time.monotonic() - before)
    assert sorted(delays)[len(delays) // 2] < COALESCE_S + 0.05


def test_log_lines_are_bounded_while_nobody_reads_and_phases_are_not() -> None:
    message = "x" * 1000
    with Wire() as wire:
        for instance in range(10 * MAX_QUEUED_LOG_LINES):
            wire.channel.emit(LogLine(0.0, Severity.WARNING, message))
            wire.channel.emit(PhaseFinished(0.0, instance))
    lines = sum(isinstance(event, LogLine) for event in wire.events)
    # Those in the pipe, those that the writer holds, those that wait.
    assert MAX_QUEUED_LOG_LINES <= lines <= 3 * MAX_QUEUED_LOG_LINES
    finished = [event.instance for event in wire.events if isinstance(event, PhaseFinished)]
    assert finished == list(range(10 * MAX_QUEUED_LOG_LINES))


def test_log_lines_come_through_again_when_the_reader_reads() -> None:
    with Wire() as wire:
        for number in range(2 * MAX_QUEUED_LOG_LINES):
            wire.channel.emit(LogLine(0.0, Severity.WARNING, f"early {number} " + "x" * 1000))
        wire.read()
        wire.channel.emit(PhaseFinished(0.0, 1))
        assert wire.wait_for(b'"phase_finished"')
        wire.channel.emit(LogLine(0.0, Severity.ERROR, "the reason"))
    assert any(isinstance(e, LogLine) and e.message == "the reason" for e in wire.events)


def test_the_record_is_what_was_written_byte_for_byte(tmp_path: Path) -> None:
    record = tmp_path / "events.jsonl"
    with Wire(record) as wire:
        wire.channel.emit(Hello(0.0, "replay", 1))
        wire.channel.write_raw(b"\xffgarbage\n")
        for instance in range(5000):
            wire.channel.emit(PhaseFinished(0.0, instance))
    assert record.read_bytes() == wire.data
    assert b"\xffgarbage\n" in wire.data


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_record_and_not_the_channel() -> None:
    with Wire(Path("/dev/full")) as wire:
        wire.read()
        wire.channel.emit(Hello(0.0, "replay", 1))
        assert wire.wait_for(b"no longer recorded")
        wire.channel.emit(PhaseFinished(1.0, 1))
        wire.channel.emit(Goodbye(1.0, Outcome.SUCCEEDED))
    assert wire.events[0] == Hello(0.0, "replay", 1)
    assert wire.events[-1] == Goodbye(1.0, Outcome.SUCCEEDED)
    [warning] = [event for event in wire.events if isinstance(event, LogLine)]
    assert warning.severity is Severity.WARNING
    assert not wire.lost.is_set()


def test_a_reader_who_hangs_up_is_noticed_and_nobody_who_emits_is_troubled() -> None:
    with Wire() as wire:
        wire.hang_up()
        assert not wire.lost.is_set()
        wire.channel.emit(PhaseFinished(0.0, 1))
        assert wire.lost.wait(TIMEOUT_S)
        for instance in range(100):
            wire.channel.emit(PhaseFinished(0.0, instance))


def test_a_reader_who_hangs_up_is_noticed_by_a_silent_build_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_module, "HEARTBEAT_S", 0.05)
    with Wire() as wire:
        wire.hang_up()
        assert wire.lost.wait(TIMEOUT_S)


def test_a_heartbeat_tells_of_the_callbacks_while_nothing_else_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_module, "HEARTBEAT_S", 0.05)
    with Wire() as wire:
        wire.channel.attach(Steps())
        wire.read()
        assert wire.wait_for(b'"heartbeat"')
    beat = wire.events[0]
    assert isinstance(beat, Heartbeat)
    assert (beat.callbacks, beat.last_callback) == (7, 0.25)
    assert 0 < beat.at < TIMEOUT_S


def test_heartbeats_come_and_steps_are_told_in_a_burst_of_callbacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_module, "HEARTBEAT_S", 0.1)
    over = time.monotonic() + 1.0
    with Wire() as wire:
        recorder = wire.recorder()
        wire.read()
        recorder.phase_start("burst", None, 10**9)
        step = 0
        while time.monotonic() < over:
            recorder.step_complete("burst", step)
            step += 1
    beats = [event for event in wire.events if isinstance(event, Heartbeat)]
    steps = [event.step for event in wire.events if isinstance(event, StepCompleted)]
    assert len(beats) >= 3
    assert beats[-1].callbacks > 1000
    # Coalesced to some hundreds, the last one among them.
    assert 10 < len(steps) < 1 / COALESCE_S + 50
    assert steps[-1] == step - 1


def test_a_burst_that_does_not_end_is_told_while_it_lasts() -> None:
    with Wire() as wire:
        wire.read()
        for _ in range(2_000_000):
            wire.channel.emit(PhaseFinished(0.0, 1))
            if wire.data:
                break
        assert wire.data


def test_hooks_run_at_every_heartbeat_and_once_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel_module, "HEARTBEAT_S", 0.05)
    twice = threading.Semaphore(0)
    with Wire() as wire:
        wire.channel.each_heartbeat(twice.release)
        assert twice.acquire(timeout=TIMEOUT_S)
        assert twice.acquire(timeout=TIMEOUT_S)
    monkeypatch.setattr(channel_module, "HEARTBEAT_S", TIMEOUT_S)
    with Wire() as wire:
        last = wire.channel
        last.each_heartbeat(lambda: last.emit(LogLine(0.5, Severity.ERROR, "the last words")))
    assert wire.events == [LogLine(0.5, Severity.ERROR, "the last words")]


def test_closing_writes_all_that_was_emitted_before() -> None:
    for _ in range(50):
        with Wire() as wire:
            wire.channel.emit(Hello(0.0, "replay", 1))
            wire.channel.emit(Goodbye(0.0, Outcome.SUCCEEDED))
        assert [event.type for event in wire.events] == ["hello", "goodbye"]


def test_closing_gives_up_on_a_reader_who_does_not_read_and_says_so() -> None:
    reader, writer = os.pipe()
    held = Channel(writer, started=time.monotonic(), lost=lambda: None)
    held.emit(LogLine(0.0, Severity.ERROR, "x" * 200_000))
    began = time.monotonic()
    assert not held.close(0.1)
    assert time.monotonic() - began < TIMEOUT_S
    os.close(reader)
    assert held.close(TIMEOUT_S)
    os.close(writer)


def test_threads_that_emit_at_once_lose_nothing_and_break_no_line() -> None:
    def emit(first: int) -> None:
        for instance in range(first, first + 2000):
            wire.channel.emit(PhaseFinished(wire.channel.now(), instance))

    with Wire() as wire:
        wire.read()
        threads = [threading.Thread(target=emit, args=(n * 2000,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
    told = [event.instance for event in wire.events if isinstance(event, PhaseFinished)]
    assert sorted(told) == list(range(8000))
    assert encode_event(wire.events[0]) in wire.data
