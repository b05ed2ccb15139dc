"""What a policy says. Pure values; files are read in `trt_agent_tools.policy.files`."""

from enum import Enum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from typing_extensions import TypeAliasType

from trt_agent_tools.model.duration import MAX_S, Duration, format_duration
from trt_agent_tools.model.options import Bytes, Reuse
from trt_agent_tools.model.verdict import Rule
from trt_agent_tools.policy.phase_pattern import check_pattern

WARN_AT = 0.8
"""The share of a limit at which it is warned, where a policy says nothing else."""

MAX_GRACE_S = 3600.0
"""A longer grace period would be no end within a bounded time."""

MAX_PATTERNS = 64
"""The most patterns of phase_time: every one is held against every phase that runs."""


class Mode(str, Enum):
    """What an exceeded limit leads to."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


# What the texts look like is told to editors here; what they mean is judged by their parsers.
_DURATION_TEXT = {
    "type": "string",
    "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d))+$",
    "examples": ["90s", "15m", "1h30m"],
}
_SIZE_TEXT = {
    "type": "string",
    "pattern": r"^\d+(\.\d+)? ?(B|kB|KB|KiB|MB|MiB|GB|GiB)?$",
    "examples": ["512MiB", "16GiB"],
}

Share = Annotated[float, Field(gt=0, lt=1, strict=True, allow_inf_nan=False)]
Grace = Annotated[
    Duration,
    Field(le=MAX_GRACE_S),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": MAX_GRACE_S}, _DURATION_TEXT]}
    ),
]
Total = Annotated[
    Duration,
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": MAX_S}, _DURATION_TEXT]}),
]
Positive = TypeAliasType(
    "Positive",
    Annotated[
        Duration,
        Field(gt=0),
        WithJsonSchema(
            {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": MAX_S}, _DURATION_TEXT]}
        ),
    ],
)
Size = TypeAliasType(
    "Size",
    Annotated[
        Bytes,
        Field(gt=0),
        WithJsonSchema({"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, _SIZE_TEXT]}),
    ],
)
Ratio = Annotated[float, Field(ge=1, le=100, strict=True, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1024, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _RuleBase(_Part):
    mode: Mode = Field(Mode.ENFORCE, description="observe: record what would have been done.")
    warn_at: Share | None = Field(None, description="Share of the limit at which to warn.")


class PhaseRule(_RuleBase):
    """A limit in seconds."""

    limit: Positive = Field(description='Seconds, or text such as "90s", "15m", "1h30m".')


class TimeRule(PhaseRule):
    """A limit in seconds. `ceiling` is how far an agent may extend it; without one, not at all."""

    ceiling: Positive | None = Field(None, description="The most that an extension may reach.")

    @model_validator(mode="after")
    def _ceiling_above(self) -> "TimeRule":
        if self.ceiling is not None and self.ceiling < self.limit:
            ceiling, limit = format_duration(self.ceiling), format_duration(self.limit)
            raise ValueError(f"ceiling ({ceiling}) must not be below limit ({limit})")
        return self


class SizeRule(_RuleBase):
    """A limit in bytes."""

    limit: Size = Field(description='Bytes, or text such as "512MiB", "16GiB".')


class RatioRule(_RuleBase):
    """A limit as a multiple: 1.5 is one and a half times build_time's limit."""

    limit: Ratio


AnyRule = PhaseRule | SizeRule | RatioRule


def _from_value(value: Any) -> Any:  # noqa: ANN401  (whatever a file or a caller gave)
    """Take a bare value for a rule with that limit: the usual case."""
    return value if value is None or isinstance(value, dict | _RuleBase) else {"limit": value}


TimeLimit = Annotated[
    TimeRule, BeforeValidator(_from_value, json_schema_input_type=Positive | TimeRule)
]
PhaseLimit = Annotated[
    PhaseRule, BeforeValidator(_from_value, json_schema_input_type=Positive | PhaseRule)
]
SizeLimit = Annotated[
    SizeRule, BeforeValidator(_from_value, json_schema_input_type=Size | SizeRule)
]
RatioLimit = Annotated[
    RatioRule, BeforeValidator(_from_value, json_schema_input_type=Ratio | RatioRule)
]
Pattern = Annotated[str, Field(min_length=1, max_length=300), AfterValidator(check_pattern)]


class Rules(_Part):
    """The rules of a policy. One that is absent is off."""

    queue_time: TimeLimit | None = Field(None, description="Longest wait for a device.")
    startup_time: TimeLimit | None = Field(
        None, description="Longest time from getting the device to TensorRT's first phase."
    )
    build_time: TimeLimit | None = Field(
        None, description="Longest time from getting the device to the end."
    )
    gpu_time: TimeLimit | None = Field(None, description="Most device time of one build.")
    step_stall: TimeLimit | None = Field(
        None, description="No callback and no CPU or GPU use for so long: the builder is hung."
    )
    silent: TimeLimit | None = Field(
        None,
        description="No callback for so long, however busy. Healthy builds are silent for minutes.",
    )
    phase_time: dict[Pattern, PhaseLimit] = Field(
        default_factory=dict,
        max_length=MAX_PATTERNS,
        description='Phase path pattern to longest time, such as "Timing tactics" or "Building > **".',
    )
    projected_overrun: RatioLimit | None = Field(
        None, description="Expected time, from past builds, over build_time's limit."
    )
    unattended: TimeLimit | None = Field(
        None, description="Nobody has asked about the build for so long."
    )
    host_memory: SizeLimit | None = Field(
        None, description="Resident memory of the build's processes."
    )
    gpu_memory: SizeLimit | None = Field(None, description="Their memory on the device.")


class Escalation(_Part):
    """When to warn, and how long each rung of the cancel ladder may take before the next one."""

    warn_at: Share = Field(WARN_AT, description="Share of a limit at which to warn.")
    cancel_grace: Grace = Field(5.0, description="From asking the worker to SIGTERM.")
    terminate_grace: Grace = Field(5.0, description="From SIGTERM to SIGKILL.")


class SessionLimits(_Part):
    """What a session under this policy may have, all of its builds together."""

    gpu_time: Positive | None = Field(None, description="GPU time; absent: not limited.")
    concurrent_builds: Count = Field(1, description="Builds that run at once.")
    queued_builds: Count = Field(32, description="Builds that wait at once.")
    extension_total: Total = Field(0.0, description="Sum of the extensions of its limits.")
    require_fit: Annotated[bool, Field(strict=True)] = Field(
        False, description="Start only what past builds let expect to end within the GPU time left."
    )


class PolicyFile(_Part):
    """What a policy's file says."""

    description: str = Field("", max_length=1000, description="What it is for, in a sentence.")
    reuse: Reuse = Field("verify", description="off: engines are neither reused nor kept.")
    rules: Rules = Rules()
    escalation: Escalation = Escalation()
    session: SessionLimits = SessionLimits()


class Policy(PolicyFile):
    """A policy, named after its file."""

    name: str = ""

    def rule(self, rule: Rule) -> AnyRule | None:
        """Return what this policy says of a rule other than phase_time; None where it is off."""
        found: AnyRule | None = getattr(self.rules, rule.value, None)
        return found
