"""Refusals of requests that are no tool calls: errors of the protocol, with code and hint beside them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal

_ASKED_WRONGLY = {
    ErrorCode.INVALID_ARGUMENT,
    ErrorCode.UNKNOWN_BUILD,
    ErrorCode.UNKNOWN_SESSION,
    ErrorCode.UNKNOWN_POLICY,
    ErrorCode.NO_MANIFEST,
    ErrorCode.ABOVE_CEILING,
    ErrorCode.TOO_LATE,
}
"""What the newest revision has -32602 for: what was named is not there, or cannot be."""


def protocol_error(info: ErrorInfo, uri: str | None = None) -> MCPError:
    """Return a refusal as an error of the protocol: `data` has code, message, hint, details and `uri`."""
    data: dict[str, Any] = asdict(info)
    data["code"] = info.code.value
    if uri is not None:
        data["uri"] = uri
    return MCPError(
        code=INVALID_PARAMS if info.code in _ASKED_WRONGLY else INTERNAL_ERROR,
        message=f"{info.code.value}: {info.message}." + (f" {info.hint}" if info.hint else ""),
        data=data,
    )


@contextmanager
def refusals_told(uri: str | None = None) -> Iterator[None]:
    """Let a refusal inside the block reach the client, which the SDK would mask.

    Raises:
        MCPError: the block raised a refusal.
    """
    try:
        yield
    except Refusal as refusal:
        raise protocol_error(refusal.info, uri) from refusal
