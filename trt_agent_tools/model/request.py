"""What a front end asks of the supervisor, and what the supervisor asks of a worker."""

from enum import Enum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.trace import TraceParent

MAX_WAIT_S = 45.0
"""The longest wait in one call: agent hosts drop calls after 60 s and more (some after 5 s)."""

Path = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]
"""A path as text, without NUL."""

Label = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A short name for people, on one line."""


_LimitText = Annotated[str, Field(max_length=40)]
_Pattern = Annotated[str, Field(max_length=1000)]

LimitName = Annotated[str, Field(max_length=40)]
"""The name of a rule; which there are is the policy's to say."""

LimitValue = (
    _LimitText
    | int
    | float
    | Annotated[dict[_Pattern, _LimitText | int | float], Field(max_length=64)]
)
"""A limit's value: a duration, a size, a ratio, or, for phase_time, durations by phase pattern."""


class Backend(str, Enum):
    """Which library builds."""

    AUTO = "auto"
    """`tensorrt` where it is installed and a GPU is there, else `tensorrt_rtx`."""
    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt_rtx"
    REPLAY = "replay"
    """Plays a recorded event file, for trying policies and tests; off unless enabled."""


class StartRequest(BaseModel):
    """A build to start."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Path
    output: Path | None = None
    backend: Backend = Backend.AUTO
    options: BuildOptions = BuildOptions()
    policy: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    limits: dict[LimitName, LimitValue] = Field(default_factory=dict, max_length=32)
    session_id: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    label: Label | None = None
    idempotency_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    traceparent: TraceParent | None = None

    def asks_the_same(self, other: "StartRequest") -> bool:
        """Whether `other` is this request again: a repeated call is another span, for the same build."""
        return self == other.model_copy(update={"traceparent": self.traceparent})


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("a front end's paths are absolute: the supervisor works in another folder")
    return path


def _absolute_file(policy: str) -> str:
    return _absolute(policy) if policy.endswith(".toml") else policy


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
"""A path that means the same in every process of the host."""


class FrontEnd(BaseModel):
    """What the operator of one front end allows: it goes with every build that the front end starts.

    `roots` are the only folders that models are read from and engines written to; relative paths start
    at the first. `policy` is for builds that name none: a name, or a path that ends in .toml.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    roots: list[AbsolutePath] = Field(default_factory=list, max_length=256)
    policy: (
        Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_absolute_file)] | None
    ) = None
    enable_replay: bool = False
    allowed_plugins: list[AbsolutePath] = Field(default_factory=list, max_length=256)


class BuildOrder(BaseModel):
    """The first line that a worker reads: one build, every path absolute and already judged.

    The engine is written to `partial_engine` and then moved to `output`; the manifest likewise.
    Those two names are all that a killed worker can leave behind. All four files are in one folder.

    `model_identity` and `folder_identity` are the device and inode of the model and of the output's
    folder when they were judged; what is found there later must be the same.
    """

    model_config = ConfigDict(frozen=True)

    type: Literal["build"] = "build"
    protocol: int
    build_id: str
    backend: Literal["tensorrt", "tensorrt_rtx", "replay"]
    model: Path
    output: Path
    partial_engine: Path
    manifest: Path
    partial_manifest: Path
    roots: list[Path]
    options: BuildOptions
    record: Path | None = None
    device: str = "cpu"
    memory_limit_bytes: int | None = None
    model_identity: tuple[int, int] | None = None
    folder_identity: tuple[int, int] | None = None
    policy: str = ""
    label: str | None = None


class ProbeOrder(BaseModel):
    """The first line of a worker that only loads the library, says what it takes, and ends."""

    model_config = ConfigDict(frozen=True)

    type: Literal["probe"] = "probe"
    protocol: int
    backend: Literal["tensorrt", "tensorrt_rtx", "replay"]


class InspectOrder(BaseModel):
    """The first line of a worker that looks at a model, tells what it found, and ends.

    Every path is absolute and already judged. What takes longer than `time_limit_s` from the worker's
    start, and can be left out, is left out.
    """

    model_config = ConfigDict(frozen=True)

    type: Literal["inspect"] = "inspect"
    protocol: int
    backend: Literal["tensorrt", "tensorrt_rtx"]
    model: Path
    roots: list[Path]
    plugins: list[Path] = Field(default_factory=list)
    model_identity: tuple[int, int] | None = None
    memory_limit_bytes: int | None = None
    time_limit_s: float


class CancelOrder(BaseModel):
    """A later line: end the build at the next callback or between two of the worker's own phases."""

    model_config = ConfigDict(frozen=True)

    type: Literal["cancel"] = "cancel"
    reason: str


FirstOrder = BuildOrder | ProbeOrder | InspectOrder
"""What a worker may be started for."""

FIRST_ORDER: TypeAdapter[FirstOrder] = TypeAdapter(
    Annotated[FirstOrder, Field(discriminator="type")]
)
"""Validates the first line that a worker reads."""
