"""Update notifications: a stream of its own for each listener, fed by followers of the builds it names."""

import re
from collections import Counter
from collections.abc import Iterable

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import SubscriptionsListenRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from trt_agent_tools.api.changes import next_change
from trt_agent_tools.mcp_server.access import RequestContext, ServiceOf, principal_of
from trt_agent_tools.mcp_server.protocol_errors import refusals_told
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import MAX_WAIT_S
from trt_agent_tools.supervisor.shares import share_of

MAX_URIS = 64
"""So many resources one stream may name."""

MAX_STREAMS = 256
"""So many streams may be open on one server."""

MAX_STREAMS_OF_ONE = MAX_STREAMS // 8
"""Likewise of one principal."""

EVERY_S = 1.0
"""A build's changes within this time are told as one. Its end is always told."""

MAX_FAILURES = 3
"""After so many refusals in a row a stream ends, so that its client asks and reads why."""

RETRY_S = 1.0

_OF_A_BUILD = re.compile(r"build://([A-Za-z0-9_-]{1,64})(?:/(?:log|manifest|events))?")


class Subscriptions:
    """Middleware that serves `subscriptions/listen`; older revisions do not have it.

    A stream has its own bus, and one follower for each build that it names. They run in the request's
    task group and end with it, so nothing is shared between callers. A build that the caller does not
    have never fires. One that has ended already is told of once: the client may have looked before.
    """

    def __init__(self, service_of: ServiceOf) -> None:
        self._service_of = service_of
        self._streams: Counter[str] = Counter()

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Serve the request if it opens a stream, else pass it on."""
        if (
            ctx.method != "subscriptions/listen"
            or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS
        ):
            return await call_next(ctx)
        params = SubscriptionsListenRequestParams.model_validate(ctx.params or {}, by_name=False)
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))
        principal = principal_of(ctx)
        with refusals_told():
            self._check_room(uris, principal)
            # Who is not known is told so now, not by silence.
            self._service_of(ctx)
        self._streams[principal] += 1
        try:
            return await self._serve(ctx, params, _builds(uris))
        finally:
            self._streams -= Counter([principal])

    async def _serve(
        self,
        ctx: RequestContext,
        params: SubscriptionsListenRequestParams,
        builds: dict[str, list[str]],
    ) -> HandlerResult:
        bus = InMemorySubscriptionBus()
        handler = ListenHandler(bus, max_subscriptions=1)
        result: HandlerResult = None
        failure: Exception | None = None
        # Looked at before the acknowledgement: what changes after it is noticed.
        seen = await self._look(ctx, builds)
        async with anyio.create_task_group() as tasks:
            for build_id, uris in builds.items():
                tasks.start_soon(
                    self._follow, ctx, build_id, uris, seen.get(build_id), bus, handler
                )
            try:
                result = await handler(ctx, params)
            except Exception as error:  # noqa: BLE001  (raised inside, the task group would wrap it)
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        return result

    async def _look(self, ctx: RequestContext, builds: Iterable[str]) -> dict[str, int]:
        """Return the seq of each build that can be asked about."""
        seen: dict[str, int] = {}

        async def look(build_id: str) -> None:
            try:
                snapshot = await self._service_of(ctx).progress(build_id)
            except Refusal:
                # Its follower meets it again, and knows what to do.
                return
            seen[build_id] = snapshot.seq

        async with anyio.create_task_group() as tasks:
            for build_id in builds:
                tasks.start_soon(look, build_id)
        return seen

    async def _follow(
        self,
        ctx: RequestContext,
        build_id: str,
        uris: list[str],
        seen: int | None,
        bus: InMemorySubscriptionBus,
        handler: ListenHandler,
    ) -> None:
        failures = 0
        while True:
            try:
                changed = await next_change(
                    self._service_of(ctx), build_id, since_seq=seen, wait_s=MAX_WAIT_S
                )
            except Refusal as refusal:
                if refusal.info.code is ErrorCode.UNKNOWN_BUILD:
                    return
                failures += 1
                if failures == MAX_FAILURES:
                    handler.close()
                    return
                # The supervisor is gone, perhaps: the next call may find another one.
                await anyio.sleep(RETRY_S)
                continue
            failures = 0
            if changed is None:
                continue
            seen = changed.seq
            for uri in uris:
                await bus.publish(ResourceUpdated(uri=uri))
            if changed.ended:
                return
            await anyio.sleep(EVERY_S)

    def _check_room(self, uris: list[str], principal: str) -> None:
        if len(uris) > MAX_URIS:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                f"{len(uris)} resources are more than one stream takes",
                f"Name at most {MAX_URIS} in each subscriptions/listen.",
                {"max_resources": MAX_URIS},
            )
        most = share_of(principal, whole=MAX_STREAMS, share=MAX_STREAMS_OF_ONE)
        if self._streams[principal] >= most:
            raise Refusal(
                ErrorCode.QUEUE_FULL,
                f"{most} streams of yours are open, as many as may be",
                "Close one, or call get_progress with wait_s instead.",
                {"max_streams": most},
            )
        if self._streams.total() >= MAX_STREAMS:
            raise Refusal(
                ErrorCode.QUEUE_FULL,
                f"{MAX_STREAMS} streams are open on this server",
                "Close one, or call get_progress with wait_s instead.",
                {"max_streams": MAX_STREAMS},
            )


def _builds(uris: Iterable[str]) -> dict[str, list[str]]:
    """Return the builds that `uris` are about, each with those of its own; others never change."""
    found: dict[str, list[str]] = {}
    for uri in uris:
        if match := _OF_A_BUILD.fullmatch(uri):
            found.setdefault(match[1], []).append(uri)
    return found
