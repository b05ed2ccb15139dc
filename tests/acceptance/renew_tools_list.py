"""Writes down what the server lists, for review: python -m tests.acceptance.renew_tools_list.

What a model reads of the tools changes only together with `tools_list.json`, where a reviewer sees it.
"""

import json
import tempfile
from pathlib import Path

import anyio
from mcp_types import ListToolsResult

from tests.acceptance.transports import Era, Place, in_memory

REVIEWED = Path(__file__).with_name("tools_list.json")


def as_data(listed: ListToolsResult) -> dict[str, object]:
    """Return what is listed as a client reads it. Eras differ in the order of keys alone."""
    tools = [
        tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools
    ]
    return {"tools": tools}


async def renew() -> None:
    """Write down the list of the server in this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), Path(folder) / "state")
        async with in_memory(place, Era.NEWEST) as connect, connect() as agent:
            listed = as_data(await agent.client.list_tools())
    REVIEWED.write_text(json.dumps(listed, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    anyio.run(renew)
