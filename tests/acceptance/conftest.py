"""A real MCP client that talks to the real server, over every transport and in both eras."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.acceptance.agent import Agent
from tests.acceptance.transports import EVERYWHERE, Connect, Connection, Place, serving
from tests.faults.conftest import play

__all__ = ["play"]


class Serve(Protocol):
    def __call__(self, *options: str) -> AbstractAsyncContextManager[Agent]:
        """Start a server with the options of `trt-agent-tools serve`, and be its client."""


class ServeMany(Protocol):
    def __call__(self, *options: str) -> AbstractAsyncContextManager[Connect]:
        """Start a server, and return what connects a client to it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what takes a connection over all of them, or over those that its mark `over` names."""
    if "connection" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("over")
        if mark:
            assert mark.kwargs["reason"]
        metafunc.parametrize("connection", mark.args if mark else EVERYWHERE, ids=str)


@pytest.fixture
def place(root: Path, tmp_path: Path, nothing_left: None) -> Place:
    return Place(root, tmp_path / "state")


@pytest.fixture
def serve_many(connection: Connection, place: Place) -> ServeMany:
    return lambda *options: serving(connection, place, *options)


@pytest.fixture
def serve(serve_many: ServeMany) -> Serve:
    """Start a server on a root and a state folder of the test's own."""

    @asynccontextmanager
    async def start(*options: str) -> AsyncIterator[Agent]:
        async with serve_many(*options) as connect, connect() as agent:
            yield agent

    return start
