"""Errors for the reader: a code to act on, what happened, what to do."""

from dataclasses import dataclass, field
from enum import Enum

JsonScalar = str | int | float | bool | None
"""What a detail's value may be."""

Details = dict[str, JsonScalar | list[str]]
"""Machine-readable facts beside an error's message, such as the valid names of an option."""


class ErrorCode(str, Enum):
    """What went wrong, in one stable word.

    `trt_agent_tools.model.error_guide` says of each when it comes, what to do, and whether to try again.
    """

    INVALID_ARGUMENT = "invalid_argument"
    UNKNOWN_BUILD = "unknown_build"
    NO_MANIFEST = "no_manifest"
    UNKNOWN_SESSION = "unknown_session"
    ABOVE_CEILING = "above_ceiling"
    BUDGET_EXHAUSTED = "budget_exhausted"
    UNKNOWN_POLICY = "unknown_policy"
    MODEL_NOT_FOUND = "model_not_found"
    NOT_A_FILE = "not_a_file"
    MODEL_EMPTY = "model_empty"
    MODEL_UNREADABLE = "model_unreadable"
    INVALID_MODEL = "invalid_model"
    MODEL_CHANGED = "model_changed"
    UNSUPPORTED_OPERATORS = "unsupported_operators"
    MISSING_EXTERNAL_DATA = "missing_external_data"
    MISSING_PROFILE = "missing_profile"
    INVALID_PROFILE = "invalid_profile"
    UNKNOWN_OPTION = "unknown_option"
    UNSUPPORTED_OPTION = "unsupported_option"
    PLUGIN_NOT_ALLOWED = "plugin_not_allowed"
    OUTSIDE_ROOTS = "outside_roots"
    OUTPUT_EXISTS = "output_exists"
    OUTPUT_BUSY = "output_busy"
    OUTPUT_FOLDER_MISSING = "output_folder_missing"
    OUTPUT_NOT_WRITABLE = "output_not_writable"
    DISK_FULL = "disk_full"
    BACKEND_UNAVAILABLE = "backend_unavailable"
    BUILDER_ERROR = "builder_error"
    OUT_OF_MEMORY = "out_of_memory"
    WORKER_CRASHED = "worker_crashed"
    KILLED_EXTERNALLY = "killed_externally"
    PROTOCOL_ERROR = "protocol_error"
    TOO_LATE = "too_late"
    TIMED_OUT = "timed_out"
    UNAUTHENTICATED = "unauthenticated"
    CANNOT_AUTHENTICATE = "cannot_authenticate"
    POLICY_NOT_ALLOWED = "policy_not_allowed"
    JOURNAL_UNAVAILABLE = "journal_unavailable"
    SHUTTING_DOWN = "shutting_down"
    QUEUE_FULL = "queue_full"
    SUPERVISOR_GONE = "supervisor_gone"
    SUPERVISOR_RUNNING = "supervisor_running"
    OTHER_VERSION = "other_version"
    BUILDS_LIVE = "builds_live"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What is told of an error, in a snapshot, an event or a refusal.

    `message` says what happened, `hint` what to do about it.
    """

    code: ErrorCode
    message: str
    hint: str = ""
    details: Details = field(default_factory=dict)


class Refusal(Exception):  # noqa: N818  (it is an answer to the caller, not a fault)
    """A request that is not carried out. Nothing was started and nothing left behind."""

    def __init__(
        self, code: ErrorCode, message: str, hint: str, details: Details | None = None
    ) -> None:
        super().__init__(f"{code.value}: {message}")
        self.info = ErrorInfo(code, message, hint, details or {})
