"""Errors for the reader: a code to act on, what happened, what to do."""

from dataclasses import dataclass, field
from enum import Enum

JsonScalar = str | int | float | bool | None
"""What a detail's value may be."""

Details = dict[str, "JsonScalar | list[str]"]
"""Machine-readable facts beside an error's message, such as the valid names of an option."""


class ErrorCode(str, Enum):
    """What went wrong, in one stable word."""

    INVALID_ARGUMENT = "invalid_argument"
    """An argument is unknown, missing, of the wrong type or out of range."""
    UNKNOWN_BUILD = "unknown_build"
    """No build has this id."""
    NO_MANIFEST = "no_manifest"
    """The build has no engine, or its manifest is not there any more."""
    UNKNOWN_SESSION = "unknown_session"
    """No session of this caller has this id."""
    ABOVE_CEILING = "above_ceiling"
    """More was asked for than the policy allows; details have the ceiling."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The session has too little GPU time left for this build; details have what is left."""
    UNKNOWN_POLICY = "unknown_policy"
    """No policy has this name, or its file is not valid."""
    MODEL_NOT_FOUND = "model_not_found"
    """The model's path names nothing."""
    NOT_A_FILE = "not_a_file"
    """The model's path names a folder, a device, a FIFO or a socket."""
    MODEL_EMPTY = "model_empty"
    """The model's file has no bytes."""
    MODEL_UNREADABLE = "model_unreadable"
    """The model's file cannot be opened for reading."""
    INVALID_MODEL = "invalid_model"
    """The file is not an ONNX model that the parser accepts."""
    MODEL_CHANGED = "model_changed"
    """The model or a sidecar changed on disk while it was built from."""
    UNSUPPORTED_OPERATORS = "unsupported_operators"
    """The model has operators that the parser does not know; details name all of them."""
    MISSING_EXTERNAL_DATA = "missing_external_data"
    """Weights that the model keeps in files of their own are not there; details name them."""
    MISSING_PROFILE = "missing_profile"
    """Inputs have dynamic dimensions and no optimization profile; details name them."""
    INVALID_PROFILE = "invalid_profile"
    """An optimization profile does not fit the model's inputs."""
    UNKNOWN_OPTION = "unknown_option"
    """An option or a name among its values is not known; details list the valid ones."""
    UNSUPPORTED_OPTION = "unsupported_option"
    """This library lacks the option, or did not take the value (it was read back)."""
    PLUGIN_NOT_ALLOWED = "plugin_not_allowed"
    """A plugin library was asked for that the operator has not allowed."""
    OUTSIDE_ROOTS = "outside_roots"
    """A path leads outside the folders that this server may use, symbolic links followed."""
    OUTPUT_EXISTS = "output_exists"
    """The output is there already and `overwrite` was not asked for."""
    OUTPUT_BUSY = "output_busy"
    """Another build that has not ended writes to the same output."""
    OUTPUT_FOLDER_MISSING = "output_folder_missing"
    """The output's folder does not exist."""
    OUTPUT_NOT_WRITABLE = "output_not_writable"
    """The output's folder takes no file, or the output is no regular file."""
    DISK_FULL = "disk_full"
    """The engine did not fit on the disk; nothing was left at the output."""
    BACKEND_UNAVAILABLE = "backend_unavailable"
    """The library for this backend is not installed, does not load, or is not enabled."""
    BUILDER_ERROR = "builder_error"
    """TensorRT ended the build without an engine; its last errors are in the details."""
    OUT_OF_MEMORY = "out_of_memory"
    """TensorRT could not get the memory it needed."""
    WORKER_CRASHED = "worker_crashed"
    """The build's process died by a signal or left without a word."""
    KILLED_EXTERNALLY = "killed_externally"
    """The build's process was killed by SIGKILL, and not by this server: possibly out of memory."""
    PROTOCOL_ERROR = "protocol_error"
    """The worker sent what the protocol does not allow."""
    NOT_PROVEN_GONE = "not_proven_gone"
    """A process of the build was still there after SIGKILL; its device stays out of service."""
    TOO_LATE = "too_late"
    """The build has ended, or is being ended."""
    TIMED_OUT = "timed_out"
    """Looking at a model took longer than it may."""
    UNAUTHENTICATED = "unauthenticated"
    """The caller gave no token, or one that is not known or revoked."""
    POLICY_NOT_ALLOWED = "policy_not_allowed"
    """The caller may not name this policy; details list those it may."""
    JOURNAL_UNAVAILABLE = "journal_unavailable"
    """The journal cannot be written: nothing new is started, and what runs goes on."""
    SHUTTING_DOWN = "shutting_down"
    """The server is ending and takes no new builds."""
    QUEUE_FULL = "queue_full"
    """As many builds wait as this server takes."""
    SUPERVISOR_GONE = "supervisor_gone"
    """The supervisor of this state folder does not answer."""
    SUPERVISOR_RUNNING = "supervisor_running"
    """Another process is the supervisor of this state folder."""
    OTHER_VERSION = "other_version"
    """The supervisor of this state folder is of a version that this one cannot talk to."""
    BUILDS_LIVE = "builds_live"
    """The supervisor was not asked to end by force, and builds wait or run; details name them."""
    INTERNAL_ERROR = "internal_error"
    """A fault of this server; its log has the trace."""


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
        self, code: ErrorCode, message: str, hint: str = "", details: Details | None = None
    ) -> None:
        super().__init__(f"{code.value}: {message}")
        self.info = ErrorInfo(code, message, hint, details or {})
