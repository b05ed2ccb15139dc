"""What the tools have in common: how they answer, how they refuse, what they say of themselves."""

from typing import Annotated, Any

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field, ValidationError

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.snapshot import BuildLog, Snapshot
from trt_agent_tools.model.untrusted import one_line

ADDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

BuildId = Annotated[str, Field(min_length=1, max_length=64, description="From start_build.")]
"""An argument that several tools take."""


def check_name(policy: str | None) -> None:
    """Refuse a policy that is a path: which files a server reads is its operator's to say.

    Raises:
        Refusal: it is one.
    """
    if policy is not None and ("/" in policy or policy.endswith(".toml")):
        raise Refusal(
            ErrorCode.UNKNOWN_POLICY,
            "a policy is given by its name here, not by a path",
            "Leave it out for the server's own policy.",
        )


def invalid(error: ValidationError) -> Refusal:
    """Return the refusal of a request that its model did not take."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return Refusal(
        ErrorCode.INVALID_ARGUMENT,
        one_line(f"{place}: {first['msg'].removeprefix('Value error, ')}", 500),
        "Correct the argument and call again.",
    )


def answer(snapshot: Snapshot) -> CallToolResult:
    """Return a snapshot as a tool's answer: its one line as text, itself as structure."""
    return result(snapshot, snapshot.summary)


def log_text(log: BuildLog) -> str:
    """Return a log as text whose first line says that the rest is not to be trusted."""
    lines = [
        f"[{line.severity.value}] {line.text}" if line.severity else line.text for line in log.lines
    ]
    return "\n".join([f"untrusted log of {log.build_id}, {len(lines)} lines:", *lines])


def result(model: BaseModel, text: str) -> CallToolResult:
    """Return a model as a tool's answer, without what is absent."""
    content: dict[str, Any] = model.model_dump(mode="json", exclude_none=True)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content)
