"""What is told of a model without building it. Sizes are bytes; weights are never loaded."""

from pydantic import BaseModel, ConfigDict, Field

from trt_agent_tools.model.findings import Sidecar, TensorInfo, Weights
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import Backend, Path


class InspectRequest(BaseModel):
    """A model to look at, as `options` and `backend` would have it built.

    Of the options `profiles` and `plugins` matter here, and all of them for how long a build is expected
    to take; whether the library has them is judged by a build.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Path
    options: BuildOptions = BuildOptions()
    backend: Backend = Backend.AUTO


class ProfileProposal(BaseModel):
    """Shapes to start from for one dynamic input; whoever knows the use of the model corrects them."""

    model_config = ConfigDict(frozen=True)

    min: list[int]
    opt: list[int]
    max: list[int]


class Expected(BaseModel):
    """How long past builds let expect a build to take, with bounds that most such builds stay within.

    `same` tells whether they were of this very model and options, `builds` how many they were.
    """

    model_config = ConfigDict(frozen=True)

    build_s: float
    low_s: float
    high_s: float
    gpu_s: float
    builds: int
    same: bool


class Inspection(BaseModel):
    """A model as it lies on the disk. Names come from the model: untrusted text.

    `sha256` is over the model's file; where it has sidecars, over the digests of all of them, each in
    hexadecimal on a line, the model's first (`sha256sum FILES | cut -c-64 | sha256sum`).

    An input is dynamic by its shape. One whose values become shapes needs a profile too; only a build
    finds those out. `unsupported_operators` says what is known not to work: an operator that is not in it
    may still be refused for its opset, types or attributes.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    summary: str = Field(description="One line for a model or a person to read.")
    bytes: int = Field(description="Of the model and its sidecars.")
    sha256: str | None = Field(None, description="Absent when time ran out.")
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
    operators: dict[str, int] = Field(description="Count by type.")
    unsupported_operators: list[str] | None = Field(None, description="Absent: not known.")
    weights: Weights
    sidecars: list[Sidecar] = Field(default_factory=list)
    missing_sidecars: list[str] = Field(default_factory=list)
    expected: Expected | None = Field(None, description="Absent: no past build tells.")
    notes: list[str] | None = None
