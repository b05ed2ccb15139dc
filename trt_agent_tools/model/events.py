"""Worker protocol v1: what a worker says, one JSON object a line, and what it is told.

This module is the protocol. It needs the standard library alone, so that a worker starts fast and a
program in another language can be held against it; `docs/worker-protocol.md` tells it in prose.

Times (`at`) are seconds since the worker's start, from a clock that never steps.
"""

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Literal

from trt_agent_tools.model.errors import ErrorInfo, JsonScalar
from trt_agent_tools.model.findings import Sidecar, TensorInfo, Weights

PROTOCOL = 1
"""The version that `Hello` carries; a supervisor refuses any other."""

MAX_LINE_BYTES = 256 * 1024
"""A line longer than this, without its newline, breaks the protocol."""

HEARTBEAT_S = 1.0
"""A worker sends a heartbeat this often, whatever TensorRT is doing."""

BUILD_TOKEN_ENV = "TRT_AGENT_TOOLS_BUILD_TOKEN"  # noqa: S105  (a name, not a secret)
"""The environment variable by which every process of a build is found, even outside its group."""

JsonValue = JsonScalar | list[str] | dict[str, int]
"""What an option's value may be, as asked for and as read back."""


class Origin(str, Enum):
    """Who reported a phase."""

    WORKER = "worker"
    TENSORRT = "tensorrt"


class Severity(str, Enum):
    """The severity of a log line, TensorRT's own names in lower case."""

    INTERNAL_ERROR = "internal_error"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    VERBOSE = "verbose"


class Outcome(str, Enum):
    """How a worker says that it ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the loaded library takes, detected on the library itself.

    `choices` maps an option that takes names (such as `flags`) to its valid names.
    """

    options: list[str] = field(default_factory=list)
    choices: dict[str, list[str]] = field(default_factory=dict)
    progress: bool = False
    cooperative_cancel: bool = False


@dataclass(frozen=True, slots=True)
class Hello:
    """The first event, sent before the library is imported.

    `monotonic` is CLOCK_MONOTONIC, in seconds, at the worker's `at = 0`: the same clock for every
    process of the host, so that a supervisor need not guess how long the line took.
    """

    at: float
    backend: str
    pid: int
    protocol: int = PROTOCOL
    monotonic: float | None = None
    type: Literal["hello"] = "hello"


@dataclass(frozen=True, slots=True)
class Ready:
    """The library is loaded: its versions, the file it came from, what it takes, its device."""

    at: float
    versions: dict[str, str]
    library: str
    device: str
    capabilities: Capabilities
    type: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True)
class PhaseStarted:
    """A phase began. `instance` is unique in the build; names are not.

    `parent` is the instance that contains it, absent at the top. `steps` is how many steps were
    announced (at least 1); fewer may come.
    """

    at: float
    instance: int
    name: str
    steps: int
    parent: int | None = None
    origin: Origin = Origin.TENSORRT
    type: Literal["phase_started"] = "phase_started"


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """Step number `step` (from 0) of a phase was completed; earlier ones may go unreported."""

    at: float
    instance: int
    step: int
    type: Literal["step_completed"] = "step_completed"


@dataclass(frozen=True, slots=True)
class PhaseFinished:
    """A phase ended, perhaps before all of its steps."""

    at: float
    instance: int
    type: Literal["phase_finished"] = "phase_finished"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker lives. `callbacks` counts TensorRT's callbacks; `last_callback` is its latest's time.

    `cpu_s` is the processor time that the worker's process has used since its start, so that a
    recording tells whether a silent build was at work.
    """

    at: float
    callbacks: int = 0
    last_callback: float | None = None
    cpu_s: float | None = None
    type: Literal["heartbeat"] = "heartbeat"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the library's log at warning or worse; the log file has the rest too."""

    at: float
    severity: Severity
    message: str
    type: Literal["log"] = "log"


@dataclass(frozen=True, slots=True)
class OptionApplied:
    """An option was set and read back."""

    at: float
    name: str
    requested: JsonValue
    effective: JsonValue
    type: Literal["option_applied"] = "option_applied"


@dataclass(frozen=True, slots=True)
class EngineWritten:
    """The engine is complete at `path`: written, fsynced, renamed and hashed; so is its manifest."""

    at: float
    path: str
    bytes: int
    sha256: str
    manifest: str
    type: Literal["engine_written"] = "engine_written"


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found in a model. Names are the model's, cleaned; sizes are bytes.

    `bytes` counts the model and its sidecars. `operators` counts nodes by operator, most frequent first.
    `sha256` is absent where it was not taken, `unsupported_operators` where it is not known; `notes` say
    why, and what else a reader should know.
    """

    at: float
    bytes: int
    ir_version: int
    opset: dict[str, int]
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    operators: dict[str, int]
    weights: Weights
    producer: str | None = None
    sha256: str | None = None
    unsupported_operators: list[str] | None = None
    sidecars: list[Sidecar] = field(default_factory=list)
    missing_sidecars: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    type: Literal["inspected"] = "inspected"


@dataclass(frozen=True, slots=True)
class ModelRead:
    """What a model asks of the builder, as far as counting tells; told while it is parsed.

    `operators` are the most frequent ones, 200 kinds at most, and `nodes` counts all. `weight_bytes` is as
    in `Inspected`. `profile_elements` are those of all inputs with a
    profile at the shapes to optimise for. `optimization_level` is the one in effect.
    """

    at: float
    nodes: int
    operators: dict[str, int]
    weight_bytes: int
    profile_elements: int = 0
    optimization_level: int | None = None
    type: Literal["model_read"] = "model_read"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that a build reads, by its content. `path` is absolute."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class InputsDigested:
    """The model and its sidecars were read to their ends. `sha256` is over all of them, as in `Inspected`.

    `files` are 100 at most, the model first; `files_left_out` says how many more there are.
    """

    at: float
    sha256: str
    bytes: int
    files: list[InputFile]
    files_left_out: int = 0
    type: Literal["inputs_digested"] = "inputs_digested"


@dataclass(frozen=True, slots=True)
class Failed:
    """The build cannot go on."""

    at: float
    error: ErrorInfo
    type: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The last event: the worker ends by itself now."""

    at: float
    outcome: Outcome
    type: Literal["goodbye"] = "goodbye"


WorkerEvent = (
    Hello
    | Ready
    | PhaseStarted
    | StepCompleted
    | PhaseFinished
    | Heartbeat
    | LogLine
    | OptionApplied
    | EngineWritten
    | Inspected
    | ModelRead
    | InputsDigested
    | Failed
    | Goodbye
)
"""Everything that a worker may say."""


# Copying deeply and making an encoder each time took four fifths of the cost.
_ENCODE = json.JSONEncoder(separators=(",", ":"), default=asdict).encode


def encode_event(event: WorkerEvent) -> bytes:
    """Return `event` as one line of the protocol, newline included."""
    named = {name: getattr(event, name) for name in event.__dataclass_fields__}
    return _ENCODE(named).encode() + b"\n"
