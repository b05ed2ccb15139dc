"""Server-sent events: a build's snapshots as they change, and streams that know when nobody reads."""

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing, nullcontext
from http import HTTPStatus
from typing import Any

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from trt_agent_tools.api.changes import next_change
from trt_agent_tools.api.event_format import (
    KEEP_ALIVE,
    KEEP_ALIVE_S,
    encode_error,
    encode_snapshot,
)
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Detail, Snapshot

STREAMED: dict[int | str, dict[str, Any]] = {
    HTTPStatus.OK.value: {
        "description": "Server-sent events.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
"""How the schema tells of a stream."""


class EventStream(StreamingResponse):
    """Sends `body` until it ends or the reader is gone. `within` is held as long as that lasts."""

    media_type = "text/event-stream"

    def __init__(
        self,
        body: AsyncGenerator[bytes, None],
        within: AbstractContextManager[None] | None = None,
    ) -> None:
        super().__init__(body, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._body = body
        self._within = within or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        del scope

        async def leave_with_the_reader() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        with self._within:
            async with aclosing(self._body), anyio.create_task_group() as tasks:
                tasks.start_soon(leave_with_the_reader)
                await self.stream_response(send)
                tasks.cancel_scope.cancel()


async def snapshots(
    service: BuildService, first: Snapshot, *, detail: Detail, seen: int | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield `first`, then a snapshot for each change, the terminal one as the last.

    `seen` is the seq that the reader has: `first` is left out where nothing came after it.
    """
    snapshot = first
    if seen is None or snapshot.ended:
        yield encode_snapshot(snapshot)
        seen = snapshot.seq
    try:
        while not snapshot.ended:
            changed = await next_change(
                service, first.build_id, since_seq=seen, wait_s=KEEP_ALIVE_S, detail=detail
            )
            if changed is None:
                yield KEEP_ALIVE
            else:
                snapshot, seen = changed, changed.seq
                yield encode_snapshot(changed)
    except Refusal as refusal:
        yield encode_error(refusal.info)
