"""One build as the supervisor holds it: its facts, its view, and who waits for a change."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.request import BuildOrder, StartRequest
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.states import TERMINAL, Reason, Rung, State
from trt_agent_tools.model.supervisor_events import ActivitySampled, BuildEvent, Noted, transition
from trt_agent_tools.policy.policy import Escalation, Policy
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView

SETTLE_S = 0.25
"""A waiting reader is told of a burst of phases once, this long after its first."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """That a build is to end, and how patiently."""

    reason: Reason
    escalation: Escalation
    at_once: bool = False


class Build:
    """State changes go through `move`, everything else that is told through `record`."""

    def __init__(
        self,
        *,
        facts: BuildFacts,
        request: StartRequest,
        order: BuildOrder,
        policy: Policy,
        folder: Path,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self.facts = facts
        self.request = request
        self.order = order
        self.policy = policy
        self.folder = folder
        self.view = BuildView()
        self.accepted = clock()
        self.peak_rss_bytes = 0
        self.cancel_request: CancelRequest | None = None
        self.cancel_asked = anyio.Event()
        self.hurried = anyio.Event()
        self.ended = anyio.Event()
        self._clock = clock
        self._changed = anyio.Event()

    @property
    def log(self) -> Path:
        """The log file of the build's process."""
        return self.folder / "build.log"

    @property
    def has_ended(self) -> bool:
        """Whether the state is a terminal one."""
        return self.view.state in TERMINAL

    def now(self) -> float:
        """Return the seconds since the build was accepted."""
        return self._clock() - self.accepted

    def record(self, event: BuildEvent) -> None:
        """Fold an event and wake whoever waits for a change of its kind."""
        if isinstance(event, ActivitySampled):
            self.peak_rss_bytes = max(self.peak_rss_bytes, event.rss_bytes)
        before = self.view.changed_seq
        self.view = fold(self.view, event)
        if self.view.changed_seq != before:
            self._changed.set()
            self._changed = anyio.Event()

    def note(self, text: str) -> None:
        """Add a sentence to the snapshot."""
        self.record(Noted(self.now(), text))

    def move(
        self,
        to: State,
        reason: Reason | None = None,
        *,
        device: str | None = None,
        ended_by: Rung | None = None,
        error: ErrorInfo | None = None,
    ) -> None:
        """Change the state.

        Raises:
            IllegalMoveError: the build cannot go there from where it stands.
        """
        self.record(
            transition(
                self.view.state,
                to,
                at=self.now(),
                reason=reason,
                device=device,
                ended_by=ended_by,
                error=error,
            )
        )
        if to in TERMINAL:
            self.ended.set()

    def ask_to_end(self, request: CancelRequest) -> None:
        """Ask for the end. The first reason stays; asking at once hurries a ladder under way."""
        if self.has_ended:
            return
        if self.cancel_request is None:
            self.cancel_request = request
            self.cancel_asked.set()
        if request.at_once:
            self.hurried.set()

    def snapshot(self, detail: Detail = Detail.SUMMARY) -> Snapshot:
        """Return what is known now."""
        return snapshot(self.facts, self.view, self.now(), detail)

    async def changed_since(self, seq: int, wait_s: float) -> None:
        """Wait for a phase change, a note or the end that came after `seq`, `wait_s` at most."""
        with anyio.move_on_after(wait_s):
            while self.view.changed_seq <= seq and not self.has_ended:
                await self._changed.wait()
            with anyio.move_on_after(SETTLE_S):
                await self.ended.wait()
