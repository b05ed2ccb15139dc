"""What is proposed after a limit ended a build: one change for another try, and what it rests on."""

from pydantic import BaseModel, ConfigDict, Field

from trt_agent_tools.model.verdict import Rule


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Change(_Part):
    """What to do otherwise; one of these, and all the rest as before."""

    builder_optimization_level: int | None = Field(None, ge=0)
    profiles: int | None = Field(None, ge=1, description="How many to build with.")
    limits: dict[Rule, str] | None = Field(
        None, description="start_build's `limits`, such as {'build_time': '25m'}."
    )
    extend: dict[Rule, str] | None = Field(
        None, description="By how much extend_build is to raise a limit while the build runs."
    )
    session_gpu_time: str | None = Field(None, description="open_session's `gpu_time`.")
    longer: Rule | None = Field(None, description="A limit to raise; nothing tells by how much.")

    @property
    def text(self) -> str:
        """The change in a few words."""
        said: list[str] = []
        if self.builder_optimization_level is not None:
            said.append(f"builder_optimization_level {self.builder_optimization_level}")
        if self.profiles is not None:
            said.append(f"{self.profiles} profile{'' if self.profiles == 1 else 's'}")
        said += [f"{rule.value} {limit}" for rule, limit in (self.limits or {}).items()]
        said += [f"{rule.value} extended by {by}" for rule, by in (self.extend or {}).items()]
        if self.session_gpu_time is not None:
            said.append(f"a session with {self.session_gpu_time} GPU time")
        if self.longer is not None:
            said.append(f"a longer {self.longer.value}")
        return " and ".join(said)


class Proposal(_Part):
    """A change with which a build is likelier to end well. Without past builds there are no numbers."""

    change: Change
    why: str
    expected_s: float | None = Field(None, ge=0, description="What such a build takes.")
    low_s: float | None = Field(None, ge=0)
    high_s: float | None = Field(None, ge=0)
