"""What an agent pays to read: bytes of answers about a usual real build, and of the list of tools."""

from dataclasses import dataclass

import anyio
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from tests.acceptance.agent import Agent
from tests.acceptance.scripted_tools import Toolbox, compact
from tests.benchmarks.harness import Place, Row, print_table, serve, workplace
from tests.unit.mcp_server.test_sizes import LARGEST_LIST, LARGEST_READ

BLOCKS = 24
EVERY_S = 0.03
DETAILS = ("summary", "tree", "full")
BYTES_A_TOKEN = 4
"""A usual share for English and JSON; no tokenizer is asked."""


@dataclass
class Largest:
    """The largest answer so far: its line, its structure, both together, and the whole result on the wire."""

    text: int = 0
    structure: int = 0
    read: int = 0
    wire: int = 0

    def take(self, result: CallToolResult) -> None:
        """Count one answer."""
        content = result.content[0]
        assert isinstance(content, TextContent)
        text = len(content.text.encode())
        structure = len(compact(result.structured_content))
        self.text = max(self.text, text)
        self.structure = max(self.structure, structure)
        self.read = max(self.read, text + structure)
        self.wire = max(self.wire, _wire_bytes(result))


def _wire_bytes(result: BaseModel) -> int:
    return len(result.model_dump_json(by_alias=True, exclude_none=True).encode())


def _row(what: str, size: int, most: int | None = None, remark: str = "") -> Row:
    tokens = f"about {size // BYTES_A_TOKEN:,} tokens"
    return Row(what, size, "bytes", most, 0, ", ".join(filter(None, (tokens, remark))))


async def watched(place: Place, agent: Agent) -> tuple[dict[str, Largest], CallToolResult, int]:
    """Look at a build from its start to its end in every detail; return also the first answer."""
    largest = {detail: Largest() for detail in DETAILS}
    first = await agent.call("start_build", model=place.model(BLOCKS), label="nightly encoder")
    assert first.structured_content
    build_id = first.structured_content["build_id"]
    looks = 0
    while True:
        looks += 1
        states = set()
        for detail in DETAILS:
            answer = await agent.call("get_progress", build_id=build_id, detail=detail)
            largest[detail].take(answer)
            assert answer.structured_content
            states.add(answer.structured_content["state"])
        assert not states & {"failed", "cancelled"}
        if states == {"succeeded"}:
            return largest, first, looks
        await anyio.sleep(EVERY_S)


async def main() -> None:
    """Print the table."""
    with workplace() as place:
        async with serve(place) as (agent, _):
            tools = await agent.client.list_tools()
            largest, first, looks = await watched(place, agent)
            started = Largest()
            started.take(first)
            listed = Largest()
            listed.take(await agent.call("list_builds"))
            unknown = Largest()
            unknown.take(await agent.call("get_progress", build_id="b_0"))
    summary, tree, full = (largest[detail] for detail in DETAILS)
    toolbox = Toolbox(tools.tools)
    rows = [
        _row("get_progress, summary: text", summary.text, 600, f"{looks} looks"),
        _row("get_progress, summary: structure", summary.structure, 600),
        _row("get_progress, summary: text and structure", summary.read, 600),
        _row("get_progress, summary: whole result", summary.wire),
        _row("get_progress, tree: structure", tree.structure, 4096),
        _row("get_progress, tree: whole result", tree.wire),
        _row("get_progress, full: structure", full.structure),
        _row("start_build: whole result", started.wire),
        _row("list_builds of one: whole result", listed.wire),
        _row("a refusal: whole result", unknown.wire),
        _row("read part of tools/list", toolbox.bytes, LARGEST_READ, "no output schemas"),
        _row("tools/list whole", _wire_bytes(tools), LARGEST_LIST),
        *(_row(f"- {tool.name}", _wire_bytes(tool)) for tool in tools.tools),
    ]
    print_table(f"Largest answers about a real build (transformer, {BLOCKS} blocks)", rows)


if __name__ == "__main__":
    anyio.run(main)
