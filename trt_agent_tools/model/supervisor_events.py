"""What the supervisor itself adds to a build's story, and the one function that moves a state.

Together with the worker's events these are all that the reducer folds. Times (`at`) are seconds since
the build was accepted; the supervisor shifts a worker's times to this clock as it reads them.
"""

from dataclasses import dataclass

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.events import EngineWritten, WorkerEvent
from trt_agent_tools.model.proposal import Proposal
from trt_agent_tools.model.states import Reason, Rung, State, is_legal
from trt_agent_tools.model.verdict import Verdict

BUSY_PERCENT = 3.0
"""Processes that use so much of one core are busy. An idle worker, heartbeats included, uses well under
one percent."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The build moved to another state."""

    at: float
    state: State
    reason: Reason | None = None
    device: str | None = None
    ended_by: Rung | None = None
    error: ErrorInfo | None = None
    proposals: tuple[Proposal, ...] = ()


@dataclass(frozen=True, slots=True)
class ActivitySampled:
    """What the build's processes did since the sample before.

    Percentages are of one processor core (400 is four busy cores) or of the GPU.
    """

    at: float
    busy: bool
    cpu_percent: float
    rss_bytes: int
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that a reader of the snapshot should know, in a sentence of this server's."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class VerdictGiven:
    """A rule warned, would have ended the build, or ends it: each once."""

    at: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class EngineReused:
    """No engine was built: `written` is the one that the build `made_by` made, verified again."""

    at: float
    written: EngineWritten
    made_by: str


SupervisorEvent = StateChanged | ActivitySampled | Noted | VerdictGiven | EngineReused
BuildEvent = WorkerEvent | SupervisorEvent
"""Everything that is folded into a snapshot."""


class IllegalMoveError(Exception):
    """A state was to be left for one that does not follow it: a fault of this server."""


def transition(
    current: State,
    to: State,
    *,
    at: float,
    reason: Reason | None = None,
    device: str | None = None,
    ended_by: Rung | None = None,
    error: ErrorInfo | None = None,
    proposals: tuple[Proposal, ...] = (),
) -> StateChanged:
    """Judge the move from `current` to `to` and return the event that makes it.

    Raises:
        IllegalMoveError: no build may go that way.
    """
    if not is_legal(current, to):
        raise IllegalMoveError(f"{current.value} -> {to.value}")
    return StateChanged(at, to, reason, device, ended_by, error, proposals)
