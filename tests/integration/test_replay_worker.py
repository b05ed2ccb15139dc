"""Replays in a real worker process: over its pipes, with its signals and its files."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.event_lines import WORKER_EVENT
from trt_agent_tools.model.events import (
    MAX_LINE_BYTES,
    PROTOCOL,
    EngineWritten,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    LogLine,
    Outcome,
    PhaseFinished,
    PhaseStarted,
    Ready,
    StepCompleted,
    WorkerEvent,
)
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import BuildOrder

DATA = Path(__file__).parents[1] / "data"
LIMIT_S = 20.0
DO = Mapping[str, object]


class Worker:
    """A worker that plays a recording; its lines are read with a time limit."""

    def __init__(self, folder: Path, recording: bytes, record: Path | None = None) -> None:
        model = folder / "recording.jsonl"
        model.write_bytes(recording)
        self.output = folder / "out.engine"
        self.log = folder / "log"
        self.order = BuildOrder(
            protocol=PROTOCOL,
            build_id="b-1",
            backend="replay",
            model=str(model),
            output=str(self.output),
            partial_engine=f"{self.output}.partial",
            manifest=f"{self.output}.json",
            partial_manifest=f"{self.output}.json.partial",
            roots=[str(folder)],
            options=BuildOptions(),
            record=str(record) if record else None,
            device="cpu",
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "trt_agent_tools.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self.process.stdin
        assert self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.lines: list[bytes] = []
        self._buffer = b""
        self.tell(self.order.model_dump_json())

    def tell(self, line: str) -> None:
        self.stdin.write(line.encode() + b"\n")
        self.stdin.flush()

    def cancel(self) -> None:
        self.tell('{"type":"cancel","reason":"a test asked"}')

    def next_line(self) -> bytes | None:
        """Return the next line with its newline, the rest without one, or None at the end."""
        deadline = time.monotonic() + LIMIT_S
        while b"\n" not in self._buffer:
            wait_s = max(0.0, deadline - time.monotonic())
            assert select.select([self.stdout], [], [], wait_s)[0], "the worker says nothing"
            data = os.read(self.stdout.fileno(), 65536)
            self._buffer += data
            if not data:
                break
        end = self._buffer.find(b"\n") + 1 or len(self._buffer)
        line, self._buffer = self._buffer[:end], self._buffer[end:]
        if line:
            self.lines.append(line)
        return line or None

    def until(self, found: Callable[[WorkerEvent], bool]) -> WorkerEvent:
        while line := self.next_line():
            event = WORKER_EVENT.validate_json(line)
            if found(event):
                return event
        raise AssertionError("the channel ended first")

    def until_phase(self, name: str) -> PhaseStarted:
        event = self.until(lambda event: isinstance(event, PhaseStarted) and event.name == name)
        assert isinstance(event, PhaseStarted)
        return event

    def end(self) -> int:
        """Read to the end of the channel and return the exit status."""
        while self.next_line():
            pass
        return self.process.wait(LIMIT_S)

    def events(self) -> list[WorkerEvent]:
        return [WORKER_EVENT.validate_json(line) for line in self.lines]

    def left_in_folder(self) -> set[str]:
        return {path.name for path in self.output.parent.iterdir()} - {"log", "recording.jsonl"}


@contextmanager
def replay(
    folder: Path,
    name: str,
    *actions: DO,
    more: bytes = b"",
    record: Path | None = None,
    **settings: object,
) -> Iterator[Worker]:
    line = json.dumps({"type": "replay", "actions": list(actions), **settings}).encode()
    worker = Worker(folder, line + b"\n" + (DATA / name).read_bytes() + more, record)
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait(LIMIT_S)
        worker.stdin.close()
        worker.stdout.close()


def names(events: list[WorkerEvent]) -> list[tuple[str, int]]:
    kinds = (PhaseStarted, StepCompleted, PhaseFinished)
    return [(e.type, e.instance) for e in events if isinstance(e, kinds)]


def test_a_replay_is_a_build_with_all_its_events_in_order_and_an_engine(tmp_path: Path) -> None:
    recorded = [
        WORKER_EVENT.validate_json(line)
        for line in (DATA / "quick.jsonl").read_bytes().splitlines()
    ]
    with replay(tmp_path, "quick.jsonl", engine_bytes=70_000) as worker:
        assert worker.end() == 0
        events = worker.events()
    assert isinstance(events[0], Hello)
    assert (events[0].pid, events[0].backend) == (worker.process.pid, "replay")
    assert sum(isinstance(event, Hello) for event in events) == 1
    assert sum(isinstance(event, Ready) for event in events) == 1
    assert names(events) == names(recorded)
    assert all(a.at <= b.at for a, b in pairwise(events))
    assert isinstance(events[-1], Goodbye)
    assert events[-1].outcome is Outcome.SUCCEEDED
    engine = worker.output.read_bytes()
    (written,) = [event for event in events if isinstance(event, EngineWritten)]
    assert written.path == str(worker.output)
    assert (written.bytes, written.sha256) == (70_000, sha256(engine).hexdigest())
    manifest = Manifest.model_validate_json(Path(worker.order.manifest).read_bytes())
    assert (manifest.backend, manifest.library) == ("replay", "replay")
    assert manifest.engine.sha256 == written.sha256
    assert manifest.model.sha256 == sha256(Path(worker.order.model).read_bytes()).hexdigest()
    assert worker.left_in_folder() == {"out.engine", "out.engine.json"}


def test_what_a_worker_records_can_be_played_again(tmp_path: Path) -> None:
    record = tmp_path / "events.jsonl"
    for number, recording in enumerate((DATA / "quick.jsonl", record)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with replay(folder, str(recording), record=record if number == 0 else None) as worker:
            assert worker.end() == 0
            events = worker.events()
        assert names(events) == names(
            [WORKER_EVENT.validate_json(line) for line in recording.read_bytes().splitlines()]
        )
        assert worker.output.exists()


def test_a_replay_waits_for_real_and_speed_shortens_it(tmp_path: Path) -> None:
    with replay(tmp_path, "silent_step.jsonl", speed=20) as worker:
        step = worker.until_phase("Determining refit engines")
        done = worker.until(lambda e: isinstance(e, StepCompleted) and e.instance == step.instance)
        assert worker.end() == 0
    assert 0.85 <= done.at - step.at < 18


def test_heartbeats_tell_the_callbacks_played(tmp_path: Path) -> None:
    with replay(tmp_path, "silent_step.jsonl", speed=8) as worker:
        step = worker.until_phase("Determining refit engines")
        beat = worker.until(lambda event: isinstance(event, Heartbeat) and event.at > step.at)
    assert isinstance(beat, Heartbeat)
    assert beat.callbacks > 20
    assert beat.last_callback == pytest.approx(step.at)


def test_cancel_in_a_silent_step_is_seen_when_the_step_ends(tmp_path: Path) -> None:
    with replay(tmp_path, "silent_step.jsonl", speed=20) as worker:
        step = worker.until_phase("Determining refit engines")
        worker.cancel()
        assert worker.end() == 0
        events = worker.events()
    assert isinstance(events[-1], Goodbye)
    assert events[-1].outcome is Outcome.CANCELLED
    assert events[-1].at - step.at >= 0.85
    started = [e.instance for e in events if isinstance(e, PhaseStarted)]
    assert sorted(started) == sorted(e.instance for e in events if isinstance(e, PhaseFinished))
    assert worker.left_in_folder() == set()


def test_cancel_of_a_responsive_replay_is_seen_inside_a_silent_step(tmp_path: Path) -> None:
    with replay(tmp_path, "silent_step.jsonl", responsive=True) as worker:
        step = worker.until_phase("Determining refit engines")
        worker.cancel()
        assert worker.end() == 0
        last = worker.events()[-1]
    assert isinstance(last, Goodbye)
    assert last.outcome is Outcome.CANCELLED
    assert last.at - step.at < 9


def test_cancel_in_the_workers_own_phase_is_seen_at_once(tmp_path: Path) -> None:
    with replay(tmp_path, "silent_step.jsonl", speed=0.1) as worker:
        worker.until_phase("Importing TensorRT")
        worker.cancel()
        assert worker.end() == 0
        assert [e.outcome for e in worker.events() if isinstance(e, Goodbye)] == [Outcome.CANCELLED]


@pytest.mark.parametrize(
    ("phase", "actions"),
    [
        ("Writing the engine", []),
        ("Importing TensorRT", [{"at": 0, "do": "ignore_cancel"}]),
        ("Parsing the model", [{"at": 0, "do": "finish_late", "after_s": 0.1}]),
    ],
    ids=["complete", "ignored", "late"],
)
def test_a_cancel_that_comes_too_late_leaves_a_success(
    tmp_path: Path, phase: str, actions: list[DO]
) -> None:
    with replay(tmp_path, "quick.jsonl", *actions, speed=0.2) as worker:
        worker.until_phase(phase)
        worker.cancel()
        assert worker.end() == 0
        events = worker.events()
    assert isinstance(events[-1], Goodbye)
    assert events[-1].outcome is Outcome.SUCCEEDED
    assert sum(isinstance(event, EngineWritten) for event in events) == 1
    assert worker.left_in_folder() == {"out.engine", "out.engine.json"}


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL", "SIGTERM"])
def test_a_crash_is_seen_as_that_signal_and_comes_after_the_events_before_it(
    tmp_path: Path, name: str
) -> None:
    with replay(
        tmp_path, "quick.jsonl", {"at": 0.13, "do": "crash", "signal": name}, speed=5
    ) as worker:
        assert worker.end() == -signal.Signals[name]
        events = worker.events()
    assert isinstance(events[-1], PhaseStarted)
    assert events[-1].name == "Determining refit engines"
    assert worker.left_in_folder() == set()


def test_an_exit_comes_without_goodbye(tmp_path: Path) -> None:
    with replay(
        tmp_path, "quick.jsonl", {"at": 0.13, "do": "exit", "status": 7}, speed=5
    ) as worker:
        assert worker.end() == 7
        assert not any(isinstance(event, Goodbye | Failed) for event in worker.events())


def test_half_a_line_at_the_end_of_the_channel(tmp_path: Path) -> None:
    with replay(
        tmp_path, "quick.jsonl", {"at": 0.13, "do": "half_line", "then": "exit"}, speed=5
    ) as worker:
        assert worker.end() == 0
        *whole, half = worker.lines
    assert whole[-1].endswith(b"\n")
    assert half.startswith(b'{"at":')
    assert not half.endswith(b"\n")


def test_garbage_and_half_a_line_break_one_line_each(tmp_path: Path) -> None:
    with replay(
        tmp_path,
        "quick.jsonl",
        {"at": 0.13, "do": "garbage", "text": "no JSON"},
        {"at": 0.13, "do": "half_line"},
        speed=5,
    ) as worker:
        assert worker.end() == 0
        broken = [line for line in worker.lines if not is_event(line)]
    assert broken[0] == b"no JSON\n"
    assert broken[1].count(b'{"at":') == 2
    assert len(broken) == 2


def is_event(line: bytes) -> bool:
    try:
        WORKER_EVENT.validate_json(line)
    except ValueError:
        return False
    return True


def test_arbitrary_bytes_a_long_line_and_another_protocol(tmp_path: Path) -> None:
    with replay(
        tmp_path,
        "quick.jsonl",
        {"at": 0.1, "do": "wrong_protocol", "protocol": 2},
        {"at": 0.1, "do": "garbage", "size": 500},
        {"at": 0.13, "do": "long_line"},
        speed=5,
    ) as worker:
        assert worker.end() == 0
    good = [WORKER_EVENT.validate_json(line) for line in worker.lines if is_event(line)]
    assert [e.protocol for e in good if isinstance(e, Hello)] == [PROTOCOL, 2]
    assert max(map(len, worker.lines)) > MAX_LINE_BYTES
    assert any(b"\xff" in line for line in worker.lines)


@pytest.mark.parametrize(("of", "kind"), [("steps", StepCompleted), ("phases", PhaseStarted)])
def test_a_flood_is_sent_whole(tmp_path: Path, of: str, kind: type[WorkerEvent]) -> None:
    flood = {"at": 0.13, "do": "flood", "count": 5000, "of": of}
    with replay(tmp_path, "quick.jsonl", flood, speed=5) as worker:
        assert worker.end() == 0
        events = worker.events()
    recorded = {e.instance for e in events if isinstance(e, PhaseStarted) and e.name != "Flood"}
    sent = [e for e in events if isinstance(e, kind) and getattr(e, "instance", 0) not in recorded]
    assert len(sent) == 5000


@pytest.mark.parametrize("hang", [{"do": "hang_idle"}, {"do": "half_line", "then": "hang"}])
def test_a_hung_worker_ends_when_its_orders_end(tmp_path: Path, hang: DO) -> None:
    with replay(tmp_path, "quick.jsonl", {"at": 0.13, **hang}, speed=5) as worker:
        worker.until_phase("Determining refit engines")
        worker.cancel()
        worker.stdin.close()
        assert worker.end() == 3
    assert worker.left_in_folder() == set()


def test_a_worker_told_to_ignores_sigterm_and_another_dies_of_it(tmp_path: Path) -> None:
    hang = {"at": 0.13, "do": "hang_idle"}
    with replay(tmp_path, "quick.jsonl", hang, speed=5) as worker:
        worker.until_phase("Determining refit engines")
        worker.process.terminate()
        assert worker.end() == -signal.SIGTERM
    deaf = {"at": 0.1, "do": "ignore_sigterm"}
    with replay(tmp_path, "quick.jsonl", deaf, hang, speed=5) as worker:
        phase = worker.until_phase("Determining refit engines")
        worker.process.terminate()
        worker.until(lambda event: isinstance(event, Heartbeat) and event.at > phase.at + 1)
        worker.process.kill()
        assert worker.end() == -signal.SIGKILL


@pytest.mark.parametrize("busy", [True, False])
def test_burning_uses_the_processor_and_hanging_does_not(tmp_path: Path, busy: bool) -> None:
    action = {"at": 0.13, "do": "burn_cpu" if busy else "hang_idle", "for_s": 60}
    with replay(tmp_path, "quick.jsonl", action, speed=5) as worker:
        phase = worker.until_phase("Determining refit engines")
        before = sum(psutil.Process(worker.process.pid).cpu_times()[:2])
        worker.until(lambda event: isinstance(event, Heartbeat) and event.at > phase.at + 1)
        used = sum(psutil.Process(worker.process.pid).cpu_times()[:2]) - before
    assert used > 0.3 if busy else used < 0.3


def test_burning_fills_the_gap_and_the_build_takes_no_longer(tmp_path: Path) -> None:
    with replay(tmp_path, "silent_step.jsonl", {"at": 1.2, "do": "burn_cpu"}, speed=20) as worker:
        step = worker.until_phase("Determining refit engines")
        after = worker.until(lambda event: isinstance(event, StepCompleted))
        assert worker.end() == 0
    assert 0.85 <= after.at - step.at < 18


def test_hanging_delays_what_follows(tmp_path: Path) -> None:
    with replay(
        tmp_path, "quick.jsonl", {"at": 0.13, "do": "hang_idle", "for_s": 0.5}, speed=5
    ) as worker:
        step = worker.until_phase("Determining refit engines")
        after = worker.until(lambda event: isinstance(event, StepCompleted))
        assert worker.end() == 0
    assert after.at - step.at >= 0.51


@pytest.mark.parametrize("new_session", [True, False])
def test_a_grandchild_outlives_the_worker_and_is_in_the_log(
    tmp_path: Path, new_session: bool
) -> None:
    with replay(
        tmp_path,
        "quick.jsonl",
        {
            "at": 0.1,
            "do": "grandchild",
            "new_session": new_session,
            "ignore_sigterm": True,
            "for_s": 60,
        },
        speed=5,
    ) as worker:
        assert worker.end() == 0
        child = psutil.Process(int(worker.log.read_text().rpartition("pid ")[2]))
        try:
            assert child.is_running()
            assert (os.getsid(child.pid) == worker.process.pid) is not new_session
            child.terminate()
            with pytest.raises(psutil.TimeoutExpired):
                child.wait(0.2)
        finally:
            child.kill()


def test_prints_and_recorded_log_lines_reach_the_log_and_not_the_channel(tmp_path: Path) -> None:
    warning = b'{"type":"log","at":0.31,"severity":"warning","message":"rather slow"}\n'
    show = {"at": 0, "do": "print", "text": "native"}
    with replay(tmp_path, "quick.jsonl", show, more=warning, speed=5) as worker:
        assert worker.end() == 0
    assert worker.log.read_text() == "native\nnative\n[TRT] [W] rather slow\n"
    assert [e.message for e in worker.events() if isinstance(e, LogLine)] == ["rather slow"]


def test_a_stopped_worker_goes_on_when_it_is_continued(tmp_path: Path) -> None:
    with replay(tmp_path, "quick.jsonl", {"at": 0.13, "do": "stop_self"}, speed=5) as worker:
        assert os.waitid(os.P_PID, worker.process.pid, os.WSTOPPED)
        worker.process.send_signal(signal.SIGCONT)
        assert worker.end() == 0


def test_allocated_memory_is_really_taken(tmp_path: Path) -> None:
    with replay(
        tmp_path,
        "quick.jsonl",
        {"at": 0.1, "do": "allocate", "bytes": 200_000_000},
        {"at": 0.13, "do": "hang_idle"},
        speed=5,
    ) as worker:
        worker.until_phase("Determining refit engines")
        assert psutil.Process(worker.process.pid).memory_info().rss > 200_000_000


def failure_of(worker: Worker) -> Failed:
    assert worker.end() == 1
    *_, failed, goodbye = worker.events()
    assert isinstance(failed, Failed)
    assert isinstance(goodbye, Goodbye)
    assert goodbye.outcome is Outcome.FAILED
    return failed


def test_a_replay_fails_as_it_is_told(tmp_path: Path) -> None:
    fail = {"at": 0.1, "do": "fail", "code": "out_of_memory", "message": "no room", "hint": "buy"}
    with replay(tmp_path, "quick.jsonl", fail, speed=5) as worker:
        error = failure_of(worker).error
    assert (error.code, error.message, error.hint) == (ErrorCode.OUT_OF_MEMORY, "no room", "buy")
    assert worker.left_in_folder() == set()


def test_a_file_that_is_not_valid_fails_the_build_and_the_line_is_named(tmp_path: Path) -> None:
    with replay(tmp_path, "quick.jsonl", {"at": 0.1, "do": "dance"}) as worker:
        error = failure_of(worker).error
    assert error.code is ErrorCode.INVALID_MODEL
    assert "line 1" in error.message


def test_an_output_that_is_there_already_is_kept(tmp_path: Path) -> None:
    (tmp_path / "out.engine").write_text("mine")
    with replay(tmp_path, "quick.jsonl", speed=5) as worker:
        assert failure_of(worker).error.code is ErrorCode.OUTPUT_EXISTS
    assert (tmp_path / "out.engine").read_text() == "mine"
    assert worker.left_in_folder() == {"out.engine"}
