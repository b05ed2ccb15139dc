"""How a build ended, judged from what the worker said, how it exited, and what it left on disk."""

import signal
from dataclasses import dataclass

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import Details, ErrorCode, ErrorInfo
from trt_agent_tools.model.events import Failed, Goodbye, Outcome, WorkerEvent
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.supervisor.artefact import Artefact
from trt_agent_tools.supervisor.build import CancelRequest
from trt_agent_tools.supervisor.process.ladder import Climb

_REASONS: dict[ErrorCode, Reason] = {
    ErrorCode.INVALID_ARGUMENT: Reason.UNSUPPORTED_OPTION,
    ErrorCode.MODEL_NOT_FOUND: Reason.INVALID_MODEL,
    ErrorCode.MODEL_EMPTY: Reason.INVALID_MODEL,
    ErrorCode.MODEL_UNREADABLE: Reason.INVALID_MODEL,
    ErrorCode.INVALID_MODEL: Reason.INVALID_MODEL,
    ErrorCode.MODEL_CHANGED: Reason.INVALID_MODEL,
    ErrorCode.UNSUPPORTED_OPERATORS: Reason.INVALID_MODEL,
    ErrorCode.MISSING_EXTERNAL_DATA: Reason.INVALID_MODEL,
    ErrorCode.OUTSIDE_ROOTS: Reason.INVALID_MODEL,
    ErrorCode.MISSING_PROFILE: Reason.UNSUPPORTED_OPTION,
    ErrorCode.INVALID_PROFILE: Reason.UNSUPPORTED_OPTION,
    ErrorCode.UNKNOWN_OPTION: Reason.UNSUPPORTED_OPTION,
    ErrorCode.UNSUPPORTED_OPTION: Reason.UNSUPPORTED_OPTION,
    ErrorCode.PLUGIN_NOT_ALLOWED: Reason.UNSUPPORTED_OPTION,
    ErrorCode.BACKEND_UNAVAILABLE: Reason.BUILDER_ERROR,
    ErrorCode.OUTPUT_EXISTS: Reason.OUTPUT_ERROR,
    ErrorCode.OUTPUT_FOLDER_MISSING: Reason.OUTPUT_ERROR,
    ErrorCode.OUTPUT_NOT_WRITABLE: Reason.OUTPUT_ERROR,
    ErrorCode.DISK_FULL: Reason.OUTPUT_ERROR,
    ErrorCode.OUT_OF_MEMORY: Reason.MEMORY,
    ErrorCode.WORKER_CRASHED: Reason.WORKER_CRASH,
    ErrorCode.PROTOCOL_ERROR: Reason.WORKER_CRASH,
    ErrorCode.KILLED_EXTERNALLY: Reason.KILLED_EXTERNALLY,
}

LATE = "The cancel came after the engine was complete; the engine was kept."
"""Noted of a build that succeeded although it was asked to end."""

_CRASH_HINT = "get_log shows what it printed last; another try uses a fresh process."


class Heard:
    """What the worker said of its end."""

    def __init__(self) -> None:
        self.error: ErrorInfo | None = None
        self.goodbye: Outcome | None = None

    def take(self, event: WorkerEvent) -> None:
        """Remember `event` if it tells of the end."""
        if isinstance(event, Failed):
            self.error = event.error
        elif isinstance(event, Goodbye):
            self.goodbye = event.outcome


@dataclass(frozen=True, slots=True)
class Ending:
    """The terminal state of a build and what is told with it."""

    state: State
    reason: Reason
    ended_by: Rung | None = None
    error: ErrorInfo | None = None
    note: str | None = None


def reason_for(code: ErrorCode) -> Reason:
    """Return the reason that a build which failed with `code` is given."""
    return _REASONS.get(code, Reason.BUILDER_ERROR)


def judge(
    heard: Heard,
    *,
    exit_status: int | None,
    artefact: Artefact | None,
    request: CancelRequest | None,
    climb: Climb | None,
    broken: str | None,
    where: str | None,
    peak_rss_bytes: int,
    elapsed_s: float,
) -> Ending:
    """Return how a build ended whose processes are all gone.

    `broken` tells how the worker broke the protocol, if the supervisor ended it for that. `where` is
    the phase that it was last in. A complete engine counts whatever came after it.
    """
    if artefact:
        return Ending(State.SUCCEEDED, Reason.COMPLETED, note=LATE if request else None)
    if broken:
        error = ErrorInfo(ErrorCode.PROTOCOL_ERROR, f"{broken}; it was ended for that", _CRASH_HINT)
        return Ending(State.FAILED, Reason.WORKER_CRASH, error=error)
    if heard.error:
        return Ending(State.FAILED, reason_for(heard.error.code), error=heard.error)
    if request and climb:
        return Ending(State.CANCELLED, request.reason, ended_by=climb.rung)
    if request and heard.goodbye is Outcome.CANCELLED:
        return Ending(State.CANCELLED, request.reason, ended_by=Rung.ASK)
    if heard.goodbye is Outcome.SUCCEEDED and exit_status == 0:
        error = ErrorInfo(
            ErrorCode.PROTOCOL_ERROR,
            "the build's process said that it succeeded, but its engine is not at the output",
            "Check whether something else moves or writes files there.",
        )
    else:
        error = _crash(exit_status, where, peak_rss_bytes, elapsed_s)
    return Ending(State.FAILED, reason_for(error.code), error=error)


def _crash(
    exit_status: int | None, where: str | None, peak_rss_bytes: int, elapsed_s: float
) -> ErrorInfo:
    place = f"in {where!r}, " if where else ""
    when = f"{place}{format_duration(elapsed_s)} after it was accepted"
    details: Details = {"peak_rss_bytes": peak_rss_bytes, "exit_status": exit_status}
    if exit_status is not None and exit_status < 0:
        name = _signal_name(-exit_status)
        if -exit_status == signal.SIGKILL:
            return ErrorInfo(
                ErrorCode.KILLED_EXTERNALLY,
                f"the build's process was killed ({name}) {when}, and not by this server: "
                "possibly the host ran out of memory",
                "Look into the kernel's log for the out-of-memory killer; build with more memory.",
                details,
            )
        return ErrorInfo(
            ErrorCode.WORKER_CRASHED,
            f"the build's process died by {name} {when}",
            _CRASH_HINT,
            details,
        )
    return ErrorInfo(
        ErrorCode.WORKER_CRASHED,
        f"the build's process ended {when} without saying how (exit status {exit_status})",
        _CRASH_HINT,
        details,
    )


def _signal_name(number: int) -> str:
    try:
        return f"signal {number}, {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"
