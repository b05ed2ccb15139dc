"""What a callback costs inside the monitor, in a burst and with nobody reading the events.

The monitor is the worker's own, in this process; the reader of its pipe is another. TensorRT itself does
not run, but its C++ interface is the real one: callbacks go through it, and also straight into the
recorder, which tells the interface's share.
"""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import psutil
import tensorrt_rtx  # type: ignore[import-untyped]

from tests.benchmarks.harness import Row, percentile, print_table, spread
from trt_agent_tools.worker.channel import Channel
from trt_agent_tools.worker.recorder import PhaseRecorder, make_monitor
from trt_agent_tools.worker.stop import Stop

BURST = 100_000
ROUNDS = 7
UNREAD_S = 2.0
PACE_S = 0.02
PER_PACE = 100
"""Phases of four callbacks each: 20,000 callbacks a second."""
CLOSE_S = 30.0
NAME = "Computing reformatting costs"

READER = """\
import sys
lines = starts = 0
for line in sys.stdin.buffer:
    lines += 1
    starts += b'"phase_started"' in line
print(lines, starts)
"""


@dataclass(frozen=True)
class Callbacks:
    """The three callbacks, by one way or another."""

    start: Callable[[str, str | None, int], object]
    step: Callable[[str, int], object]
    finish: Callable[[str], object]


def straight(recorder: PhaseRecorder) -> Callbacks:
    """Call the recorder itself."""
    return Callbacks(recorder.phase_start, recorder.step_complete, recorder.phase_finish)


def through_cpp(monitor: object) -> Callbacks:
    """Call a monitor as TensorRT does: by the virtual functions of the C++ interface."""
    base = tensorrt_rtx.IProgressMonitor
    return Callbacks(
        partial(base.phase_start, monitor),
        partial(base.step_complete, monitor),
        partial(base.phase_finish, monitor),
    )


def empty() -> Callbacks:
    """Do nothing behind the C++ interface: what is left is the price of being called."""
    members = {
        "phase_start": staticmethod(lambda _name, _parent, _steps: None),
        "step_complete": staticmethod(lambda _name, _step: True),
        "phase_finish": staticmethod(lambda _name: None),
    }
    return through_cpp(type("EmptyMonitor", (tensorrt_rtx.IProgressMonitor,), members)())


def steps(call: Callbacks) -> None:
    """Make 100,000 callbacks, nearly all of them steps of one phase."""
    step = call.step
    call.start(NAME, None, BURST)
    for number in range(BURST - 2):
        step(NAME, number)
    call.finish(NAME)


def phases(call: Callbacks, count: int = BURST // 4) -> None:
    """Make 100,000 callbacks: phases that come, take two steps and go."""
    start, step, finish = call.start, call.step, call.finish
    for _ in range(count):
        start(NAME, None, 2)
        step(NAME, 0)
        step(NAME, 1)
        finish(NAME)


@dataclass
class Clocked:
    """Notes what each callback took, in nanoseconds, the clock's own cost included."""

    took: list[int] = field(default_factory=list)

    def around(self, call: Callbacks) -> Callbacks:
        """Return the same callbacks, clocked."""
        clock, note = time.perf_counter_ns, self.took.append

        def start(name: str, parent: str | None, count: int) -> None:
            before = clock()
            call.start(name, parent, count)
            note(clock() - before)

        def step(name: str, number: int) -> None:
            before = clock()
            call.step(name, number)
            note(clock() - before)

        def finish(name: str) -> None:
            before = clock()
            call.finish(name)
            note(clock() - before)

        return Callbacks(start, step, finish)


@dataclass
class Recording:
    """A recorder on a channel, and what the channel's reader counted once it is closed."""

    recorder: PhaseRecorder
    reader: psutil.Process
    written: bool = False
    starts: int = 0


@contextmanager
def recording() -> Iterator[Recording]:
    """Give a recorder; on leaving, what it was told is written and counted."""
    # What an earlier round left is in cycles: every round finds the same memory.
    gc.collect()
    read_end, write_end = os.pipe()
    reader = subprocess.Popen(
        [sys.executable, "-c", READER], stdin=read_end, stdout=subprocess.PIPE
    )
    os.close(read_end)
    channel = Channel(write_end, started=time.monotonic(), lost=lambda: None)
    made = Recording(PhaseRecorder(channel, Stop()), psutil.Process(reader.pid))
    yield made
    made.written = channel.close(CLOSE_S)
    os.close(write_end)
    made.starts = int(reader.communicate(timeout=CLOSE_S)[0].split()[1])


def mean_us(burst: Callable[[Callbacks], None], call: Callbacks) -> float:
    """Return what a callback of a burst took on average, in microseconds."""
    before = time.perf_counter_ns()
    burst(call)
    return (time.perf_counter_ns() - before) / BURST / 1000


def bursts(burst: Callable[[Callbacks], None]) -> list[Row]:
    """Measure one kind of burst: rounds on the average, and rounds on each callback."""
    inside: list[float] = []
    called: list[float] = []
    nothing: list[float] = []
    for _ in range(ROUNDS):
        with recording() as made:
            inside.append(mean_us(burst, straight(made.recorder)))
        with recording() as made:
            monitor = make_monitor(tensorrt_rtx.IProgressMonitor, made.recorder)
            called.append(mean_us(burst, through_cpp(monitor)))
        nothing.append(mean_us(burst, empty()))
    each = singles(burst)
    with uncollected():
        spared = []
        for _ in range(ROUNDS):
            with recording() as made:
                spared.append(mean_us(burst, straight(made.recorder)))
        each_spared = singles(burst)
    name = burst.__name__
    return [
        # A worker builds with the garbage collector off.
        Row(
            f"{name}: inside, collector off, as built", median(spared), "us", 2.0, 2, spread(spared)
        ),
        Row(
            f"{name}: inside the monitor, collector on",
            median(inside),
            "us",
            None,
            2,
            spread(inside),
        ),
        Row(f"{name}: as TensorRT calls it", median(called), "us", None, 2, spread(called)),
        Row(f"{name}: an empty monitor, likewise", median(nothing), "us", None, 2, spread(nothing)),
        Row(f"{name}: single, p99", percentile(each, 0.99), "us", None, 2, f"n={len(each)}"),
        Row(f"{name}: single, p99.99", percentile(each, 0.9999), "us", None, 0),
        Row(f"{name}: single, worst", max(each), "us", None, 0),
        Row(f"{name}: single, worst, collector off", max(each_spared), "us", None, 0),
    ]


def singles(burst: Callable[[Callbacks], None]) -> list[float]:
    """Return what each callback of some bursts took, in microseconds."""
    clocked = Clocked()
    for _ in range(ROUNDS):
        with recording() as made:
            burst(clocked.around(straight(made.recorder)))
    return [nanoseconds / 1000 for nanoseconds in clocked.took]


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch Python's cyclic garbage collector off meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def unread() -> list[Row]:
    """Measure callbacks while the reader is stopped and the pipe is full."""
    clocked = Clocked()
    with recording() as made:
        call = clocked.around(straight(made.recorder))
        made.reader.send_signal(signal.SIGSTOP)
        until = time.monotonic() + UNREAD_S
        begun = 0
        while time.monotonic() < until:
            phases(call, PER_PACE)
            begun += PER_PACE
            time.sleep(PACE_S)
        made.reader.send_signal(signal.SIGCONT)
    each = [nanoseconds / 1e6 for nanoseconds in clocked.took]
    return [
        Row("callbacks made meanwhile", len(each), "", None, 0),
        Row("single, p99", percentile(each, 0.99), "ms", None, 3),
        Row("single, worst", max(each), "ms", 50, 3),
        Row("phases that the reader never got", begun - made.starts, "", 0, 0),
    ]


def main() -> None:
    """Print the tables."""
    print_table(f"Callbacks in bursts of {BURST:,}", [*bursts(steps), *bursts(phases)])
    print_table(f"Callbacks with the pipe's reader stopped for {UNREAD_S:g} s", unread())


if __name__ == "__main__":
    main()
