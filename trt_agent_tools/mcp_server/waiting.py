"""Waits inside a call. They tell how the build stands meanwhile, and end with the call."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp.server.mcpserver import Context
from mcp_types import CallToolResult, InputRequiredResult

from trt_agent_tools.mcp_server.answers import answer
from trt_agent_tools.mcp_server.asking import ask
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Detail, Snapshot

TELL_S = 3.0
"""Between two progress notifications of one call."""


async def waited(
    context: Context[Any, Any], wait_s: float, look: Callable[[float], Awaitable[Snapshot]]
) -> Snapshot:
    """Return what `look` sees after `wait_s` seconds at most.

    `look` waits for as long as it is told, or less if there is something to see. To a client that asked
    for progress, the seconds waited are reported every `TELL_S`, with the build's one line.
    """
    began = anyio.current_time()
    while True:
        asked = anyio.current_time()
        part = min(TELL_S, max(0.0, began + wait_s - asked))
        snapshot = await look(part)
        now = anyio.current_time()
        if snapshot.ended or now - asked < part or now - began >= wait_s:
            return snapshot
        await context.report_progress(round(now - began, 1), wait_s, snapshot.summary)


async def watched(
    context: Context[Any, Any],
    service: BuildService,
    build_id: str,
    *,
    wait_s: float,
    since_seq: int | None,
    detail: Detail,
) -> CallToolResult | InputRequiredResult:
    """Wait for a phase change, a warning or the end that comes after `since_seq`, and answer with it.

    On a warning that an extension would help against, the client's user is asked, where that is possible.

    Raises:
        Refusal: there is no such build, or the extension that the user allowed is refused.
    """
    since = (await service.progress(build_id)).seq if since_seq is None else since_seq
    snapshot = await waited(
        context,
        wait_s,
        lambda seconds: service.progress(build_id, wait_s=seconds, since_seq=since, detail=detail),
    )
    asked = await ask(context, service, snapshot, since_seq=since, detail=detail)
    return asked if isinstance(asked, InputRequiredResult) else answer(asked)
