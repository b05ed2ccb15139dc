"""One build as the supervisor holds it: its facts, its view, and who waits for a change."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.proposal import Proposal
from trt_agent_tools.model.request import BuildOrder, StartRequest
from trt_agent_tools.model.snapshot import Basis, Detail, Progress, Snapshot
from trt_agent_tools.model.states import TERMINAL, Reason, Rung, State
from trt_agent_tools.model.supervisor_events import (
    ActivitySampled,
    BuildEvent,
    Noted,
    StateChanged,
    VerdictGiven,
    transition,
)
from trt_agent_tools.model.verdict import Action, LimitUse, Rule, Verdict
from trt_agent_tools.policy.evaluate import Judged
from trt_agent_tools.policy.policy import Escalation, Policy
from trt_agent_tools.progress.expected import expected
from trt_agent_tools.progress.past import Estimate
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView
from trt_agent_tools.store.history import SidecarStamp
from trt_agent_tools.supervisor.estimates.outlook import Outlook
from trt_agent_tools.supervisor.observer import Observers
from trt_agent_tools.supervisor.sessions import OpenSession

LOG_NAME = "build.log"
"""Of the log of a build's process, in the build's folder."""

SMALL_JUMP = 0.05
"""A fraction by steps that was shown above this is not given up for one by past builds: that would stand
still for long. Below it the first look at TensorRT's phases may have come before the journal's answer."""

SETTLE_S = 0.25
"""A waiting reader is told of a burst of phases once, this long after its first."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """That a build is to end, and how patiently."""

    reason: Reason
    escalation: Escalation
    at_once: bool = False


class Durably(Protocol):
    """Writes an event of a build; returns what is wrong if it cannot."""

    async def tell(self, build: "Build", event: StateChanged | Noted | VerdictGiven) -> str | None:
        """Return once the event is on disk, or cannot be brought there."""


class Build:
    """State changes go through `move`, everything else that is told through `record`.

    What must outlive this process (states, verdicts, notes) is written to the journal before it is shown.
    """

    def __init__(
        self,
        *,
        facts: BuildFacts,
        request: StartRequest,
        order: BuildOrder,
        policy: Policy,
        session: OpenSession,
        folder: Path,
        chronicle: Durably,
        observers: Observers,
        clock: Callable[[], float] = anyio.current_time,
    ) -> None:
        self.facts = facts
        self.request = request
        self.order = order
        self.policy = policy
        self.base_policy = policy
        """Its policy before the caller's own limits: what another start of it would be held to."""
        self.session = session
        self.folder = folder
        self.token = secrets.token_hex(16)
        self._chronicle = chronicle
        self._observers = observers
        self._turn = anyio.Lock()
        self._unwritten = False
        self.view = BuildView()
        self.accepted = clock()
        self.judged: tuple[Judged, ...] = ()
        self._attended_at = 0.0
        self._readers = 0
        self._given: set[tuple[Rule, Action, str | None]] = set()
        self.peak_rss_bytes = 0
        self.cancel_request: CancelRequest | None = None
        self.cancel_asked = anyio.Event()
        self.hurried = anyio.Event()
        self.cancelling = anyio.Event()
        self.ended = anyio.Event()
        self.outlives_kill = False
        self.outlook: Outlook | None = None
        self.estimate: Estimate | None = None
        self.sidecars: tuple[SidecarStamp, ...] | None = None
        """The model's, when the build has succeeded and its files can be known again."""
        self._shown_fraction = 0.0
        self._shown_by_steps = 0.0
        self._clock = clock
        self._changed = anyio.Event()

    @property
    def log(self) -> Path:
        """The log file of the build's process."""
        return self.folder / LOG_NAME

    @property
    def has_ended(self) -> bool:
        """Whether the state is a terminal one."""
        return self.view.state in TERMINAL

    @property
    def attended_at(self) -> float:
        """When somebody last asked about the build; now, while somebody waits for it."""
        return self.now() if self._readers else self._attended_at

    def attend(self) -> None:
        """Note that somebody asked about the build."""
        self._attended_at = self.now()

    def first_time(self, judged: Judged) -> bool:
        """Whether this is the first verdict of its rule, pattern and action; note that it was given."""
        key = (judged.rule, judged.action, judged.pattern)
        known = key in self._given
        self._given.add(key)
        return not known

    def forget_warnings(self, rule: Rule) -> None:
        """Let a rule warn again: its limit was extended."""
        self._given = {key for key in self._given if key[0] is not rule}

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

    async def note(self, text: str) -> None:
        """Add a sentence to the snapshot, once it is written."""
        await self._tell(lambda: Noted(self.now(), text))

    async def give(self, verdict: Verdict) -> None:
        """Add a verdict to the snapshot, once it is written."""
        await self._tell(lambda: VerdictGiven(self.now(), verdict))

    async def begin_building(self) -> None:
        """TensorRT has begun; a build that is being ended meanwhile stays as it is."""
        await self._tell(
            lambda: (
                transition(self.view.state, State.BUILDING, at=self.now())
                if self.view.state is State.STARTING
                else None
            )
        )

    async def move(
        self,
        to: State,
        reason: Reason | None = None,
        *,
        device: str | None = None,
        ended_by: Rung | None = None,
        error: ErrorInfo | None = None,
        proposals: tuple[Proposal, ...] = (),
    ) -> None:
        """Change the state, once that is written.

        Raises:
            IllegalMoveError: the build cannot go there from where it stands.
        """
        await self._tell(
            lambda: transition(
                self.view.state,
                to,
                at=self.now(),
                reason=reason,
                device=device,
                ended_by=ended_by,
                error=error,
                proposals=proposals,
            )
        )
        if to is State.CANCELLING or to in TERMINAL:
            self.cancelling.set()
        if to in TERMINAL:
            self.ended.set()

    async def _tell(self, make: Callable[[], StateChanged | Noted | VerdictGiven | None]) -> None:
        # In turn, so that the journal has the order that readers see. Shielded: a fact that is
        # written is shown. The journal gives up after a while, so this is bounded.
        with anyio.CancelScope(shield=True):
            async with self._turn:
                event = make()
                if event is None:
                    return
                problem = await self._chronicle.tell(self, event)
                if problem and not self._unwritten:
                    self._unwritten = True
                    self.record(Noted(self.now(), f"Not all of this is in the journal: {problem}"))
                self.record(event)
                self._observers.told(self, event)

    def ask_to_end(self, request: CancelRequest) -> None:
        """Ask for the end. The first reason stays; asking at once hurries a ladder under way."""
        if self.has_ended:
            return
        if self.cancel_request is None:
            self.cancel_request = request
            self.cancel_asked.set()
        if request.at_once:
            self.hurried.set()

    def limits(self) -> tuple[LimitUse, ...]:
        """Return what the policy allows and what is used of it, as last judged."""
        return tuple(judged.use for judged in self.judged)

    def expect(self, outlook: Outlook) -> None:
        """Take what is known by now of how long the build takes.

        What its progress rests on does not change under a reader's eyes: one that was shown to have come
        far by its steps stays so, and once TensorRT works an estimate is only replaced by another one.
        """
        self.outlook = outlook
        new = outlook.estimate
        if new is None and self.view.phases.roots:
            return
        if new is None or self.estimate is not None or self._shown_by_steps <= SMALL_JUMP:
            self.estimate = new

    def expected(self, at: float) -> Progress | None:
        """Return how far past builds let expect it to be at this time; None where they do not tell."""
        if self.estimate is None:
            return None
        return expected(self.estimate, self.view, at, self._shown_fraction)

    def shown(self, view: BuildView, at: float, detail: Detail) -> Snapshot:
        """Return the build as it is shown; a live one is never shown less far than before."""
        found = snapshot(
            *(self.facts, view, at, detail, self.limits(), self.estimate, self._shown_fraction)
        )
        progress = found.progress
        if view.ended_at is None and progress is not None and progress.fraction is not None:
            if progress.basis is Basis.STEPS:
                self._shown_by_steps = max(self._shown_by_steps, progress.fraction)
            self._shown_fraction = max(self._shown_fraction, progress.fraction)
        return found

    def snapshot(self, detail: Detail = Detail.SUMMARY) -> Snapshot:
        """Return what is known now."""
        return self.shown(self.view, self.now(), detail)

    async def changed_since(self, seq: int, wait_s: float) -> None:
        """Wait for a phase change, a note or the end that came after `seq`, `wait_s` at most."""
        self._readers += 1
        try:
            await self._changed_since(seq, wait_s)
        finally:
            self._readers -= 1
            self.attend()

    async def _changed_since(self, seq: int, wait_s: float) -> None:
        with anyio.move_on_after(wait_s):
            while self.view.changed_seq <= seq and not self.has_ended:
                await self._changed.wait()
            with anyio.move_on_after(SETTLE_S):
                await self.ended.wait()
