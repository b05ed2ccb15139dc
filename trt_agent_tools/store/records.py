"""What is written to the journal: one record for each durable fact.

`wall` is seconds since the epoch, `at` seconds since the build was accepted, and durations are
seconds. Text that is said to be JSON is stored as it is given and never looked into. A record that was
stored already, or that tells again of what happens once, changes nothing.
"""

from dataclasses import dataclass
from enum import Enum

from trt_agent_tools.model.states import LIVE, TERMINAL, Reason, State
from trt_agent_tools.store.history import Learned


class Kind(str, Enum):
    """Of the events that the journal writes itself; `Happened` brings kinds of its own."""

    SESSION_OPENED = "session_opened"
    ACCEPTED = "accepted"
    STARTED = "started"
    VERDICT = "verdict"
    LIMIT_EXTENDED = "limit_extended"
    ENDED = "ended"


_OWN_KINDS = frozenset(kind.value for kind in Kind)


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A session is open. An owner has one default session at most; another is refused."""

    session_id: str
    owner: str
    label: str | None
    policy: str
    """JSON."""
    budget_s: float | None
    concurrent_builds: int
    queued_builds: int
    extension_left_s: float
    created_at: str
    """UTC, ISO 8601."""
    is_default: bool


@dataclass(frozen=True, slots=True)
class BuildAccepted:
    """A build of a known session is queued. A key that another build of its owner has is refused."""

    build_id: str
    session_id: str
    owner: str
    idempotency_key: str | None
    created_at: str
    """UTC, ISO 8601."""
    wall: float
    supervisor: str
    """JSON: the identity of the process that owns the build."""
    request: str
    """JSON."""
    order: str
    """JSON."""
    facts: str
    """JSON."""
    policy: str
    """JSON."""
    snapshot: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class BuildStarted:
    """A build holds its device, and its GPU time is reserved.

    It may be told once before the worker runs (without `worker_pid`) and once after: then only what
    was not known is added.
    """

    build_id: str
    wall: float
    device: str
    worker_pid: int | None
    token: str
    at_most_s: float | None
    """The most GPU time it may use, if there is a limit."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far a build is, about once a second: no event, only the newest is kept."""

    build_id: str
    wall: float
    gpu_s: float | None
    snapshot: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of a build that goes on. With `state` the build is in that live state from now on.

    Raises:
        ValueError: the kind is one that the journal writes itself, or the state is a terminal one.
    """

    build_id: str
    at: float
    kind: str
    body: str
    """JSON."""
    state: State | None = None
    reason: Reason | None = None

    def __post_init__(self) -> None:
        """Refuse what another record is for."""
        if self.kind in _OWN_KINDS:
            raise ValueError(f"an event {self.kind!r} has a record of its own")
        if self.state is not None and self.state not in LIVE:
            raise ValueError(f"a build comes to {self.state.value} by BuildEnded")


@dataclass(frozen=True, slots=True)
class VerdictRecorded:
    """A rule warned of a build, would have ended it, or ends it."""

    build_id: str
    at: float
    rule: str
    action: str
    body: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class LimitExtended:
    """A limit was raised: the build's policy from now on, and what its session has left for more."""

    build_id: str
    session_id: str
    extension_left_s: float
    policy: str
    """JSON."""
    at: float


@dataclass(frozen=True, slots=True)
class BuildEnded:
    """A build has ended, and its GPU time is settled. The first end stands.

    `gpu_s` is charged; where it is None, what was last told of it, and nothing for a build that never
    held a device.

    Raises:
        ValueError: the state is not a terminal one.
    """

    build_id: str
    at: float
    wall: float
    state: State
    reason: Reason | None
    gpu_s: float | None
    snapshot: str
    """JSON."""
    learned: Learned | None = None
    """What it tells of later builds, if it succeeded."""

    def __post_init__(self) -> None:
        """Refuse what is no end."""
        if self.state not in TERMINAL:
            raise ValueError(f"{self.state.value} is not the end of a build")


Record = (
    SessionOpened
    | BuildAccepted
    | BuildStarted
    | Progressed
    | Happened
    | VerdictRecorded
    | LimitExtended
    | BuildEnded
)
