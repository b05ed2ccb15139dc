"""An agent learns what a model needs before it builds, in words and shapes that it can hand on."""

from pathlib import Path

import pytest
from mcp_types import TextContent

from tests.acceptance.conftest import Serve
from tests.acceptance.transports import EACH_TRANSPORT, STDIO, over
from tests.onnx_files import small_model, write_dynamic
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.inspection import Inspection
from trt_agent_tools.model.states import State

pytestmark = [pytest.mark.anyio, pytest.mark.tensorrt_rtx]

LARGEST_TOOL_BYTES = 1500
"""What the tool may cost in the list that every agent reads."""


@over(
    *EACH_TRANSPORT, reason="Each transport has to carry the answer; the eras do not differ in it."
)
async def test_what_is_proposed_can_be_handed_to_start_build(serve: Serve, root: Path) -> None:
    write_dynamic(root / "m.onnx")
    async with serve() as agent:
        result = await agent.call("inspect_model", model="m.onnx")
        found = Inspection.model_validate(result.structured_content)
        assert found.missing_profiles == ["x"]
        text = result.content[0]
        assert isinstance(text, TextContent)
        assert "needs options.profiles for x" in text.text
        assert len(text.text.splitlines()) == 1
        assert result.structured_content
        options = {"profiles": result.structured_content["proposed_profiles"]}
        again = await agent.call("inspect_model", model="m.onnx", options=options)
        assert not Inspection.model_validate(again.structured_content).missing_profiles
        started = await agent.snapshot("start_build", model="m.onnx", options=options)
        assert (await agent.end(started.build_id)).state is State.SUCCEEDED


@over(STDIO, reason="Arguments are judged before any transport matters.")
async def test_options_are_judged_as_those_of_a_build(serve: Serve, root: Path) -> None:
    (root / "m.onnx").write_bytes(small_model())
    async with serve() as agent:
        unknown = await agent.refusal("inspect_model", model="m.onnx", options={"profile": {}})
        assert unknown.code is ErrorCode.UNKNOWN_OPTION
        assert "profiles" in unknown.hint
        gone = await agent.refusal("inspect_model", model="gone.onnx")
        assert gone.code is ErrorCode.MODEL_NOT_FOUND
        played = await agent.refusal("inspect_model", model="m.onnx", backend="replay")
        assert played.code is ErrorCode.INVALID_ARGUMENT


@over(STDIO, reason="The list of tools is the same everywhere.")
async def test_the_tool_costs_little_to_read(serve: Serve) -> None:
    async with serve() as agent:
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
    tool = tools["inspect_model"].model_dump_json(by_alias=True, exclude_none=True)
    assert len(tool) < LARGEST_TOOL_BYTES
