"""Calls tools as an agent would, and reads what comes back as what the server promises."""

import anyio
from jsonschema import Draft202012Validator
from mcp.client import Client
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.snapshot import Snapshot


class Refused(BaseModel):
    error: ErrorInfo


class Agent:
    """Reads answers as the models that the server promises."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._promised: dict[str, Draft202012Validator] = {}

    async def call(self, tool: str, **arguments: object) -> CallToolResult:
        return await self.client.call_tool(tool, arguments)

    async def snapshot(self, tool: str, **arguments: object) -> Snapshot:
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.content
        return Snapshot.model_validate(result.structured_content)

    async def refusal(self, tool: str, **arguments: object) -> ErrorInfo:
        """Call a tool that must refuse; its text says what the structure says."""
        result = await self.call(tool, **arguments)
        assert result.is_error, result.structured_content
        error = Refused.model_validate(result.structured_content).error
        text = result.content[0]
        assert isinstance(text, TextContent)
        assert error.code.value in text.text
        assert error.message in text.text
        assert error.hint, "a refusal tells what to do"
        return error

    async def until(self, build_id: str, condition: str, *, within_s: float = 60) -> Snapshot:
        """Poll without pause until the running phase's path contains `condition`, or the end."""
        with anyio.fail_after(within_s):
            while True:
                snapshot = await self.snapshot("get_progress", build_id=build_id)
                if snapshot.ended or condition in (snapshot.current or ""):
                    return snapshot

    async def end(self, build_id: str, *, within_s: float = 120) -> Snapshot:
        """Wait for the end as an agent does, with `wait_s`, and return the full snapshot."""
        with anyio.fail_after(within_s):
            snapshot = await self.snapshot("get_progress", build_id=build_id)
            while not snapshot.ended:
                snapshot = await self.snapshot(
                    "get_progress", build_id=build_id, wait_s=20, since_seq=snapshot.seq
                )
            return await self.snapshot("get_progress", build_id=build_id, detail="full")


class JudgingAgent(Agent):
    """An agent that holds every answer against the output schema of its tool, too."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._promised: dict[str, Draft202012Validator] = {}

    async def call(self, tool: str, **arguments: object) -> CallToolResult:
        result = await super().call(tool, **arguments)
        if not result.is_error:
            await self._learn()
            self._promised[tool].validate(result.structured_content)
            assert result.content, "there is a text for clients that read no structure"
        return result

    async def _learn(self) -> None:
        if self._promised:
            return
        for tool in (await self.client.list_tools()).tools:
            assert tool.output_schema, f"{tool.name} says what it returns"
            Draft202012Validator.check_schema(tool.output_schema)
            self._promised[tool.name] = Draft202012Validator(tool.output_schema)
