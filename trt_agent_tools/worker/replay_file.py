"""The file that a replay plays: a line of settings, recorded events, and when each is due."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from trt_agent_tools.model.duration import MAX_S
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import (
    MAX_LINE_BYTES,
    EngineWritten,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    LogLine,
    OptionApplied,
    PhaseFinished,
    PhaseStarted,
    Ready,
    StepCompleted,
)
from trt_agent_tools.model.manifest import FileDigest
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.replay_actions import Action, ReplayAction

MAX_FILE_BYTES = 256 * 1024 * 1024
"""A larger file is refused: it is held in memory."""

PlayedEvent = (
    Ready
    | PhaseStarted
    | StepCompleted
    | PhaseFinished
    | LogLine
    | OptionApplied
    | EngineWritten
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


def read_recording(path: Path) -> Recording:
    """Read and check a whole event file.

    Raises:
        BuildFault: it cannot be read, or is not valid; the line is named then.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BuildFault(
            ErrorCode.MODEL_UNREADABLE, f"{path.name} cannot be read: {error.strerror}"
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise BuildFault(
            ErrorCode.INVALID_MODEL, f"{path.name} has more than {MAX_FILE_BYTES} bytes"
        )
    settings, events = parse_recording(data, path.name)
    digest = FileDigest(path=str(path), bytes=len(data), sha256=sha256(data).hexdigest())
    return Recording(settings, events, digest)


def parse_recording(data: bytes, name: str) -> tuple[Settings, list[PlayedEvent]]:
    """Return the settings and the events of an event file. Empty lines count, but say nothing.

    Raises:
        BuildFault: a line is not valid, or there is no event; `name` and the line are named.
    """
    settings = Settings()
    events: list[PlayedEvent] = []
    first = True
    number = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        if len(line) > MAX_LINE_BYTES:
            raise _invalid(name, number, f"longer than {MAX_LINE_BYTES} bytes")
        try:
            said = _LINE.validate_json(line, strict=True)
        except ValidationError as error:
            raise _invalid(name, number, _reason(error)) from error
        if isinstance(said, Settings):
            if not first:
                raise _invalid(name, number, "the settings belong on the first line")
            settings = said
        elif not (math.isfinite(said.at) and 0 <= said.at <= MAX_S):
            raise _invalid(name, number, f"at: must be between 0 and {MAX_S:.0f} seconds")
        elif not isinstance(said, Hello | Heartbeat | Goodbye):
            events.append(said)
        first = False
    if not events and not settings.actions:
        raise _invalid(name, number, "there is no event to play")
    return settings, events


def schedule(settings: Settings, events: list[PlayedEvent]) -> list[Due]:
    """Return what is to be played, in order, with the time of each at the settings' speed.

    Events keep the file's order: one recorded earlier than the event before it (a recorder writes in
    batches) is due with that one. An action follows the events of its own time.
    """
    actions = sorted(settings.actions, key=lambda action: action.at)
    timeline = merge(_in_order(events), ((a.at, a) for a in actions), key=itemgetter(0))
    return [Due(at / settings.speed, item) for at, item in timeline]


def _in_order(events: list[PlayedEvent]) -> Iterator[tuple[float, PlayedEvent]]:
    latest = 0.0
    for event in events:
        latest = max(latest, event.at)
        yield latest, event


def _reason(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return one_line(f"{where}: {found['msg']}" if where else found["msg"], 300)


def _invalid(name: str, number: int, reason: str) -> BuildFault:
    return BuildFault(
        ErrorCode.INVALID_MODEL,
        f"{one_line(name)} is no event file, line {number}: {reason}",
        "A replay plays a file of recorded events, one JSON object a line; docs/replay.md tells how.",
        {"line": number},
    )
