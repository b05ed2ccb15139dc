"""What a replay can be told to do wrong: each action is a class with its arguments.

A new one is a class here, a line in `Action`, a function in `replay_perform` and a row in
docs/replay.md.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from trt_agent_tools.model.duration import MAX_S
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import MAX_LINE_BYTES, PROTOCOL

Seconds = Annotated[float, Field(ge=0, le=MAX_S, allow_inf_nan=False)]


class ReplayAction(BaseModel):
    """Something done at the recorded time `at`. Durations of its own are real seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    at: Seconds


class BurnCpu(ReplayAction):
    """Keep one core busy, as native code does: for `for_s`, or until the next event or action."""

    do: Literal["burn_cpu"]
    for_s: Seconds | None = None


class HangIdle(ReplayAction):
    """Do nothing, deaf to an order to cancel: for `for_s`, or for ever."""

    do: Literal["hang_idle"]
    for_s: Seconds | None = None


class IgnoreCancel(ReplayAction):
    """From now on do not look whether an order to cancel came."""

    do: Literal["ignore_cancel"]


class IgnoreSigterm(ReplayAction):
    """From now on ignore SIGTERM."""

    do: Literal["ignore_sigterm"]


class FinishLate(ReplayAction):
    """When an order to cancel is seen from now on, write the engine `after_s` later and succeed."""

    do: Literal["finish_late"]
    after_s: Seconds = 0.0


class Crash(ReplayAction):
    """Die of a signal."""

    do: Literal["crash"]
    signal: Literal["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGTERM"] = (
        "SIGSEGV"
    )


class Exit(ReplayAction):
    """Leave with `status` and without goodbye."""

    do: Literal["exit"]
    status: int = Field(0, ge=0, le=255)


class Garbage(ReplayAction):
    """Write a line that is no JSON on the event channel: `text`, or `size` arbitrary bytes."""

    do: Literal["garbage"]
    text: str | None = Field(None, max_length=MAX_LINE_BYTES)
    size: int = Field(64, ge=1, le=MAX_LINE_BYTES)


class HalfLine(ReplayAction):
    """Write half of a line on the event channel, and then what `then` says.

    `go_on` continues behind it, `hang` sends nothing more (no heartbeat either) and stays for ever,
    `exit` leaves with status 0.
    """

    do: Literal["half_line"]
    then: Literal["go_on", "hang", "exit"] = "go_on"


class LongLine(ReplayAction):
    """Write `size` bytes without a newline on the event channel."""

    do: Literal["long_line"]
    size: int = Field(MAX_LINE_BYTES + 1, ge=1, le=64 * 1024 * 1024)


class Flood(ReplayAction):
    """Send `count` events as fast as possible: the steps of one phase, or phases that come and go."""

    do: Literal["flood"]
    count: int = Field(100_000, ge=1, le=1_000_000)
    of: Literal["steps", "phases"] = "steps"


class WrongProtocol(ReplayAction):
    """Say hello again, with another version of the protocol."""

    do: Literal["wrong_protocol"]
    protocol: int = PROTOCOL + 98


class Print(ReplayAction):
    """Write `text` and a newline to fds 1 and 2, `times` times."""

    do: Literal["print"]
    text: str = Field("printed past the logger", max_length=1_000_000)
    times: int = Field(1, ge=1, le=1_000_000)


class Grandchild(ReplayAction):
    """Start a child process that sleeps for `for_s`; the log tells its pid.

    With `new_session` it leaves the worker's session and process group.
    """

    do: Literal["grandchild"]
    new_session: bool = False
    ignore_sigterm: bool = False
    for_s: Seconds = 600.0


class StopSelf(ReplayAction):
    """Stop this process by SIGSTOP, until somebody continues it."""

    do: Literal["stop_self"]


class Allocate(ReplayAction):
    """Take `bytes` of memory, write to all of it and hold it."""

    do: Literal["allocate"]
    bytes: int = Field(ge=1, le=1 << 40)


class BurnGpu(ReplayAction):
    """Keep the GPU computing and the processor idle, deaf to an order to cancel: for `for_s`, or for ever."""

    do: Literal["burn_gpu"]
    for_s: Seconds | None = None


class HoldGpuMemory(ReplayAction):
    """Take `bytes` of the GPU's memory and hold it; nothing computes."""

    do: Literal["hold_gpu_memory"]
    bytes: int = Field(ge=1, le=1 << 40)


class Fail(ReplayAction):
    """Fail with this error."""

    do: Literal["fail"]
    code: ErrorCode = ErrorCode.BUILDER_ERROR
    message: str = Field("failed as the replay was told to", max_length=2000)
    hint: str = Field("", max_length=2000)


Action = Annotated[
    BurnCpu
    | HangIdle
    | IgnoreCancel
    | IgnoreSigterm
    | FinishLate
    | Crash
    | Exit
    | Garbage
    | HalfLine
    | LongLine
    | Flood
    | WrongProtocol
    | Print
    | Grandchild
    | StopSelf
    | Allocate
    | BurnGpu
    | HoldGpuMemory
    | Fail,
    Field(discriminator="do"),
]
"""Everything that a replay can be told to do."""
