"""Names that there are not are refused with those that there are."""

from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from tests.integration.mcp_serving import MODES, Mode, agent_of
from trt_agent_tools.model.errors import ErrorCode

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("mode", MODES)]


async def test_a_tool_that_there_is_not_is_refused_with_the_nearest_one(
    mode: Mode, root: Path, tmp_path: Path
) -> None:
    async with agent_of(root, tmp_path / "state", mode) as agent:
        refusal = await agent.refusal("start_buid", model="m.onnx")
        assert refusal.code is ErrorCode.INVALID_ARGUMENT
        assert "'start_build'" in refusal.hint


@pytest.mark.parametrize(
    ("prompt", "arguments", "told"),
    [
        ("why_did_it_fale", {}, "why_did_it_fail"),
        ("why_did_it_fail", {"build": "b_1"}, "build_id"),
        ("why_did_it_fail", {}, "needs build_id"),
    ],
)
async def test_a_prompt_or_an_argument_that_there_is_not_is_an_invalid_parameter(
    mode: Mode,
    root: Path,
    tmp_path: Path,
    prompt: str,
    arguments: dict[str, str],
    told: str,
) -> None:
    async with agent_of(root, tmp_path / "state", mode) as agent:
        with pytest.raises(MCPError, match=told) as caught:
            await agent.client.get_prompt(prompt, arguments)
        assert caught.value.error.code == INVALID_PARAMS
