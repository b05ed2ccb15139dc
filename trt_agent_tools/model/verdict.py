"""What a policy says of a build: limits with what is used of them, and verdicts with their evidence."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from pydantic import Field

from trt_agent_tools.model.states import Reason


class Rule(str, Enum):
    """A rule of a policy. The order is the order in which exceeded rules are acted on."""

    GPU_BUDGET = "gpu_budget"
    """The session's GPU time, all of its builds together. Set by the session, not by a policy's rule."""
    GPU_TIME = "gpu_time"
    """How long the build holds its device, times devices held."""
    BUILD_TIME = "build_time"
    """From getting its device to the end."""
    QUEUE_TIME = "queue_time"
    """Waiting for a device."""
    STARTUP_TIME = "startup_time"
    """From getting its device to TensorRT's first phase: import, parse, options."""
    STEP_STALL = "step_stall"
    """No callback and no CPU or GPU use: the builder is hung."""
    SILENT = "silent"
    """No callback, however busy: the build is opaque."""
    PHASE_TIME = "phase_time"
    """One phase, by its path."""
    PROJECTED_OVERRUN = "projected_overrun"
    """The end that past builds let expect, against build_time."""
    UNATTENDED = "unattended"
    """Nobody has asked about the build."""
    HOST_MEMORY = "host_memory"
    """Resident memory of the build's processes."""
    GPU_MEMORY = "gpu_memory"
    """Memory of the build's processes on the device."""

    @property
    def reason(self) -> Reason:
        """The reason of a build that this rule ended."""
        return _REASONS.get(self) or Reason(self.value)


_REASONS = {
    Rule.GPU_TIME: Reason.GPU_BUDGET,
    Rule.HOST_MEMORY: Reason.MEMORY,
    Rule.GPU_MEMORY: Reason.MEMORY,
}


class Level(str, Enum):
    """How much of a limit is used."""

    OK = "ok"
    WARNED = "warned"
    EXCEEDED = "exceeded"


class Action(str, Enum):
    """What a verdict leads to."""

    NONE = "none"
    WARNED = "warned"
    WOULD_CANCEL = "would_cancel"
    """The rule is on `observe`: it is recorded that it would have ended the build."""
    CANCEL = "cancel"


# Dataclasses, not pydantic models: every build has a dozen of each made several times a second.
@dataclass(frozen=True, slots=True)
class LimitUse:
    """One limit of a build: what is allowed, what is used. Seconds, bytes, or a ratio, by the rule."""

    rule: Rule
    level: Level
    limit_s: float | None = None
    used_s: float | None = None
    limit_bytes: int | None = None
    used_bytes: int | None = None
    limit_ratio: float | None = None
    used_ratio: float | None = None
    ceiling_s: Annotated[
        float | None, Field(description="What extend_build may raise it to, if it can be raised.")
    ] = None
    phase: Annotated[str | None, Field(description="The pattern of a phase_time limit.")] = None
    observed_only: Annotated[
        bool | None, Field(description="Set where the rule only observes.")
    ] = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule found, on what evidence, and what follows. Without an action there is no message."""

    rule: Rule
    action: Action
    threshold: Annotated[
        float, Field(description="In the rule's unit: seconds, bytes, or a ratio.")
    ]
    observed: Annotated[
        dict[str, float], Field(description="The measured values that it rests on.")
    ]
    seq: Annotated[int, Field(description="Of the snapshot that was judged.")]
    at_s: Annotated[float, Field(description="Since the build was accepted.")]
    message: str
    phase: str | None = None
