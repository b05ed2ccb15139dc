"""Runs a policy over a recorded build: what it would have done, and when. Pure but for reading the file.

Time comes from the recording. A limit's time is known before it comes, so that an evaluation is done
only where a level can change, and an hour takes no longer than its events.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.events import (
    EngineWritten,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    InputsDigested,
    LogLine,
    ModelRead,
    OptionApplied,
    Origin,
    Outcome,
    PhaseFinished,
    PhaseStarted,
    Ready,
    StepCompleted,
    WorkerEvent,
)
from trt_agent_tools.model.recording import RecordingError, in_order, read_bytes, read_lines
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import (
    BUSY_PERCENT,
    ActivitySampled,
    StateChanged,
    VerdictGiven,
)
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.model.verdict import Action, Rule, Verdict
from trt_agent_tools.policy.evaluate import evaluate
from trt_agent_tools.policy.ledger import Account, reserve
from trt_agent_tools.policy.observation import observe
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.view import BuildView

INTERVAL_S = 0.25
"""Between two evaluations, about as the supervisor does it."""

_NOT_RECORDED = {
    Rule.QUEUE_TIME: "a recording begins with the worker, after the queue",
    Rule.PROJECTED_OVERRUN: "a recording has no past builds to learn from",
    Rule.UNATTENDED: "who asked about the build is not recorded",
    Rule.HOST_MEMORY: "memory is not recorded",
    Rule.GPU_MEMORY: "memory is not recorded",
}
_NO_CPU_TIME = "this recording's heartbeats tell no CPU time (cpu_s)"


@dataclass(frozen=True, slots=True)
class NotKnown:
    """A rule of the policy that the recording cannot tell about, and why."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class RecordedEnd:
    """How the build ended in the recording: `outcome` None is that the recording just stops."""

    at_s: float
    outcome: Outcome | None
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """What a policy would have done. Seconds since the worker's start.

    `verdicts` are in time order, each action of a rule (and pattern) once, up to the one that ends the
    build: `ended`, None where the policy lets it live. `evaluated` counts evaluations.
    """

    verdicts: tuple[Verdict, ...]
    ended: Verdict | None
    recorded: RecordedEnd
    not_known: tuple[NotKnown, ...] = ()
    evaluated: int = 0


def replay(
    policy: Policy, events: Iterable[WorkerEvent], *, interval_s: float = INTERVAL_S
) -> Timeline:
    """Run `policy` over a recorded build, which is the only one of its session.

    A build is judged every `interval_s` seconds, and before an event that could hide that a limit was
    passed since. The use of a GPU is not recorded: a worker that only waits for it looks idle.

    Raises:
        ValueError: `interval_s` is not positive and finite.
    """
    if not 0 < interval_s < math.inf:
        raise ValueError("an interval is positive and finite")
    recorded = list(events)
    run = _Run(policy)
    turn = 1
    for at, event in in_order(recorded):
        while run.ended is None and run.due <= at:
            turn = max(turn, math.ceil(run.due / interval_s))
            if turn * interval_s > at:
                run.judge(at)
                break
            run.judge(turn * interval_s)
            turn += 1
        if run.ended is not None:
            break
        run.take(event if event.at == at else replace(event, at=at))
    return Timeline(
        tuple(run.verdicts), run.ended, _end(recorded), _not_known(policy, recorded), run.evaluated
    )


class _Run:
    """A build under a policy, in simulated time."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._view = fold(BuildView(), StateChanged(0.0, State.STARTING))
        self._account = reserve(Account(policy.session.gpu_time), "", 0.0, at_most_s=None)
        self._given: set[tuple[Rule, Action, str | None]] = set()
        self._beat: Heartbeat | None = None
        self._soonest = _soonest(policy)
        self.due = 0.0
        """Before this time no level rises."""
        self.verdicts: list[Verdict] = []
        self.ended: Verdict | None = None
        self.evaluated = 0

    def judge(self, now: float) -> None:
        """Evaluate at `now`, as the supervisor does; somebody attends to the build all the time."""
        self.evaluated += 1
        seen = observe(self._view, now, attended_at=now)
        found = evaluate(seen, self._policy, self._account, now)
        self.due = now + min((item.next_at - item.used for item in found), default=math.inf)
        for item in found:
            key = (item.rule, item.action, item.pattern)
            if item.action is Action.NONE or key in self._given:
                continue
            verdict = item.verdict
            self._given.add(key)
            self.verdicts.append(verdict)
            self._view = fold(self._view, VerdictGiven(now, verdict))
            if item.action is Action.CANCEL:
                self.ended = verdict
                return

    def take(self, event: WorkerEvent) -> None:
        """Fold an event, as the supervisor does."""
        at = event.at
        self.due = min(self.due, at + self._soonest)
        self._view = fold(self._view, event)
        if isinstance(event, Heartbeat):
            self._sample(event)
            # It can tell of the past: an earlier callback, or that the worker has long been idle.
            self.due = at
        elif (
            self._view.state is State.STARTING
            and isinstance(event, PhaseStarted)
            and event.origin is Origin.TENSORRT
        ):
            self._view = fold(self._view, StateChanged(at, State.BUILDING))

    def _sample(self, beat: Heartbeat) -> None:
        before, used = self._beat, _cpu_s(beat)
        if used is None:
            return
        self._beat = beat
        if before is None or beat.at <= before.at:
            return
        percent = max(0.0, 100.0 * (used - (_cpu_s(before) or 0.0)) / (beat.at - before.at))
        sample = ActivitySampled(
            beat.at, busy=percent >= BUSY_PERCENT, cpu_percent=percent, rss_bytes=0
        )
        self._view = fold(self._view, sample)


def _soonest(policy: Policy) -> float:
    """Return the shortest time after an event in which a limit that it starts can be warned of."""
    rules, warn_at = policy.rules, policy.escalation.warn_at
    limits = (rules.step_stall, rules.silent, *rules.phase_time.values())
    said = [rule for rule in limits if rule is not None]
    return min((rule.limit * (rule.warn_at or warn_at) for rule in said), default=math.inf)


def _cpu_s(beat: Heartbeat) -> float | None:
    used = beat.cpu_s
    return used if used is not None and math.isfinite(used) else None


def _end(events: list[WorkerEvent]) -> RecordedEnd:
    outcome: Outcome | None = None
    error: ErrorInfo | None = None
    for event in events:
        if isinstance(event, Failed):
            outcome, error = Outcome.FAILED, event.error
        elif isinstance(event, EngineWritten):
            outcome, error = Outcome.SUCCEEDED, None
        elif isinstance(event, Goodbye):
            outcome = event.outcome
    return RecordedEnd(max((event.at for event in events), default=0.0), outcome, error)


def _not_known(policy: Policy, events: list[WorkerEvent]) -> tuple[NotKnown, ...]:
    missing = dict(_NOT_RECORDED)
    if not any(isinstance(event, Heartbeat) and _cpu_s(event) is not None for event in events):
        missing[Rule.STEP_STALL] = _NO_CPU_TIME
    return tuple(
        NotKnown(rule, missing[rule])
        for rule in Rule
        if rule in missing and policy.rule(rule) is not None
    )


class _Settings(BaseModel):
    """The first line of a file for the replay backend; how fast it is played says nothing here."""

    model_config = ConfigDict(extra="ignore")

    type: Literal["replay"]
    actions: list[object] = []


_Line = (
    _Settings
    | Hello
    | Ready
    | PhaseStarted
    | StepCompleted
    | PhaseFinished
    | Heartbeat
    | LogLine
    | OptionApplied
    | EngineWritten
    | ModelRead
    | InputsDigested
    | Failed
    | Goodbye
)
_LINES: TypeAdapter[_Line] = TypeAdapter(Annotated[_Line, Field(discriminator="type")])


def read_recording(path: Path) -> list[WorkerEvent]:
    """Return the events of a recorded build: the `events.jsonl` in the folder of a build.

    Raises:
        Refusal: it cannot be read, or is not valid; the message names the line.
    """
    try:
        events = _parse(read_bytes(path))
    except OSError as error:
        raise _refusal(f"{path} cannot be read: {error.strerror}") from error
    except RecordingError as error:
        where = "" if error.line is None else f" line {error.line}:"
        raise _refusal(f"{path}:{where} {error.reason}") from error
    return events


def _parse(data: bytes) -> list[WorkerEvent]:
    events: list[WorkerEvent] = []
    for said in read_lines(data, _LINES, first=_Settings, may_be_cut=True):
        if not isinstance(said, _Settings):
            events.append(said)
        elif said.actions:
            raise RecordingError("its actions are done by a build, and not recorded here", 1)
    if not events:
        raise RecordingError("there is no event")
    return events


def _refusal(message: str) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_ARGUMENT,
        one_line(message, 600),
        "Give the events.jsonl from the folder of a build. A file with actions is played by the "
        "backend replay first; that build's events.jsonl is the recording.",
    )
