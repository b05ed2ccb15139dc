"""The file that a replay plays: a line of settings, recorded events, and when each is due."""

from dataclasses import dataclass
from hashlib import sha256
from heapq import merge
from operator import itemgetter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import (
    EngineWritten,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    InputsDigested,
    LogLine,
    ModelRead,
    OptionApplied,
    PhaseFinished,
    PhaseStarted,
    Ready,
    StepCompleted,
)
from trt_agent_tools.model.manifest import FileDigest
from trt_agent_tools.model.recording import RecordingError, in_order, read_bytes, read_lines
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.opened import OpenedFile, unreadable
from trt_agent_tools.worker.replay_actions import Action, ReplayAction

PlayedEvent = (
    Ready
    | PhaseStarted
    | StepCompleted
    | PhaseFinished
    | LogLine
    | OptionApplied
    | EngineWritten
    | ModelRead
    | InputsDigested
    | Failed
)
"""What is played. The worker says hello, goodbye and that it lives by itself."""


class Settings(BaseModel):
    """How a recording is played: the file's first line, when that has the type `replay`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    type: Literal["replay"] = "replay"
    speed: float = Field(1.0, gt=0, le=1e6, allow_inf_nan=False)
    """2 plays twice as fast."""
    responsive: bool = False
    """Whether an order to cancel is seen at any time, also inside a silent step."""
    engine_bytes: int = Field(4096, ge=1, le=1024**3)
    """How large the engine file is made."""
    actions: list[Action] = Field(default_factory=list, max_length=10_000)


_FILE_HINT = (
    "A replay plays a file of recorded events, one JSON object a line; docs/replay.md tells how."
)
_RecordedLine = Annotated[
    Settings | PlayedEvent | Hello | Heartbeat | Goodbye, Field(discriminator="type")
]
_LINE: TypeAdapter[Settings | PlayedEvent | Hello | Heartbeat | Goodbye] = TypeAdapter(
    _RecordedLine
)


@dataclass(frozen=True, slots=True)
class Recording:
    """A valid file: its settings, what is played of it in the file's order, and its digest."""

    settings: Settings
    events: list[PlayedEvent]
    digest: FileDigest


@dataclass(frozen=True, slots=True)
class Due:
    """An event or an action, and when it is due, in seconds since the replay's start."""

    at_s: float
    item: PlayedEvent | ReplayAction


def read_recording(file: OpenedFile) -> Recording:
    """Read and check a whole event file.

    Raises:
        BuildFault: it cannot be read, or is not valid; the line is named then.
    """
    try:
        data = read_bytes(file.itself)
    except OSError as error:
        raise unreadable(file.path, error) from error
    except RecordingError as error:
        raise BuildFault(
            ErrorCode.INVALID_MODEL, f"{file.name} {error.reason}", _FILE_HINT
        ) from error
    settings, events = parse_recording(data, file.name)
    digest = FileDigest(path=str(file.path), bytes=len(data), sha256=sha256(data).hexdigest())
    return Recording(settings, events, digest)


def parse_recording(data: bytes, name: str) -> tuple[Settings, list[PlayedEvent]]:
    """Return the settings and the events of an event file. Empty lines count, but say nothing.

    Raises:
        BuildFault: a line is not valid, or there is no event; `name` and the line are named.
    """
    try:
        return _parse(data)
    except RecordingError as error:
        raise BuildFault(
            ErrorCode.INVALID_MODEL,
            f"{one_line(name)} is no event file, line {error.line}: {error.reason}",
            _FILE_HINT,
            {"line": error.line},
        ) from error


def _parse(data: bytes) -> tuple[Settings, list[PlayedEvent]]:
    settings = Settings()
    events: list[PlayedEvent] = []
    for said in read_lines(data, _LINE, first=Settings):
        if isinstance(said, Settings):
            settings = said
        elif not isinstance(said, Hello | Heartbeat | Goodbye):
            events.append(said)
    if not events and not settings.actions:
        raise RecordingError("there is no event to play", data.count(b"\n") + 1)
    return settings, events


def schedule(settings: Settings, events: list[PlayedEvent]) -> list[Due]:
    """Return what is to be played, in order, with the time of each at the settings' speed.

    An action follows the events of its own time.
    """
    actions = sorted(settings.actions, key=lambda action: action.at)
    timeline = merge(in_order(events), ((a.at, a) for a in actions), key=itemgetter(0))
    return [Due(at / settings.speed, item) for at, item in timeline]
