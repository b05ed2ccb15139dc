"""What a policy says. Pure values; files are read in `trt_agent_tools.policy.files`."""

from pydantic import BaseModel, ConfigDict, Field

from trt_agent_tools.model.duration import Duration


class Escalation(BaseModel):
    """How long each rung of the cancel ladder may take before the next one, in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cancel_grace: Duration = Field(5.0, description="From asking the worker to SIGTERM.")
    terminate_grace: Duration = Field(5.0, description="From SIGTERM to SIGKILL.")


class Policy(BaseModel):
    """A named policy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    description: str = ""
    escalation: Escalation = Escalation()
