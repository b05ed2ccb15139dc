"""The states of a build, the reasons they end, and the one place where a move is judged legal."""

from enum import Enum


class State(str, Enum):
    """Where a build stands."""

    QUEUED = "queued"
    """Accepted; waits for its device."""
    STARTING = "starting"
    """A worker process runs; TensorRT's first phase has not begun."""
    BUILDING = "building"
    """TensorRT has begun its first phase; the engine file is not complete yet."""
    CANCELLING = "cancelling"
    """An end was asked for; it is not proven yet that every process is gone."""
    SUCCEEDED = "succeeded"
    """The engine is written, fsynced, renamed and hashed."""
    FAILED = "failed"
    """It ended without an engine, and nobody asked it to."""
    CANCELLED = "cancelled"
    """It ended because a person, an agent, a policy or a shutdown asked it to."""
    LOST = "lost"
    """Its supervisor died under it; what it did afterwards is not known."""


class Reason(str, Enum):
    """Why a build ended, or is being ended."""

    COMPLETED = "completed"
    USER_REQUEST = "user_request"
    BUILD_TIME = "build_time"
    GPU_BUDGET = "gpu_budget"
    QUEUE_TIME = "queue_time"
    STARTUP_TIME = "startup_time"
    STEP_STALL = "step_stall"
    SILENT = "silent"
    PHASE_TIME = "phase_time"
    PROJECTED_OVERRUN = "projected_overrun"
    UNATTENDED = "unattended"
    MEMORY = "memory"
    INVALID_MODEL = "invalid_model"
    UNSUPPORTED_OPTION = "unsupported_option"
    BUILDER_ERROR = "builder_error"
    WORKER_CRASH = "worker_crash"
    KILLED_EXTERNALLY = "killed_externally"
    OUTPUT_ERROR = "output_error"
    SERVER_SHUTDOWN = "server_shutdown"
    SUPERVISOR_LOST = "supervisor_lost"


class Rung(str, Enum):
    """The rung of the cancel ladder that ended a build."""

    DEQUEUED = "dequeued"
    """It had no process yet."""
    ASK = "ask"
    """The worker saw the request and ended by itself."""
    TERMINATE = "terminate"
    """SIGTERM to every process of the build."""
    KILL = "kill"
    """SIGKILL to every process of the build."""


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.LOST})
"""The states that a build never leaves."""

LIVE = frozenset({State.QUEUED, State.STARTING, State.BUILDING, State.CANCELLING})
"""The states in which a build waits for, or holds, a device."""

_MOVES: dict[State, frozenset[State]] = {
    # Straight to success: the engine of an identical build was kept, and nothing is built.
    State.QUEUED: frozenset(
        {State.STARTING, State.SUCCEEDED, State.FAILED, State.CANCELLING, State.LOST}
    ),
    State.STARTING: frozenset(
        {State.BUILDING, State.SUCCEEDED, State.FAILED, State.CANCELLING, State.LOST}
    ),
    State.BUILDING: frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLING, State.LOST}),
    # A late success beats a late cancel: the engine was complete before the worker saw it.
    State.CANCELLING: frozenset({State.CANCELLED, State.SUCCEEDED, State.FAILED, State.LOST}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.LOST: frozenset(),
}


def is_legal(current: State, to: State) -> bool:
    """Whether a build may go from `current` to `to`."""
    return to in _MOVES[current]
