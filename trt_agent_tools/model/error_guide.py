"""What every error code means and what to do about it: the one place.

docs/errors.md is generated from here, and every refusal tells its code's `retry`.
"""

from dataclasses import dataclass
from enum import Enum

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo


class Retry(str, Enum):
    """Whether it makes sense to make the same call again."""

    NO = "no"
    CHANGED = "changed"
    LATER = "later"


RETRY_MEANING = {
    Retry.NO: "The same call fails again, and no other argument helps.",
    Retry.CHANGED: "The call can succeed once the request, or a file that it names, is corrected.",
    Retry.LATER: "The same call may succeed later, as it is.",
}
"""What each `Retry` tells, in a sentence."""


@dataclass(frozen=True, slots=True)
class Guide:
    """What there is to know about one error code.

    `when` says what has happened, `do` what to do where the error's own hint is no better, and `retry`
    whether to make the call again.
    """

    when: str
    do: str
    retry: Retry


@dataclass(frozen=True, slots=True)
class GuidedError(ErrorInfo):
    """An error as a caller is told of it. `retry` is None only from a server that does not tell."""

    retry: Retry | None = None


def guided(error: ErrorInfo) -> GuidedError:
    """Return `error` with the advice that its code has."""
    retry = GUIDES[error.code].retry
    return GuidedError(error.code, error.message, error.hint, error.details, retry)


GUIDES: dict[ErrorCode, Guide] = {
    ErrorCode.INVALID_ARGUMENT: Guide(
        "An argument is unknown, missing, of the wrong type or out of range.",
        "Correct the argument that the message names.",
        Retry.CHANGED,
    ),
    ErrorCode.UNAUTHENTICATED: Guide(
        "The caller gave no token, or one that is not known or revoked.",
        "Send `Authorization: Bearer TOKEN` with a token that the operator made.",
        Retry.CHANGED,
    ),
    ErrorCode.CANNOT_AUTHENTICATE: Guide(
        "The server cannot judge tokens at the moment, so it lets nobody in.",
        "The operator finds the reason in the server's log: the file of tokens, or the issuer's keys.",
        Retry.LATER,
    ),
    ErrorCode.UNKNOWN_BUILD: Guide(
        "No build of this caller has this id.",
        "Take an id from `list_builds`.",
        Retry.CHANGED,
    ),
    ErrorCode.NO_MANIFEST: Guide(
        "The build has no engine, or its manifest is not there any more.",
        "Name a build that has succeeded, wait for one that runs with `get_progress`, or build again.",
        Retry.CHANGED,
    ),
    ErrorCode.UNKNOWN_SESSION: Guide(
        "No session of this caller has this id.",
        "Make one with `open_session`, or leave `session_id` out for the default session.",
        Retry.CHANGED,
    ),
    ErrorCode.ABOVE_CEILING: Guide(
        "More was asked for than the policy allows; the details have the ceiling.",
        "Ask for at most the ceiling, or leave the limit out.",
        Retry.CHANGED,
    ),
    ErrorCode.BUDGET_EXHAUSTED: Guide(
        "The session has too little GPU time left for this build; the details have what is left.",
        "Tighten `limits.gpu_time` to what is left, or `open_session` with more GPU time.",
        Retry.CHANGED,
    ),
    ErrorCode.UNKNOWN_POLICY: Guide(
        "No policy has this name, or its file is not valid.",
        "Name one of those in the details, or leave `policy` out for the server's own.",
        Retry.CHANGED,
    ),
    ErrorCode.POLICY_NOT_ALLOWED: Guide(
        "The caller may not name this policy; the details list those it may.",
        "Name one of those, or leave `policy` out.",
        Retry.CHANGED,
    ),
    ErrorCode.MODEL_NOT_FOUND: Guide(
        "The model's path names nothing.",
        "Correct the path; a relative one starts at the server's first root.",
        Retry.CHANGED,
    ),
    ErrorCode.NOT_A_FILE: Guide(
        "The path names a folder, a device, a FIFO or a socket, or no engine.",
        "Name a regular file.",
        Retry.CHANGED,
    ),
    ErrorCode.MODEL_EMPTY: Guide(
        "The model's file has no bytes.",
        "Export or copy the model again.",
        Retry.CHANGED,
    ),
    ErrorCode.MODEL_UNREADABLE: Guide(
        "The model's file cannot be opened for reading, or was taken away while it was built from.",
        "Make it readable for the server's user, and keep it in place until the build has ended.",
        Retry.CHANGED,
    ),
    ErrorCode.INVALID_MODEL: Guide(
        "The file is not an ONNX model that the parser accepts.",
        "Check and export the model again; `get_log` has the parser's words.",
        Retry.CHANGED,
    ),
    ErrorCode.MODEL_CHANGED: Guide(
        "The model or a sidecar changed on disk while it was built from.",
        "Build again when nothing writes to the files that the details name.",
        Retry.LATER,
    ),
    ErrorCode.UNSUPPORTED_OPERATORS: Guide(
        "The model has operators that the parser does not know; the details name all of them.",
        "Export the model without them, often with another opset, or have the operator allow a plugin.",
        Retry.CHANGED,
    ),
    ErrorCode.MISSING_EXTERNAL_DATA: Guide(
        "Weights that the model keeps in files of their own are not there; the details name them.",
        "Put the files beside the model.",
        Retry.CHANGED,
    ),
    ErrorCode.MISSING_PROFILE: Guide(
        "Inputs have dynamic dimensions and no optimization profile; the details name them.",
        "Give `options.profiles` the smallest, usual and largest shape of each of these inputs.",
        Retry.CHANGED,
    ),
    ErrorCode.INVALID_PROFILE: Guide(
        "An optimization profile does not fit the model's inputs.",
        "Name the model's inputs with all their dimensions, min <= opt <= max.",
        Retry.CHANGED,
    ),
    ErrorCode.UNKNOWN_OPTION: Guide(
        "An option or a name among its values is not known; the details list the valid ones.",
        "Use one of the valid names, or leave the option out.",
        Retry.CHANGED,
    ),
    ErrorCode.UNSUPPORTED_OPTION: Guide(
        "This library lacks the option, or did not take the value: it was read back.",
        "Leave the option out, give a value that the library takes, or choose another `backend`.",
        Retry.CHANGED,
    ),
    ErrorCode.PLUGIN_NOT_ALLOWED: Guide(
        "A plugin library was asked for that the operator has not allowed.",
        "Use one of the allowed ones in the details, or ask the operator for `--allow-plugin FILE`.",
        Retry.CHANGED,
    ),
    ErrorCode.OUTSIDE_ROOTS: Guide(
        "A path leads outside the folders that this server may use, symbolic links followed.",
        "Use a path under one of the roots in the details, or ask the operator for another `--root`.",
        Retry.CHANGED,
    ),
    ErrorCode.OUTPUT_EXISTS: Guide(
        "The output is there already and `overwrite` was not asked for.",
        'Give another output, or `options {"overwrite": true}`.',
        Retry.CHANGED,
    ),
    ErrorCode.OUTPUT_BUSY: Guide(
        "Another build that has not ended writes to the same output; the details name it.",
        "Wait for that build with `get_progress`, cancel it, or give another output.",
        Retry.LATER,
    ),
    ErrorCode.OUTPUT_FOLDER_MISSING: Guide(
        "The folder of the output or of the timing cache does not exist.",
        "Make the folder, or give another path.",
        Retry.CHANGED,
    ),
    ErrorCode.OUTPUT_NOT_WRITABLE: Guide(
        "The output's folder takes no file, or the output is no regular file.",
        "Give an output in a folder that the server's user may write to.",
        Retry.CHANGED,
    ),
    ErrorCode.DISK_FULL: Guide(
        "The engine did not fit on the disk; nothing was left at the output.",
        "Free space, or give an output on another disk.",
        Retry.LATER,
    ),
    ErrorCode.BACKEND_UNAVAILABLE: Guide(
        "The library for this backend is not installed, does not load, or is not enabled.",
        "Choose another `backend`; `trt-agent-tools doctor` tells which ones work and why not.",
        Retry.CHANGED,
    ),
    ErrorCode.BUILDER_ERROR: Guide(
        "TensorRT ended the build without an engine; its last errors are in the details.",
        "Read the details and `get_log`, and change the model or the options accordingly.",
        Retry.CHANGED,
    ),
    ErrorCode.OUT_OF_MEMORY: Guide(
        "TensorRT could not get the memory it needed.",
        "Give smaller `memory_pool_limits` or profiles, or build when the device has more free memory.",
        Retry.CHANGED,
    ),
    ErrorCode.WORKER_CRASHED: Guide(
        "The build's process could not be started, died by a signal, or left without a word.",
        "Read `get_log`, then try once more: a new build has a fresh process.",
        Retry.LATER,
    ),
    ErrorCode.KILLED_EXTERNALLY: Guide(
        "The build's process was killed by SIGKILL, and not by this server: possibly out of memory.",
        "Look for the out-of-memory killer in the kernel's log; build when more memory is free.",
        Retry.LATER,
    ),
    ErrorCode.PROTOCOL_ERROR: Guide(
        "The worker sent what the protocol does not allow, or its engine is not where it said.",
        "Check that nothing else moves files at the output, and that one version is installed.",
        Retry.NO,
    ),
    ErrorCode.TOO_LATE: Guide(
        "The build has ended, or is being ended.",
        "Read how it ended with `get_progress`, and start it again if it is still wanted.",
        Retry.NO,
    ),
    ErrorCode.TIMED_OUT: Guide(
        "Looking at a model took longer than it may.",
        "Try once more when the machine is less busy, or start the build without looking first.",
        Retry.LATER,
    ),
    ErrorCode.QUEUE_FULL: Guide(
        "As many builds wait, or sessions are open, as this server takes from you, or from all.",
        "Wait until some have ended.",
        Retry.LATER,
    ),
    ErrorCode.JOURNAL_UNAVAILABLE: Guide(
        "The journal cannot be read or written: nothing new is started, and what runs goes on.",
        "Have the operator free space or mend the state folder.",
        Retry.LATER,
    ),
    ErrorCode.SHUTTING_DOWN: Guide(
        "The server is ending and takes no new builds.",
        "Call again in a moment: the next call finds or starts another one.",
        Retry.LATER,
    ),
    ErrorCode.SUPERVISOR_GONE: Guide(
        "The supervisor of this state folder does not answer.",
        "Call again and look at `list_builds`; give a start an `idempotency_key` to repeat it safely.",
        Retry.LATER,
    ),
    ErrorCode.SUPERVISOR_RUNNING: Guide(
        "Another process is the supervisor of this state folder.",
        "Leave out `--embedded` to use that one, or give another `--state-dir`.",
        Retry.CHANGED,
    ),
    ErrorCode.OTHER_VERSION: Guide(
        "The supervisor of this state folder is of a version that this one cannot talk to.",
        "Use its version, or let its builds end and run `trt-agent-tools stop`.",
        Retry.NO,
    ),
    ErrorCode.BUILDS_LIVE: Guide(
        "The supervisor was not asked to end by force, and builds wait or run; the details name them.",
        "Wait for them or cancel them; `--force` ends them now.",
        Retry.LATER,
    ),
    ErrorCode.INTERNAL_ERROR: Guide(
        "A fault of this server; its log has the trace.",
        "Report it with the lines of the server's log.",
        Retry.NO,
    ),
}
"""Every code has its guide, in the order in which docs/errors.md shows them."""
