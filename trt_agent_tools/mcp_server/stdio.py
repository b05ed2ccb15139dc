"""Serves MCP on stdin and stdout until stdin ends or a signal comes."""

import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import anyio

from trt_agent_tools.mcp_server.access import always
from trt_agent_tools.mcp_server.server import make_server
from trt_agent_tools.model.service import BuildService

_CHUNK_BYTES = 65536

OpenService = Callable[[], AbstractAsyncContextManager[BuildService]]


def serve_stdio(open_service: OpenService) -> int:
    """Serve until the end of stdin, SIGTERM or SIGINT; return the exit status.

    All three end the same way: the service is closed. Whether builds end with it is the service's.

    Raises:
        Refusal: the service cannot be opened.
    """
    anyio.run(_serve, open_service)
    return 0


async def _serve(open_service: OpenService) -> None:
    # Outside of any task group, so that the operator reads on stderr why it cannot be opened; inside the
    # receiver, so that a signal does not cut its closing short.
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with open_service() as service:
            stdin = _EndableStdin()
            server = make_server(always(service))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_end_on_signal, signals, stdin)
                await server.run_stdio_async()
                tasks.cancel_scope.cancel()


async def _end_on_signal(signals: AsyncIterator[signal.Signals], stdin: "_EndableStdin") -> None:
    async for _ in signals:
        stdin.end()


class _EndableStdin:
    """Puts a socket in the place of fd 0 and copies stdin into it, so that stdin can be ended.

    The SDK reads stdin in a thread that nothing can interrupt. With this a signal looks to it like the
    client's leaving, and there is one way to shut down.
    """

    def __init__(self) -> None:
        self._source = os.dup(0)
        self._sink, replacement = socket.socketpair()
        os.dup2(replacement.fileno(), 0)
        replacement.close()
        # A daemon: at the end it still waits for a client that keeps its end open.
        threading.Thread(target=self._copy, name="stdin", daemon=True).start()

    def end(self) -> None:
        """Let the reader see the end of stdin."""
        try:
            self._sink.shutdown(socket.SHUT_WR)
        except OSError:
            # Ended already, by the client or an earlier signal.
            return

    def _copy(self) -> None:
        try:
            while data := os.read(self._source, _CHUNK_BYTES):
                self._sink.sendall(data)
        except OSError as error:
            if sys.stderr and not isinstance(error, BrokenPipeError):
                sys.stderr.write(f"stdin failed: {error}\n")
        self.end()
