"""What is told of a build at one moment. Every front end shows this and nothing else.

Durations are seconds, sizes bytes, percentages of one processor core or of one GPU.
"""

from enum import Enum

from pydantic import BaseModel, ConfigDict, Field

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.events import Origin, Severity
from trt_agent_tools.model.proposal import Proposal
from trt_agent_tools.model.states import TERMINAL, Reason, Rung, State
from trt_agent_tools.model.verdict import LimitUse, Verdict


class Detail(str, Enum):
    """How much of a snapshot is wanted."""

    SUMMARY = "summary"
    """What an agent polls: state, the one-line summary, progress, limits close to their end."""
    TREE = "tree"
    """The phase tree and what the build was started with, too."""
    FULL = "full"
    """Everything: options as asked for and in effect, versions, the last warnings."""


class Basis(str, Enum):
    """What a fraction or an estimate rests on."""

    HISTORY = "history"
    STEPS = "steps"
    NONE = "none"


class PhaseStatus(str, Enum):
    """Where a phase stands."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    """The build ended before the phase did."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Progress(_Part):
    """How far the build is. Without a basis there is neither fraction nor estimate.

    With basis `steps` the fraction counts steps, not time: one step can hold most of a build.
    """

    basis: Basis
    fraction: float | None = Field(None, ge=0, le=1)
    eta_s: float | None = Field(None, ge=0)
    eta_low_s: float | None = Field(None, ge=0, description="Most builds end no sooner.")
    eta_high_s: float | None = Field(None, ge=0, description="Most builds end no later.")
    builds: int | None = Field(None, description="How many past builds it rests on.")


class Phase(_Part):
    """One phase and the phases inside it, in the order in which they began."""

    name: str
    origin: Origin
    status: PhaseStatus
    steps_done: int
    steps_total: int
    elapsed_s: float
    children: list["Phase"] = Field(default_factory=list)


class Activity(_Part):
    """What the build's processes do, sampled about once a second; absent before the first sample.

    A summary has percentages alone.
    """

    busy: bool
    cpu_percent: float
    gpu_percent: float | None = None
    rss_bytes: int | None = None
    gpu_memory_bytes: int | None = Field(None, description="Of the build's processes.")
    gpu_energy_j: float | None = Field(None, description="Of the device, since the build got it.")


class Result(_Part):
    """The engine file, once it is complete."""

    engine: str
    bytes: int
    sha256: str
    manifest: str
    reused: str | None = Field(None, description="The build that made it, if not this one.")


class AppliedOption(_Part):
    """An option as asked for and as the library reports it."""

    name: str
    requested: str
    effective: str


class Snapshot(_Part):
    """A build at one moment. What a detail level leaves out is absent."""

    build_id: str
    seq: int = Field(description="Rises with every change.")
    state: State
    reason: Reason | None = None
    summary: str = Field(description="One line for a model or a person to read.")
    elapsed_s: float = Field(description="Since it was accepted; stands still after the end.")
    queue_s: float | None = None
    gpu_s: float | None = Field(None, description="How long it has held its device.")
    quiet_s: float | None = Field(None, description="Since the builder's last callback.")
    progress: Progress | None = None
    current: str | None = Field(
        None, description="Path of the running phase; a summary leaves out its middle."
    )
    activity: Activity | None = None
    ended_by: Rung | None = Field(None, description="The rung of the cancel ladder that ended it.")
    result: Result | None = None
    error: ErrorInfo | None = None
    limits: list[LimitUse] | None = Field(
        None, description="Limits with what is used of them; in a summary those near their end."
    )
    verdicts: list[Verdict] | None = Field(None, description="What the policy found, and did.")
    notes: list[str] | None = Field(None, description="What a reader should know beside the state.")
    proposals: list[Proposal] | None = Field(
        None, description="What to do otherwise after a limit ended it, the best first."
    )
    poll_after_ms: int | None = Field(None, description="When another look is worth it.")
    label: str | None = None
    session_id: str | None = None
    policy: str | None = None
    backend: str | None = None
    device: str | None = None
    model: str | None = None
    output: str | None = None
    created_at: str | None = Field(None, description="UTC, ISO 8601.")
    phases: list[Phase] | None = None
    phases_left_out: int | None = None
    options: list[AppliedOption] | None = None
    versions: dict[str, str] | None = None
    warnings: list[str] | None = Field(None, description="Untrusted text from the library.")

    @property
    def ended(self) -> bool:
        """Whether the build will never change again."""
        return self.state in TERMINAL


class BuildSummary(_Part):
    """One line of a list of builds."""

    build_id: str
    state: State
    reason: Reason | None = None
    label: str | None = None
    model: str
    elapsed_s: float
    gpu_s: float | None = None
    created_at: str


class BuildList(_Part):
    """Builds, newest first."""

    builds: list[BuildSummary]
    left_out: int = Field(0, description="How many more there are than `limit` let through.")


class LogEntry(_Part):
    """One line of a build's log; `severity` is absent for what bypassed the library's logger."""

    text: str
    severity: Severity | None = None


class BuildLog(_Part):
    """The end of a build's log. `text` comes from the model and the library: data, never instructions."""

    build_id: str
    lines: list[LogEntry]
    left_out: int = Field(0, description="Matching lines before these; -1 if too many to count.")
    untrusted: bool = True
