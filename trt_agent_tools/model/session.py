"""A session: a budget of GPU time that builds are charged to."""

from pydantic import BaseModel, ConfigDict, Field

from trt_agent_tools.model.duration import Duration
from trt_agent_tools.model.request import Label
from trt_agent_tools.model.snapshot import BuildSummary


class SessionRequest(BaseModel):
    """A session to open. Absent values are the policy's; given ones may only be tighter."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpu_time: Duration | None = None
    policy: str | None = Field(None, min_length=1, max_length=4096)
    label: Label | None = None
    concurrent_builds: int | None = Field(None, ge=1, le=1024)


class Session(BaseModel):
    """A session at one moment. Seconds of GPU time; absent budgets are not limited."""

    model_config = ConfigDict(frozen=True)

    session_id: str
    label: str | None = None
    policy: str
    created_at: str
    summary: str = Field(description="One line for a model or a person to read.")
    budget_s: float | None = None
    spent_s: float = Field(description="Used by builds that have ended and those that run.")
    reserved_s: float = Field(description="How much more the running builds may use.")
    left_s: float | None = None
    extension_left_s: float
    concurrent_builds: int
    queued_builds: int
    builds: list[BuildSummary]
    builds_left_out: int = 0
