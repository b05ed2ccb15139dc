"""What an agent has to read before its first call is small, and leaves no argument unexplained.

Sizes are facts of the texts, not of the machine, so they are held here; `python -m tests.benchmarks.sizes`
prints them beside those of the answers.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from mcp.client import Client
from mcp_types import ListToolsResult

from tests.acceptance.scripted_tools import Toolbox
from trt_agent_tools.mcp_server.access import RequestContext
from trt_agent_tools.mcp_server.server import make_server
from trt_agent_tools.model.service import BuildService

pytestmark = pytest.mark.anyio

LARGEST_READ = 8192
"""Names, descriptions and input schemas, which a host gives to its model, as compact JSON."""
LARGEST_LIST = 12288
"""The whole answer to tools/list: output schemas, titles and annotations too."""


def nobody(context: RequestContext) -> BuildService:
    raise AssertionError("a list of tools is the same for everybody")


@pytest.fixture
async def listed() -> ListToolsResult:
    async with Client(make_server(nobody)) as client:
        return await client.list_tools()


def parameters(schema: dict[str, Any], above: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every named parameter below `schema`, those within objects, lists and choices too."""
    for name, node in schema.get("properties", {}).items():
        yield f"{above}.{name}", node
        yield from parameters(node, f"{above}.{name}")
    inner = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", [])]
    for node in inner:
        if isinstance(node, dict):
            yield from parameters(node, above)


async def test_what_a_model_reads_of_the_tools_is_small(listed: ListToolsResult) -> None:
    assert Toolbox(listed.tools).bytes <= LARGEST_READ


async def test_the_whole_list_of_tools_is_small(listed: ListToolsResult) -> None:
    whole = listed.model_dump_json(by_alias=True, exclude_none=True)
    assert len(whole.encode()) <= LARGEST_LIST


async def test_every_tool_and_every_parameter_says_what_it_is(listed: ListToolsResult) -> None:
    found = [pair for tool in listed.tools for pair in parameters(tool.input_schema, tool.name)]
    assert "start_build.options.profiles" in dict(found)
    assert not [name for name, node in found if not node.get("description")]
    assert not [tool.name for tool in listed.tools if not tool.description]
