"""Recorded events: a file of the worker protocol's lines, read and checked line by line."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from trt_agent_tools.model.duration import MAX_S
from trt_agent_tools.model.events import MAX_LINE_BYTES, WorkerEvent
from trt_agent_tools.model.untrusted import one_line

MAX_FILE_BYTES = 256 * 1024 * 1024
"""A larger file is refused: it is held in memory."""

Line = TypeVar("Line")
Event = TypeVar("Event", bound=WorkerEvent)


class RecordingError(Exception):
    """A file is no recording, for this reason; `line` counts from 1, None where it is the whole file."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason = reason
        self.line = line


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read.
        RecordingError: it has more than `MAX_FILE_BYTES`.
    """
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise RecordingError(f"has more than {MAX_FILE_BYTES} bytes")
    return data


def read_lines(
    data: bytes, lines: TypeAdapter[Line], *, first: type, may_be_cut: bool = False
) -> Iterator[Line]:
    """Yield what the lines of a recording say. Empty ones count, but say nothing.

    Only the first line may be a `first`. With `may_be_cut` half a line at the end is left out: its
    writer was killed. `at` is within [0, `MAX_S`] where a line has it.

    Raises:
        RecordingError: a line is not valid.
    """
    texts = data.split(b"\n")
    is_first = True
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        if len(text) > MAX_LINE_BYTES:
            raise RecordingError(f"longer than {MAX_LINE_BYTES} bytes", number)
        try:
            said = lines.validate_json(text, strict=True)
        except ValidationError as error:
            if may_be_cut and number == len(texts) and _is_no_json(error):
                return
            raise RecordingError(_reason(error), number) from error
        if isinstance(said, first) and not is_first:
            raise RecordingError("the settings belong on the first line", number)
        at = getattr(said, "at", 0.0)
        if not 0 <= at <= MAX_S:
            raise RecordingError(f"at: must be between 0 and {MAX_S:.0f} seconds", number)
        is_first = False
        yield said


def in_order(events: Iterable[Event]) -> Iterator[tuple[float, Event]]:
    """Yield each event with the time at which it is due. Events keep the file's order.

    One recorded earlier than the event before it (a recorder writes in batches) is due with that one.
    """
    latest = 0.0
    for event in events:
        latest = max(latest, event.at)
        yield latest, event


def _is_no_json(error: ValidationError) -> bool:
    return any(found["type"] == "json_invalid" for found in error.errors())


def _reason(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return one_line(f"{where}: {found['msg']}" if where else found["msg"], 300)
