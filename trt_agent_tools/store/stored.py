"""What is read from the journal. Times and JSON texts are as in the records that brought them."""

from dataclasses import dataclass

from trt_agent_tools.model.states import Reason, State


@dataclass(frozen=True, slots=True)
class StoredBuild:
    """A build as the journal knows it."""

    build_id: str
    session_id: str
    owner: str
    idempotency_key: str | None
    created_at: str
    wall: float
    """When it was accepted."""
    supervisor: str
    request: str
    order: str
    facts: str
    policy: str
    """As last extended."""
    snapshot: str
    """The last one."""
    started_wall: float | None
    device: str | None
    worker_pid: int | None
    token: str | None
    at_most_s: float | None
    gpu_s: float | None
    """GPU time as last told; after the end, what was charged."""
    last_wall: float
    """When it was last told of: the last evidence that its supervisor lived."""
    ended_at: float | None
    """How long it took from being accepted to its end."""
    ended_wall: float | None
    state: State
    reason: Reason | None
    ended: bool


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """What a list shows of a build: nothing large. Fields as in `StoredBuild`."""

    build_id: str
    session_id: str
    created_at: str
    wall: float
    facts: str
    gpu_s: float | None
    ended_at: float | None
    state: State
    reason: Reason | None
    ended: bool


@dataclass(frozen=True, slots=True)
class StoredReservation:
    """GPU time that is reserved for a build which has not ended."""

    build_id: str
    wall: float
    at_most_s: float | None


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session and its account."""

    session_id: str
    owner: str
    label: str | None
    policy: str
    budget_s: float | None
    concurrent_builds: int
    queued_builds: int
    extension_left_s: float
    created_at: str
    is_default: bool
    spent_s: float
    """What all of its builds that ended have cost, also those that retention has removed."""
    reservations: tuple[StoredReservation, ...]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event of a build; `seq` rises over all builds."""

    seq: int
    build_id: str
    at: float
    kind: str
    body: str


@dataclass(frozen=True, slots=True)
class Health:
    """How the journal is. `ok` is False from a failed write on until one succeeds again."""

    ok: bool
    error: str | None
    path: str
    bytes: int
    """On disk, with what waits in the write-ahead log."""
    builds: int
    """When it was last checked, like the three below."""
    unfinished: int
    oldest: str | None
    """`created_at` of the oldest build."""
    checked: bool
    """Whether the whole file was read and found sound within the time for it."""
