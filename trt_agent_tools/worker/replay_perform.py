"""Does what an action says, for real, in this process."""

import math
import os
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import singledispatch
from hashlib import sha256, shake_256
from typing import NoReturn

from trt_agent_tools.model.events import (
    Heartbeat,
    Hello,
    PhaseFinished,
    PhaseStarted,
    StepCompleted,
    encode_event,
)
from trt_agent_tools.worker.channel import Channel
from trt_agent_tools.worker.cuda import Gpu
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.replay_actions import (
    Allocate,
    BurnGpu,
    Crash,
    Exit,
    Fail,
    FinishLate,
    Flood,
    Garbage,
    Grandchild,
    HalfLine,
    HangIdle,
    HoldGpuMemory,
    IgnoreCancel,
    IgnoreSigterm,
    LongLine,
    Print,
    ReplayAction,
    StopSelf,
    WrongProtocol,
)
from trt_agent_tools.worker.stop import Stop

_FLUSH_S = 1.0
_CHILD_READY_S = 10.0
_PAUSE_S = 3600.0
_PAGE = b"\x01" * 4096
_BLOCK = bytes(1 << 20)

# The child says when its signals are set, so that nobody can end it before it resists.
_CHILD = """\
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "ignore" else signal.SIG_DFL)
sys.stdout.write(".")
sys.stdout.flush()
time.sleep(float(sys.argv[2]))
"""


@dataclass(slots=True)
class Stage:
    """What actions work on, and the marks that they leave for the player."""

    channel: Channel
    next_instance: int
    ignores_cancel: bool = False
    late_s: float | None = None
    held: list[bytearray] = field(default_factory=list)
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    gpu: Gpu | None = None


def burn_cpu(until: float, stop: Stop | None) -> bool:
    """Keep one core busy until this time of `time.monotonic`, or until `stop` is asked.

    Return whether it was. Python's lock is free meanwhile, as it is while TensorRT builds.
    """
    while time.monotonic() < until:
        if stop and stop.asked:
            return True
        sha256(_BLOCK)
    return False


@singledispatch
def perform(action: ReplayAction, _stage: Stage) -> None:
    """Do what `action` says, now. Return when it is done; some never return.

    Raises:
        BuildFault: the action is to fail.
    """
    raise NotImplementedError(type(action).__name__)


@perform.register
def _hang_idle(action: HangIdle, _stage: Stage) -> None:
    if action.for_s is None:
        _hang()
    time.sleep(action.for_s)


@perform.register
def _ignore_cancel(_action: IgnoreCancel, stage: Stage) -> None:
    stage.ignores_cancel = True


@perform.register
def _ignore_sigterm(_action: IgnoreSigterm, _stage: Stage) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@perform.register
def _finish_late(action: FinishLate, stage: Stage) -> None:
    stage.late_s = action.after_s


@perform.register
def _crash(action: Crash, stage: Stage) -> None:
    number = signal.Signals[action.signal]
    # Nobody needs a core file of a crash that was asked for.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    stage.channel.close(_FLUSH_S)
    if number is not signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


@perform.register
def _exit(action: Exit, stage: Stage) -> None:
    _leave(stage, action.status)


@perform.register
def _garbage(action: Garbage, stage: Stage) -> None:
    if action.text is None:
        data = shake_256(b"garbage").digest(action.size)
    else:
        data = action.text.encode("utf-8", "surrogatepass")
    stage.channel.write_raw(data + b"\n")


@perform.register
def _half_line(action: HalfLine, stage: Stage) -> None:
    line = encode_event(Heartbeat(stage.channel.now()))
    stage.channel.write_raw(line[: len(line) // 2])
    if action.then == "exit":
        _leave(stage, 0)
    if action.then == "hang":
        stage.channel.close(_FLUSH_S)
        _hang()


@perform.register
def _long_line(action: LongLine, stage: Stage) -> None:
    stage.channel.write_raw(b"x" * action.size)


@perform.register
def _flood(action: Flood, stage: Stage) -> None:
    channel = stage.channel
    first = stage.next_instance
    if action.of == "steps":
        stage.next_instance += 1
        channel.emit(PhaseStarted(channel.now(), first, "Flood", action.count))
        for step in range(action.count):
            channel.emit(StepCompleted(channel.now(), first, step))
        channel.emit(PhaseFinished(channel.now(), first))
        return
    stage.next_instance += action.count
    for instance in range(first, first + action.count):
        channel.emit(PhaseStarted(channel.now(), instance, "Flood", 1))
        channel.emit(PhaseFinished(channel.now(), instance))


@perform.register
def _wrong_protocol(action: WrongProtocol, stage: Stage) -> None:
    channel = stage.channel
    channel.emit(Hello(channel.now(), "replay", os.getpid(), action.protocol))


@perform.register
def _print(action: Print, _stage: Stage) -> None:
    line = action.text.encode("utf-8", "surrogatepass") + b"\n"
    for _ in range(action.times):
        for descriptor in (1, 2):
            write_all(descriptor, line)


@perform.register
def _grandchild(action: Grandchild, stage: Stage) -> None:
    resists = "ignore" if action.ignore_sigterm else "default"
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD, resists, str(action.for_s)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=action.new_session,
    )
    # Kept, so that nothing waits for it or warns of it.
    stage.children.append(child)
    if child.stdout is not None:
        select.select([child.stdout], [], [], _CHILD_READY_S)
        child.stdout.close()
    write_all(2, f"started a child process, pid {child.pid}\n".encode())


@perform.register
def _stop_self(_action: StopSelf, _stage: Stage) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@perform.register
def _allocate(action: Allocate, stage: Stage) -> None:
    # Not zeros: the kernel gives a page only when something is written to it.
    stage.held.append(bytearray(_PAGE) * -(-action.bytes // len(_PAGE)))


@perform.register
def _burn_gpu(action: BurnGpu, stage: Stage) -> None:
    gpu = _gpu(stage)
    gpu.compute(math.inf if action.for_s is None else time.monotonic() + action.for_s)


@perform.register
def _hold_gpu_memory(action: HoldGpuMemory, stage: Stage) -> None:
    _gpu(stage).hold(action.bytes)


@perform.register
def _fail(action: Fail, _stage: Stage) -> None:
    raise BuildFault(action.code, action.message, action.hint)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a descriptor, however much it takes at once."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _gpu(stage: Stage) -> Gpu:
    stage.gpu = stage.gpu or Gpu()
    return stage.gpu


def _leave(stage: Stage, status: int) -> NoReturn:
    stage.channel.close(_FLUSH_S)
    os._exit(status)


def _hang() -> NoReturn:
    while True:
        time.sleep(_PAUSE_S)
