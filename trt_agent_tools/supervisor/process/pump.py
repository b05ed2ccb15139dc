"""Reads a worker's events, holding it to the protocol."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import anyio
from anyio.abc import ByteReceiveStream
from pydantic import ValidationError

from trt_agent_tools.model.event_lines import WORKER_EVENT
from trt_agent_tools.model.events import MAX_LINE_BYTES, PROTOCOL, Heartbeat, Hello, WorkerEvent
from trt_agent_tools.model.untrusted import one_line

_UNKNOWN_TYPE = "union_tag_invalid"

MAX_BAD_LINES = 100
"""After so many lines that are no events the worker is taken for broken."""


class ProtocolError(Exception):
    """The worker broke the protocol in a way that cannot be read past."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no event; the build may be well all the same."""

    text: str


async def read_lines(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    """Yield the lines of `stream` until its end; half a line at the end is yielded too.

    Raises:
        ProtocolError: a line is longer than `MAX_LINE_BYTES`.
    """
    rest = b""
    while True:
        try:
            data = await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _check_length(line)
            yield line
        _check_length(rest)
    if rest:
        yield rest


def _check_length(line: bytes) -> None:
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(f"a line of the worker's is longer than {MAX_LINE_BYTES} bytes")


class EventReader:
    """Turns lines into events whose times are seconds since the build was accepted.

    `accepted` and `launched` are on the monotonic clock. A worker says in `hello` when its own clock
    began. A time that cannot be (before the launch, after now) is replaced by the time of arrival; a
    last callback at such a time is left out.
    """

    def __init__(self, *, accepted: float, launched: float) -> None:
        self._accepted = accepted
        self._launched = launched
        self._shift = launched - accepted
        self._greeted = False
        self._bad = 0

    def read(self, line: bytes, now: float) -> WorkerEvent | BadLine | None:
        """Return the event on `line`, what is wrong with it, or None where it is to be ignored.

        Raises:
            ProtocolError: another version of the protocol, or too many bad lines.
        """
        try:
            event = WORKER_EVENT.validate_json(line)
        except ValidationError as error:
            if any(detail["type"] == _UNKNOWN_TYPE for detail in error.errors()):
                return None
            self._bad += 1
            if self._bad > MAX_BAD_LINES:
                raise ProtocolError(
                    f"the worker sent more than {MAX_BAD_LINES} lines that are no events"
                ) from error
            return BadLine(one_line(line.decode("utf-8", "replace"), 120))
        if isinstance(event, Hello):
            self._greet(event, now)
        elif not self._greeted:
            raise ProtocolError("the worker's first event is not hello")
        at = self._placed(event.at, now)
        arrived = now - self._accepted
        if isinstance(event, Heartbeat) and event.last_callback is not None:
            event = replace(event, last_callback=self._placed(event.last_callback, now))
        return replace(event, at=arrived if at is None else at)

    def _placed(self, at: float, now: float) -> float | None:
        """Return a time of the worker's on the build's clock, or None if it cannot be."""
        placed = at + self._shift
        if self._launched - self._accepted <= placed <= now - self._accepted:
            return placed
        return None

    def _greet(self, hello: Hello, now: float) -> None:
        if hello.protocol != PROTOCOL:
            raise ProtocolError(
                f"the worker speaks protocol {hello.protocol}, this server {PROTOCOL}"
            )
        self._greeted = True
        origin = hello.monotonic
        if origin is None or not self._launched <= origin <= now:
            origin = now - hello.at
        self._shift = origin - self._accepted
