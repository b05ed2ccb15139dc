import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.types import ASGIApp

from trt_agent_tools.api.access import ServiceOf
from trt_agent_tools.api.addresses import Addresses
from trt_agent_tools.api.gate import Admission
from trt_agent_tools.api.routes import make_app
from trt_agent_tools.api.tcp import TcpConfig, bind
from trt_agent_tools.model.errors import Refusal

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def no_mcp(service_of: ServiceOf, addresses: Addresses) -> AsyncIterator[ASGIApp]:
    """Give what is never called."""
    yield make_app(service_of)


def at(host: str, port: int = 0, admission: Admission | None = None) -> TcpConfig:
    return TcpConfig(host, port, admission or Admission(None), no_mcp, "/mcp", print)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_answers_are_sent_without_delay(host: str) -> None:
    bound = bind(at(host))
    bound.listen()
    delays: list[int] = []

    def served() -> asyncio.Protocol:
        class Look(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                end = transport.get_extra_info("socket")
                delays.append(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        return Look()

    server = await asyncio.get_running_loop().create_server(served, sock=bound)
    async with server:
        with anyio.fail_after(10):
            async with await anyio.connect_tcp(host, bound.getsockname()[1]) as stream:
                with pytest.raises(anyio.EndOfStream):
                    await stream.receive()
    assert delays == [1]


async def test_a_host_that_is_none_of_this_one_is_refused() -> None:
    for host in ("203.0.113.1", "no.such.host.invalid", "", "a" * 300):
        with pytest.raises(Refusal) as refused:
            bind(at(host or "\0", admission=Admission(())))
        assert refused.value.info.hint
