"""What a person is asked when a build comes near a limit: whether it may have more time."""

from dataclasses import dataclass

from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.verdict import Level, Rule

REASON = "asked when the limit came near, the client's user allowed it"


class MoreTime(BaseModel):
    """The answer's form."""

    model_config = ConfigDict(extra="forbid")

    seconds: float = Field(gt=0, title="Seconds", description="How much longer the limit may be.")


@dataclass(frozen=True, slots=True)
class Question:
    """That a limit of a build is nearly used up, and may be raised. Durations are seconds."""

    build_id: str
    rule: Rule
    limit_s: float
    used_s: float
    most_s: float

    @property
    def key(self) -> str:
        """Names the question: a limit that was raised and comes near again is another one."""
        return f"{self.rule.value}:{self.limit_s:g}"

    @property
    def suggested_s(self) -> float:
        """As much again as it had, if so much is allowed."""
        return min(self.limit_s, self.most_s)

    @property
    def message(self) -> str:
        """The question in words."""
        return (
            f"Build {self.build_id} has used {format_duration(self.used_s)} of "
            f"{format_duration(self.limit_s)} {self.rule.value} and is ended at the limit. "
            f"Extend it? At most {format_duration(self.most_s)} more."
        )

    def request(self) -> ElicitRequest:
        """Return the question as the client is asked it."""
        return ElicitRequest(
            params=ElicitRequestFormParams(
                message=self.message,
                requested_schema={
                    "type": "object",
                    "properties": {
                        "seconds": {
                            "type": "number",
                            "title": "Seconds",
                            "description": "How much longer the limit may be.",
                            "minimum": 1,
                            "maximum": self.most_s,
                            "default": self.suggested_s,
                        }
                    },
                    "required": ["seconds"],
                },
            )
        )

    async def take(self, answer: ElicitResult, service: BuildService) -> None:
        """Extend the limit, if that is the answer.

        Raises:
            Refusal: the answer has no number of seconds, or the service refuses the extension.
        """
        if answer.action != "accept":
            return
        try:
            more = MoreTime.model_validate(answer.content or {"seconds": self.suggested_s})
        except ValidationError as error:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                "the answer has no number of seconds",
                f"Answer with seconds between 1 and {self.most_s:g}, or decline.",
            ) from error
        await service.extend(self.build_id, limit=self.rule.value, by=more.seconds, reason=REASON)


def open_questions(snapshot: Snapshot) -> list[Question]:
    """Return what is to be asked about a build as it stands: limits near their end that can be raised."""
    if snapshot.ended:
        return []
    return [
        Question(
            snapshot.build_id,
            use.rule,
            use.limit_s,
            use.used_s,
            round(use.ceiling_s - use.limit_s, 1),
        )
        for use in snapshot.limits or ()
        if use.level is Level.WARNED
        and not use.observed_only
        and use.limit_s is not None
        and use.used_s is not None
        and use.ceiling_s is not None
    ]
