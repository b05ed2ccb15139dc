"""The protocol's own conformance suite, against the server over HTTP."""

import re
import sys
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter

from tests.acceptance.transports import Place, http_server
from tests.conformance.suites import needs_node_modules, suite

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [pytest.mark.anyio, needs_node_modules]

MISSING = Path(__file__).with_name("missing.toml")

NEED_NO_FIXTURE = {
    "2025-11-25": {
        "completion-complete",
        "dns-rebinding-protection",
        "ping",
        "prompts-list",
        "resources-list",
        "server-initialize",
        "server-session-lifecycle",
        "server-sse-multiple-streams",
        "tools-list",
    },
    "2026-07-28": {
        "caching",
        "completion-complete",
        "dns-rebinding-protection",
        "http-header-validation",
        "prompts-list",
        "resources-list",
        "sep-2164-resource-not-found",
        "server-sse-multiple-streams",
        "server-stateless",
        "tools-list",
    },
}
"""Scenarios that ask for no tool, resource or prompt of the suite's own: these have to say something."""


class Missing(BaseModel):
    """What a scenario asks for and this server does not give."""

    model_config = ConfigDict(extra="forbid")

    revision: str
    scenario: str
    reason: str
    checks: list[str]


class Baseline(BaseModel):
    model_config = ConfigDict(extra="forbid")

    missing: list[Missing]


class Check(BaseModel):
    """A line of a scenario's report."""

    id: str
    status: Literal["SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO"]
    errorMessage: str = ""  # noqa: N815  (the suite's own name)

    @property
    def failed(self) -> bool:
        return self.status in {"FAILURE", "WARNING"}


CHECKS = TypeAdapter(list[Check])


def reports(folder: Path) -> dict[str, list[Check]]:
    """Return the checks of every scenario that the suite has run."""
    found = {}
    for file in sorted(folder.glob("server-*/checks.json")):
        scenario = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", file.parent.name)
        assert scenario, file
        found[scenario[1]] = CHECKS.validate_json(file.read_bytes())
    return found


def expected(revision: str) -> set[tuple[str, str]]:
    listed = Baseline.model_validate(tomllib.loads(MISSING.read_text())).missing
    assert all(each.reason for each in listed)
    return {
        (each.scenario, check)
        for each in listed
        for check in each.checks
        if each.revision == revision
    }


@pytest.mark.parametrize("revision", NEED_NO_FIXTURE)
async def test_the_server_conforms_to_what_a_revision_requires(
    place: Place, tmp_path: Path, revision: str
) -> None:
    folder = tmp_path / "reports"
    async with http_server(place) as url:
        ran = await suite(
            "conformance",
            "server",
            *("--url", f"{url}/mcp", "--requirements", revision),
            *("--output-dir", str(folder)),
        )
    assert ran.returncode in {0, 1}, ran.stderr
    found = reports(folder)
    for scenario, checks in found.items():
        failures = sum(check.failed for check in checks)
        passes = sum(check.status == "SUCCESS" for check in checks)
        print(f"{revision} {scenario:50} {passes:3} passed {failures:3} failed")
    assert found.keys() >= NEED_NO_FIXTURE[revision]
    for scenario in NEED_NO_FIXTURE[revision]:
        assert any(check.status == "SUCCESS" for check in found[scenario]), scenario
    failed = {
        (scenario, check.id): check.errorMessage
        for scenario, checks in found.items()
        for check in checks
        if check.failed
    }
    new = {place: told for place, told in failed.items() if place not in expected(revision)}
    assert not new, "these fail and missing.toml does not say why"
    assert not expected(revision) - failed.keys(), "these pass now: take them out of missing.toml"
