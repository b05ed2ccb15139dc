"""The event channel: takes events from any thread without ever blocking it, writes them in one.

TensorRT's callbacks come in bursts of hundreds of thousands a second and hold up the build while
they run. So a caller only appends to a queue in memory; one thread of this module's does the waiting.
Steps are coalesced to the latest of each phase; nothing else of the build's course is dropped.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trt_agent_tools.model.events import (
    HEARTBEAT_S,
    Goodbye,
    Heartbeat,
    LogLine,
    PhaseFinished,
    Severity,
    StepCompleted,
    WorkerEvent,
    encode_event,
)

COALESCE_S = 0.005
"""After waking, the writer waits this long for more: a burst becomes one write."""

MAX_QUEUED_LOG_LINES = 500
"""Log lines wait here while the reader is slow; more are left to the log file alone."""


class StepSource(Protocol):
    """Where the writer fetches the latest steps and what a heartbeat tells."""

    def take_steps(self) -> list[StepCompleted]:
        """Return the latest step of each phase that has a new one, and forget them."""

    @property
    def callbacks(self) -> int:
        """How many callbacks TensorRT has made."""

    @property
    def last_callback(self) -> float | None:
        """When the latest was, in seconds since the worker's start."""


class Deferred(Protocol):
    """An event that is made in the writer's thread: making it would cost a callback too much.

    `is_end` tells that it comes after what else happened at its time.
    """

    at: float
    is_end: bool

    def event(self) -> WorkerEvent:
        """Return the event."""


@dataclass(frozen=True, slots=True)
class _Raw:
    at: float
    data: bytes


class Channel:
    """Writes events as lines to a file descriptor, in order, from a thread of its own.

    `lost` is called, in the writer's thread, when the reader is gone. With `record` every line is
    also appended to that file, which the replay backend can play.
    """

    def __init__(
        self,
        descriptor: int,
        *,
        started: float,
        lost: Callable[[], None],
        record: Path | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._started = started
        self._lost = lost
        self._record = os.fdopen(_private(record), "ab", buffering=0) if record else None
        self._queue: deque[WorkerEvent | Deferred | _Raw] = deque()
        self._queued_log_lines = 0
        self._asleep = True
        self._wake = threading.Event()
        self._closing = False
        self._steps: StepSource | None = None
        self._hooks: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="event-channel", daemon=True)
        self._thread.start()

    def now(self) -> float:
        """Return the seconds since the worker's start."""
        return time.monotonic() - self._started

    def attach(self, steps: StepSource) -> None:
        """Fetch steps from here before each write."""
        self._steps = steps

    def each_heartbeat(self, hook: Callable[[], None]) -> None:
        """Call `hook` in the writer's thread about once a second, and once before the end."""
        self._hooks.append(hook)

    def emit(self, event: WorkerEvent) -> None:
        """Queue `event`. Takes microseconds, never blocks, may be called from any thread."""
        if isinstance(event, LogLine):
            if self._queued_log_lines >= MAX_QUEUED_LOG_LINES:
                return
            self._queued_log_lines += 1
        self._queue.append(event)
        self.nudge()

    def emit_later(self, deferred: "Deferred") -> None:
        """Queue an event that is not made yet; otherwise as `emit`, but cheaper."""
        self._queue.append(deferred)
        if self._asleep:
            self.nudge()

    def write_raw(self, data: bytes) -> None:
        """Queue bytes as they are, between two lines: the replay backend breaks the protocol so."""
        self._queue.append(_Raw(self.now(), data))
        self.nudge()

    def nudge(self) -> None:
        """Tell the writer that there is something to fetch."""
        if self._asleep:
            self._asleep = False
            self._wake.set()

    def close(self, timeout_s: float) -> bool:
        """Write what is queued and stop. Return whether all of it was written in time."""
        self._closing = True
        self._wake.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        beat_at = time.monotonic() + HEARTBEAT_S
        while True:
            closing = self._closing
            if not closing:
                self._wake.wait(max(0.0, beat_at - time.monotonic()))
            self._asleep = False
            if not (closing or self._closing):
                time.sleep(COALESCE_S)
            if closing or time.monotonic() >= beat_at:
                beat_at = time.monotonic() + HEARTBEAT_S
                for hook in self._hooks:
                    hook()
                if not closing:
                    self._beat()
            # Whoever comes from here on may have missed this batch, and wakes the writer for the next.
            self._wake.clear()
            self._asleep = True
            if not self._write(self._drain()) or closing:
                self._close_record()
                return

    def _close_record(self) -> None:
        if self._record:
            self._record.close()
            self._record = None

    def _beat(self) -> None:
        steps = self._steps
        self._queue.append(
            Heartbeat(
                self.now(),
                callbacks=steps.callbacks if steps else 0,
                last_callback=steps.last_callback if steps else None,
                cpu_s=round(time.process_time(), 3),
            )
        )

    def _drain(self) -> bytes:
        # Steps first: the start of each one's phase was queued before it, so that it is in this batch
        # or was in an earlier one.
        steps = self._steps.take_steps() if self._steps else []
        # No more than wait now: in a long burst the queue is never empty.
        batch: list[WorkerEvent | Deferred | _Raw] = [
            self._queue.popleft() for _ in range(len(self._queue))
        ]
        self._queued_log_lines = 0
        batch.extend(steps)
        # At one time, ends come after the steps.
        batch.sort(key=lambda event: (event.at, _comes_last(event)))
        return b"".join(map(_encode, batch))

    def _write(self, data: bytes) -> bool:
        self._keep(data)
        view = memoryview(data)
        while view:
            try:
                written = os.write(self._descriptor, view)
            except OSError:
                # The reader is gone; the worker has nobody to build for.
                self._lost()
                return False
            view = view[written:]
        return True

    def _keep(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while self._record and view:
                view = view[self._record.write(view) :]
        except OSError as error:
            # A full disk, most likely. The build does not need the record; its reader is told.
            self._close_record()
            self.emit(
                LogLine(
                    self.now(),
                    Severity.WARNING,
                    f"the events are no longer recorded: {error.strerror}",
                )
            )


def _private(path: Path) -> int:
    # It names what is in the model; only its user may read it.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _comes_last(item: WorkerEvent | Deferred | _Raw) -> bool:
    return isinstance(item, PhaseFinished | Goodbye) or getattr(item, "is_end", False)


def _encode(item: WorkerEvent | Deferred | _Raw) -> bytes:
    if isinstance(item, _Raw):
        return item.data
    return encode_event(item if isinstance(item, WorkerEvent) else item.event())
