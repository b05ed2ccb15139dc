"""Serves an application on a Unix socket, and serves on when its file is taken away.

How any socket of ours is served is said here too.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from anyio.abc import TaskGroup
from starlette.types import ASGIApp

from trt_agent_tools.api.place import BEING_MADE

KEEP_OPEN_S = 3600
"""An idle connection stays: front ends drop theirs sooner, so that none is lost under a call."""

FINISH_S = 1
"""How long the last answers may take when the listener closes."""

ANSWERED_S = 2.0 * FINISH_S + 1.0
"""The server's tasks end within this, or are cancelled."""

BACKLOG = 512
"""So many connections may wait to be taken."""

_log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """A server that leaves signals to its host process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def server_config(
    app: ASGIApp, *, keep_open_s: int, most_connections: int | None = None
) -> uvicorn.Config:
    """Return how an application is served: no logs of requests, no word of what serves it.

    Headers in which a proxy says who asked are not believed. Beyond `most_connections` the answer is 503.
    """
    return uvicorn.Config(
        app,
        access_log=False,
        date_header=False,
        lifespan="off",
        limit_concurrency=most_connections,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=FINISH_S,
        timeout_keep_alive=keep_open_s,
        ws="none",
    )


class Listener:
    """Listens at `path` from `open` to `close`."""

    def __init__(self, app: ASGIApp, path: Path, tasks: TaskGroup) -> None:
        self.path = path
        self._tasks = tasks
        self._config = server_config(app, keep_open_s=KEEP_OPEN_S)
        self._servers: list[Server] = []
        self._file: tuple[int, int] | None = None

    def open(self) -> None:
        """Listen. Whoever connects from now on is served.

        Raises:
            OSError: the socket cannot be made.
        """
        listening, self._file = _bind(self.path)
        for old in self._servers:
            # What is connected there is served to its end; nobody can find it any more.
            for part in old.servers if old.started else ():
                part.close()
        server = Server(self._config)
        self._servers.append(server)
        self._tasks.start_soon(server.serve, [listening], name="http server")

    def is_found(self) -> bool:
        """Whether the path still leads here."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def close(self) -> None:
        """Take no more calls, let those under way finish, and end within about `FINISH_S`."""
        if self.is_found():
            self.path.unlink(missing_ok=True)
        for server in self._servers:
            server.should_exit = True


def _bind(path: Path) -> tuple[socket.socket, tuple[int, int]]:
    """Return a listening socket at `path`, for this user alone, and the identity of its file.

    It takes the path over in one step, once it listens: nobody finds one that does not answer.
    """
    partial = path.with_name(path.name + BEING_MADE)
    partial.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(str(partial))
        partial.chmod(0o600)
        listening.listen(BACKLOG)
        listening.setblocking(False)
        found = partial.lstat()
        partial.replace(path)
    except OSError:
        listening.close()
        raise
    return listening, (found.st_dev, found.st_ino)
