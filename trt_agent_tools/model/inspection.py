"""What is told of a model without building it. Sizes are bytes; weights are never loaded."""

from pydantic import BaseModel, ConfigDict, Field

from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend, Path


class InspectRequest(BaseModel):
    """A model to look at, as `options` and `backend` would have it built."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Path
    options: BuildOptions = BuildOptions()
    backend: Backend = Backend.AUTO


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class TensorInfo(_Part):
    """An input or output. A dimension is its size, or, where it is dynamic, its name ("?" without one)."""

    name: str
    dtype: str
    shape: list[int | str] | None = Field(None, description="Absent: even its rank is not known.")


class ProfileProposal(_Part):
    """Shapes to start from for one dynamic input; whoever knows the use of the model corrects them."""

    min: list[int]
    opt: list[int]
    max: list[int]


class Weights(_Part):
    """The initializers: how many, and their size, inside the model's file or beside it."""

    count: int
    bytes: int
    external_count: int = 0


class Sidecar(_Part):
    """A file of external data beside the model."""

    path: str
    bytes: int


class Inspection(_Part):
    """A model as it lies on the disk. Names come from the model: untrusted text."""

    model: str
    summary: str = Field(description="One line for a model or a person to read.")
    bytes: int = Field(description="Of the model and its sidecars together.")
    sha256: str | None = Field(
        None, description="Over the model and its sidecars; absent when time ran out."
    )
    backend: str
    ir_version: int
    opset: dict[str, int] = Field(description="Version by operator domain.")
    producer: str | None = None
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]
    dynamic_inputs: list[str] = Field(default_factory=list)
    missing_profiles: list[str] = Field(
        default_factory=list, description="Dynamic inputs that options.profiles leaves out."
    )
    proposed_profiles: dict[str, ProfileProposal] | None = Field(
        None, description="For options.profiles: a place to start from."
    )
    operators: dict[str, int] = Field(description="Count by type, most frequent first.")
    unsupported_operators: list[str] | None = Field(
        None, description="Those that the backend says it does not take; absent: not known."
    )
    weights: Weights
    sidecars: list[Sidecar] = Field(default_factory=list)
    missing_sidecars: list[str] = Field(default_factory=list)
    notes: list[str] | None = None
