"""How a build's snapshots are written as server-sent events, and read again."""

from collections.abc import AsyncGenerator, AsyncIterable

from trt_agent_tools.api.messages import ErrorAnswer
from trt_agent_tools.model.error_guide import guided
from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.snapshot import Snapshot

KEEP_ALIVE_S = 15.0
"""A stream is never silent for longer: a comment comes when nothing else does."""

KEEP_ALIVE = b": still here\n\n"

SNAPSHOT = "snapshot"
"""The event that carries a `Snapshot`, its seq as the event's id."""

ERROR = "error"
"""The event that carries an `ErrorAnswer`; the stream ends with it."""


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as an event."""
    data = snapshot.model_dump_json(exclude_none=True)
    return f"event: {SNAPSHOT}\nid: {snapshot.seq}\ndata: {data}\n\n".encode()


def encode_error(error: ErrorInfo) -> bytes:
    """Return a refusal as an event."""
    return (
        f"event: {ERROR}\ndata: {ErrorAnswer(error=guided(error)).model_dump_json()}\n\n".encode()
    )


async def read_events(stream: AsyncIterable[bytes]) -> AsyncGenerator[tuple[str, bytes], None]:
    """Yield the name and the data of each event in a stream that was written here."""
    rest = b""
    async for chunk in stream:
        *events, rest = (rest + chunk).split(b"\n\n")
        for event in events:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n"))
            if b"data" in fields:
                yield fields.get(b"event", b"message").decode(), fields[b"data"]
