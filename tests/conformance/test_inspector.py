"""The official inspector finds nothing in what the server lists, over both transports in both eras."""

import json
import sys

import pytest

from tests.acceptance.transports import Place, arguments, http_server
from tests.conformance.suites import needs_node_modules, suite

pytestmark = [pytest.mark.anyio, needs_node_modules]

LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


async def inspect(era: str, *target: str) -> None:
    for method, name in LISTS.items():
        # Strict is about the schemas of tools: their portability to what models' providers take.
        strict = ["--strict"] if method == "tools/list" else []
        ran = await suite(
            "mcp-inspector",
            *("--cli", *target, "--protocol-era", era),
            *("--method", method, "--format", "json", *strict),
        )
        assert ran.returncode == 0, (method, ran.stderr)
        listed = json.loads(ran.stdout)["result"][name]
        print(f"{era} {method:26} {len(listed):3} entries, {len(ran.stdout)} bytes")
        assert listed or name == "resources", "there is a resource once there is a build"


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_finds_nothing_over_stdio(place: Place, era: str) -> None:
    await inspect(era, sys.executable, *arguments(place, "--embedded"))


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_finds_nothing_over_http(place: Place, era: str) -> None:
    async with http_server(place) as url:
        await inspect(era, f"{url}/mcp", "--transport", "http")
