"""What an agent pays to read: bytes of answers about a usual real build, and of the list of tools."""

from dataclasses import dataclass

import anyio
from mcp_types import CallToolResult, TextContent

from tests.acceptance.conftest import Agent
from tests.benchmarks.harness import Place, Row, print_table, serve, workplace

BLOCKS = 24
EVERY_S = 0.03
DETAILS = ("summary", "tree", "full")


@dataclass
class Largest:
    """The largest answer so far: its line, its structure, and the whole result on the wire."""

    text: int = 0
    structure: int = 0
    wire: int = 0

    def take(self, result: CallToolResult) -> None:
        """Count one answer."""
        content = result.content[0]
        assert isinstance(content, TextContent)
        self.text = max(self.text, len(content.text.encode()))
        whole = result.model_dump_json(by_alias=True, exclude_none=True)
        structure = CallToolResult(content=[], structured_content=result.structured_content)
        empty = CallToolResult(content=[], structured_content={})
        self.structure = max(self.structure, _bytes(structure) - _bytes(empty) + len("{}"))
        self.wire = max(self.wire, len(whole.encode()))


def _bytes(result: CallToolResult) -> int:
    return len(result.model_dump_json(by_alias=True, exclude_none=True).encode())


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
    each = {
        tool.name: len(tool.model_dump_json(by_alias=True, exclude_none=True).encode())
        for tool in tools.tools
    }
    total = len(tools.model_dump_json(by_alias=True, exclude_none=True).encode())
    rows = [
        Row("get_progress, summary: text", summary.text, "bytes", 600, 0, f"{looks} looks"),
        Row("get_progress, summary: structure", summary.structure, "bytes", 600, 0),
        Row("get_progress, summary: whole result", summary.wire, "bytes", None, 0),
        Row("get_progress, tree: structure", tree.structure, "bytes", 4096, 0),
        Row("get_progress, tree: whole result", tree.wire, "bytes", None, 0),
        Row("get_progress, full: structure", full.structure, "bytes", None, 0),
        Row("start_build: whole result", started.wire, "bytes", None, 0),
        Row("list_builds of one: whole result", listed.wire, "bytes", None, 0),
        Row("a refusal: whole result", unknown.wire, "bytes", None, 0),
        Row("tools/list", total, "bytes", None, 0, f"about {total // 4:,} tokens"),
        *(Row(f"- {name}", size, "bytes", None, 0) for name, size in each.items()),
    ]
    print_table(f"Largest answers about a real build (transformer, {BLOCKS} blocks)", rows)


if __name__ == "__main__":
    anyio.run(main)
