"""What a host process is asked beside builds: who it is, who is there, that it end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import anyio

from trt_agent_tools import __version__
from trt_agent_tools.api.messages import API_PROTOCOL, Hello, StopBody
from trt_agent_tools.model.errors import ErrorCode, Refusal

_NAMED = 20
_SHORTEST_S, _LONGEST_S = 0.01, 5.0


class Host(Protocol):
    """What runs the builds of a host process."""

    def live_builds(self) -> list[str]:
        """Return the ids of the builds that wait or run, whoever they belong to."""


class Control:
    """Counts the front ends of a host process and decides when it may end.

    One in the `foreground` is its operator's to end and to replace by a newer version.
    """

    def __init__(self, service: Host, *, foreground: bool = False) -> None:
        self._service = service
        self._foreground = foreground
        self._front_ends = 0
        self._busy_at = anyio.current_time()
        self.stopping = anyio.Event()

    @contextmanager
    def front_end(self) -> Iterator[None]:
        """Count a front end as attached."""
        self._front_ends += 1
        try:
            yield
        finally:
            self._front_ends -= 1
            self.touch()

    def touch(self) -> None:
        """Note that somebody uses this host."""
        self._busy_at = anyio.current_time()

    def builds_live(self) -> int:
        """Return how many builds wait or run."""
        return len(self._service.live_builds())

    def hello(self) -> Hello:
        """Say who this is."""
        return Hello(
            version=__version__,
            protocol=API_PROTOCOL,
            pid=os.getpid(),
            builds_live=self.builds_live(),
            front_ends=self._front_ends,
            stopping=self.stopping.is_set(),
            foreground=self._foreground,
        )

    def check_open(self) -> None:
        """Judge whether a front end may come.

        Raises:
            Refusal: this host is ending.
        """
        if self.stopping.is_set():
            raise Refusal(
                ErrorCode.SHUTTING_DOWN, "this supervisor is ending", "Call again in a moment."
            )

    def stop(self, body: StopBody) -> Hello:
        """Begin to end.

        Raises:
            Refusal: builds wait or run and `force` is not set, or another process is meant.
        """
        if body.pid is not None and body.pid != os.getpid():
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                f"process {body.pid} was to end, this is {os.getpid()}",
                "Ask again who answers.",
            )
        hello = self.hello()
        if hello.builds_live and not body.force:
            raise Refusal(
                ErrorCode.BUILDS_LIVE,
                f"{hello.builds_live} builds wait or run",
                "Wait for them or cancel them; with force they are cancelled now.",
                {"builds": self._service.live_builds()[:_NAMED]},
            )
        self.stopping.set()
        return hello.model_copy(update={"stopping": True})

    async def end_when_idle(self, idle_s: float) -> None:
        """Return once no build and no front end has been there for `idle_s`, or at a stop."""
        while not self.stopping.is_set():
            # Nothing is awaited between this look and the decision.
            if self.builds_live() or self._front_ends:
                self.touch()
            left = self._busy_at + idle_s - anyio.current_time()
            if left <= 0:
                self.stopping.set()
            with anyio.move_on_after(min(max(left, _SHORTEST_S), idle_s / 10, _LONGEST_S)):
                await self.stopping.wait()
