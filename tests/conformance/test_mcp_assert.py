"""`mcp-assert`: what it thinks of the tools, and hostile arguments of its own making."""

import shlex
import sys

import pytest
from pydantic import BaseModel

from tests.acceptance.transports import Place, arguments
from tests.conformance.suites import tool

pytestmark = pytest.mark.anyio

ACCEPTED = {
    "E105": "labels, reasons and paths are free text by their nature; they are bounded, and cleaned",
    "E107": "start, look, start again: a loop over builds is what the tools are for",
    "W103": "ids and paths have no list of valid values; unknown ones are refused with a hint",
    "W110": "a parameter is described once, in its own description",
    "W115": "start_build names TensorRT's own options, so that a model does not have to guess them",
    "W116": "what a tool returns is said by its output schema",
}
"""The rules whose findings stay, and why."""

CALLS = 60
"""Hostile calls for each tool."""


class Finding(BaseModel):
    tool: str
    code: str
    message: str


class Lint(BaseModel):
    tools: int
    findings: list[Finding]


class Failure(BaseModel):
    label: str
    status: str
    detail: str

    @property
    def was_never_sent(self) -> bool:
        """Whether it is a number that JSON has no words for."""
        return "failed to marshal request" in self.detail


class Fuzzed(BaseModel):
    tool: str
    runs: int
    failures: list[Failure] = []


class Fuzz(BaseModel):
    tools: list[Fuzzed]


def server(place: Place) -> str:
    return shlex.join([sys.executable, *arguments(place, "--embedded")])


async def test_lint_finds_only_what_is_accepted(place: Place) -> None:
    ran = await tool("mcp-assert", "lint", "--json", "--server", server(place))
    lint = Lint.model_validate_json(ran.stdout)
    assert lint.tools
    new = [finding for finding in lint.findings if finding.code not in ACCEPTED]
    assert not new
    gone = ACCEPTED.keys() - {finding.code for finding in lint.findings}
    assert not gone, "nothing is found by these any more: take them out"
    print(f"{lint.tools} tools, {len(lint.findings)} findings, all accepted")


async def test_no_hostile_argument_breaks_a_tool(place: Place) -> None:
    ran = await tool(
        "mcp-assert",
        *("fuzz", "--json", "--runs", str(CALLS), "--seed", "7", "--server", server(place)),
    )
    fuzz = Fuzz.model_validate_json(ran.stdout)
    assert fuzz.tools
    for each in fuzz.tools:
        assert each.runs == CALLS
        assert not [failure for failure in each.failures if not failure.was_never_sent], each.tool
    print(f"{len(fuzz.tools)} tools, {CALLS} hostile calls each")
    assert not list(place.root.iterdir()), "nothing was built"
