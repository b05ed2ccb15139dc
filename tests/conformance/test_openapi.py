"""The HTTP API keeps what its own /openapi.json promises, whatever is sent to it."""

import sys
from pathlib import Path

import pytest
from mcp.client import Client

from tests.acceptance.agent import JudgingAgent
from tests.acceptance.transports import Place, http_server
from tests.conformance.suites import tool
from tests.faults.conftest import Play
from trt_agent_tools.model.states import State

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="schemathesis needs Python 3.11"),
]

EXAMPLES = 10
"""Of each operation, beside those that the schema's own bounds give."""

CONFIG = """
[checks]
# A schema says less than the server judges: durations, absolute paths, names of policies.
positive_data_acceptance.enabled = false
# The methods of a path are routes of their own, and each answers OPTIONS for itself.
allow_header_conformance.enabled = false
# What is too large is refused before it is looked at.
negative_data_rejection.expected-statuses = ["400", "403", "404", "413", "415", "422", "5xx"]

[parameters]
"path.build_id" = "{build_id}"
"path.session_id" = "default"

# Their bodies have a bound for every option of TensorRT: a thousand cases that differ in one name.
[[operations]]
include-name = ["POST /v1/builds", "POST /v1/models/inspect"]
phases.coverage.enabled = false
phases.fuzzing.generation.max-examples = 30

# A stream of events is text to OpenAPI; it is judged as one that holds each event by itself.
[[operations]]
include-name = "GET /v1/builds/{{build_id}}/events"
checks.response_schema_conformance.enabled = false
"""
"""A build and a session that are there: without them every answer would be that they are not."""


async def test_no_request_breaks_the_promises_of_the_schema(
    place: Place, tmp_path: Path, play: Play
) -> None:
    request = play(recording="quick")
    config = tmp_path / "schemathesis.toml"
    async with http_server(place, "--enable-replay") as url:
        async with Client(f"{url}/mcp") as client:
            agent = JudgingAgent(client)
            started = await agent.snapshot(
                "start_build", model=Path(request.model).name, backend="replay"
            )
            assert (await agent.end(started.build_id)).state is State.SUCCEEDED
        config.write_text(CONFIG.format(build_id=started.build_id))
        ran = await tool(
            "schemathesis",
            *("--config-file", str(config), "run", f"{url}/openapi.json"),
            *("--phases", "coverage,fuzzing"),
            *("--max-examples", str(EXAMPLES), "--seed", "1", "--continue-on-failure"),
            *("--no-color", "--warnings", "off"),
        )
    print(ran.stdout[ran.stdout.find("== SUMMARY") :])
    assert ran.returncode == 0, ran.stdout[-6000:]
    assert "No test cases" not in ran.stdout
