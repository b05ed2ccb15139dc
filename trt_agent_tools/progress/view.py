"""What is known of a build after some of its events; `fold` makes each view from the one before."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.events import InputFile
from trt_agent_tools.model.proposal import Proposal
from trt_agent_tools.model.snapshot import Activity, AppliedOption, Result
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.verdict import Verdict
from trt_agent_tools.progress.past import Shape
from trt_agent_tools.progress.phases import PhaseTree


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """What never changes after a build was accepted."""

    build_id: str
    label: str | None
    policy: str
    backend: str
    model: str
    output: str
    created_at: str
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """The states that a build went through. Times never fall from one state to the next.

    `since` is when it came to its state, `started_at` when it got its device, `cancel_asked` whether
    it was asked to end, and `cancel_reason` why.
    """

    state: State = State.QUEUED
    since: float = 0.0
    reason: Reason | None = None
    device: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    ended_by: Rung | None = None
    cancel_asked: bool = False
    cancel_reason: Reason | None = None
    error: ErrorInfo | None = None
    proposals: tuple[Proposal, ...] = ()


@dataclass(frozen=True, slots=True)
class Inputs:
    """The files that a build reads, by their content. `sha256` is over all of them, in hexadecimal.

    `files` are the model and its sidecars; `files_left_out` of them are not told one by one.
    """

    sha256: str
    files: tuple[InputFile, ...]
    files_left_out: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What the worker and the supervisor told beside states and phases, cleaned and bounded."""

    error: ErrorInfo | None = None
    result: Result | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    options: tuple[AppliedOption, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    shape: Shape | None = None
    inputs: Inputs | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What the build's processes did, and when that was seen."""

    at: float
    activity: Activity


@dataclass(frozen=True, slots=True)
class BuildView:
    """A build after its events so far. `BuildView()` is a queued build at time 0.

    `seq` rises by one with every event that is folded, a heartbeat excepted; `changed_seq` is the
    seq of the last one that a waiting reader is to be woken for: a state, a phase, a note.

    A view is never changed, its maps neither: views share them. What changes often lies at the top,
    so that a step copies little.
    """

    seq: int = 0
    changed_seq: int = 0
    latest: float = 0.0
    """The time of the newest event."""
    last_callback: float | None = None
    """When TensorRT last called back."""
    fraction: float = 0.0
    """The largest share of steps seen so far."""
    phases: PhaseTree = field(default_factory=PhaseTree)
    life: Life = field(default_factory=Life)
    told: Told = field(default_factory=Told)
    sample: Sample | None = None
    last_sign: float = 0.0
    """When a phase or a step of any origin was last heard of."""
    last_busy: float = 0.0
    """When a sample last found the build's processes busy."""

    @property
    def state(self) -> State:
        """Where the build stands."""
        return self.life.state

    @property
    def reason(self) -> Reason | None:
        """Why it ended, or is being ended."""
        return self.life.reason

    @property
    def device(self) -> str | None:
        """The device that it got."""
        return self.life.device

    @property
    def started_at(self) -> float | None:
        """When it got its device."""
        return self.life.started_at

    @property
    def ended_at(self) -> float | None:
        """When it ended."""
        return self.life.ended_at

    @property
    def error(self) -> ErrorInfo | None:
        """What the supervisor said is wrong, else what the worker said."""
        if self.life.error is not None:
            return self.life.error
        return None if self.life.state is State.SUCCEEDED else self.told.error

    @property
    def result(self) -> Result | None:
        """The engine, once the build has succeeded."""
        return self.told.result if self.life.state is State.SUCCEEDED else None
