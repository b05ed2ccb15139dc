"""Serves the API, and MCP beside it, on TCP."""

import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from trt_agent_tools.api.access import ServiceOf
from trt_agent_tools.api.addresses import Addresses, is_loopback, is_wildcard, resolve, url_of
from trt_agent_tools.api.gate import OPEN_PATHS, Admission, Gate, caller_of
from trt_agent_tools.api.listener import ANSWERED_S, BACKLOG, Server, server_config
from trt_agent_tools.api.routes import make_app
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.supervisor.principals import PrincipalService
from trt_agent_tools.supervisor.service import Supervisor

KEEP_OPEN_S = 75
"""An idle connection is closed after so long: longer than proxies keep theirs."""

MAX_CONNECTIONS = 512
"""One connection more is answered with 503: each takes a descriptor that builds need too."""

_log = logging.getLogger(__name__)

OpenMcp = Callable[[ServiceOf, Addresses], AbstractAsyncContextManager[ASGIApp]]
"""Returns the application that serves MCP while it is entered."""


@dataclass(frozen=True, slots=True)
class TcpConfig:
    """Where to listen and whom to let in. Port 0 is any that is free.

    `open_mcp` makes what serves `mcp_path`. `open_pages` are pages by their path that need no token.
    `told` is called with the address once somebody who connects is served.
    """

    host: str
    port: int
    admission: Admission
    open_mcp: OpenMcp
    mcp_path: str
    told: Callable[[str], None]
    open_pages: Mapping[str, ASGIApp] = field(default_factory=dict)
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()


class TcpListener:
    """Listens on a socket that is bound, from `open` to `close`."""

    def __init__(
        self,
        app: ASGIApp,
        bound: socket.socket,
        url: str,
        tasks: TaskGroup,
        told: Callable[[str], None],
    ) -> None:
        self.url = url
        self._told = told
        self._bound = bound
        self._tasks = tasks
        self._server = Server(
            server_config(app, keep_open_s=KEEP_OPEN_S, most_connections=MAX_CONNECTIONS)
        )

    def open(self) -> None:
        """Listen, and tell where. Whoever connects from now on is served.

        Raises:
            OSError: the address was taken meanwhile.
        """
        self._bound.listen(BACKLOG)
        self._tasks.start_soon(self._server.serve, [self._bound], name="http server on TCP")
        self._told(self.url)

    def close(self) -> None:
        """Take no more calls, and let those under way finish within about `FINISH_S`."""
        self._server.should_exit = True


@asynccontextmanager
async def tcp_listener(
    config: TcpConfig,
    supervisor: Supervisor,
    check_ready: Callable[[], None],
    metrics: Callable[[], bytes] | None = None,
) -> AsyncIterator[TcpListener]:
    """Give a listener that is not open yet; leaving the block closes it and waits for the last answers.

    `check_ready` raises a `Refusal` while no builds are taken.

    Raises:
        Refusal: the address is none of this host, or is taken; or everybody would be let in from
            elsewhere.
    """

    def service_of(request: Request) -> BuildService:
        return PrincipalService(supervisor, caller_of(request))

    bound = bind(config)
    port = int(bound.getsockname()[1])
    try:
        addresses = Addresses.of(
            [config.host, str(bound.getsockname()[0])],
            port,
            hosts=config.allow_hosts,
            origins=config.allow_origins,
        )
        async with config.open_mcp(service_of, addresses) as mcp:
            api = make_app(
                service_of,
                check_ready=check_ready,
                metrics=metrics,
                takes_tokens=config.admission.authenticators is not None,
            )
            gate = Gate(
                _Paths(api, {**config.open_pages, config.mcp_path: mcp}),
                addresses,
                config.admission,
                open_paths=(*OPEN_PATHS, *config.open_pages),
            )
            async with anyio.create_task_group() as serving:
                url = url_of(config.host, port)
                listener = TcpListener(gate, bound, url, serving, config.told)
                try:
                    yield listener
                finally:
                    listener.close()
                    serving.cancel_scope.deadline = anyio.current_time() + ANSWERED_S
    finally:
        bound.close()


class _Paths:
    """Sends a request to the application that serves its path."""

    def __init__(self, api: ASGIApp, beside: Mapping[str, ASGIApp]) -> None:
        self._api = api
        self._beside = beside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._beside.get(scope["path"], self._api)(scope, receive, send)


def bind(config: TcpConfig) -> socket.socket:
    """Return a socket that is bound, and does not listen yet.

    Raises:
        Refusal: the address is none of this host, or is taken; or everybody would be let in from
            elsewhere.
    """
    family, address = resolve(config.host, config.port)
    if config.admission.authenticators is None and not is_loopback(address):
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"--no-auth lets everybody in, and {config.host} can be reached from elsewhere",
            "Leave it out and give tokens to callers (trt-agent-tools token add NAME), or listen on "
            "127.0.0.1.",
        )
    if not is_loopback(address):
        _log.warning(
            "%s can be reached from elsewhere and what is said is not encrypted: put a proxy with TLS "
            "before it",
            config.host,
        )
        if is_wildcard(address) and not config.allow_hosts:
            _log.warning("callers from elsewhere are refused until --allow-host names this server")
    # By the protocol's name asyncio knows what not to delay: without it every answer takes 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Not to wait for connections of a server before this one to be forgotten.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, config.port))
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"cannot listen on {config.host} port {config.port}: {error.strerror}",
            "Give another --port; 0 takes any that is free.",
        ) from error
    return bound
