"""docs/clients.md: what a user pastes into a client is in the client's form and starts this server."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import trt_agent_tools
from trt_agent_tools.cli.main import app
from trt_agent_tools.model.request import MAX_WAIT_S

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = (Path(trt_agent_tools.__file__).parent.parent / "docs" / "clients.md").read_text("utf-8")
COMMAND = "/path/to/.venv/bin/trt-agent-tools"
ARGUMENTS = ["serve", "--root", "/path/to/models"]
URL = "http://127.0.0.1:8765/mcp"
VARIABLE = "TENSORRT_MCP_TOKEN"
TOKEN = re.compile(
    r"Bearer (tat_\.\.\."
    r"|\$TENSORRT_MCP_TOKEN|\$\{(env:)?TENSORRT_MCP_TOKEN\}|\$\{\{ secrets\.TENSORRT_MCP_TOKEN \}\}"
    r"|\$\{input:tensorrt_token\})"
)


@dataclass(frozen=True)
class Form:
    """Where a client's configuration has its servers, and the keys that an entry has by its documentation."""

    servers: str
    stdio: frozenset[str] = frozenset({"command", "args"})
    http: frozenset[str] = frozenset({"url", "headers"})
    command: str = "command"
    url: str = "url"
    timeout: tuple[str, int] | None = None
    """The key of the limit of a call, and how many of its units a second has."""
    types: tuple[str | None, str | None] = (None, None)
    """What `type` is over stdio and over HTTP, where the client has it."""


FORMS = {
    "Claude Desktop": Form("mcpServers", http=frozenset()),
    "Claude Code": Form("mcpServers", types=(None, "http")),
    "VS Code": Form("servers", types=("stdio", "http")),
    "Cursor": Form("mcpServers"),
    "Windsurf": Form("mcpServers", http=frozenset({"serverUrl", "headers"}), url="serverUrl"),
    "Codex": Form(
        "mcp_servers",
        http=frozenset({"url", "bearer_token_env_var"}),
        timeout=("tool_timeout_sec", 1),
    ),
    "Gemini CLI": Form(
        "mcpServers",
        http=frozenset({"httpUrl", "headers"}),
        url="httpUrl",
        timeout=("timeout", 1000),
    ),
    "Zed": Form("context_servers", timeout=("timeout", 1)),
    "Continue": Form(
        "mcpServers",
        stdio=frozenset({"name", "command", "args"}),
        http=frozenset({"name", "url", "requestOptions"}),
        types=("stdio", "streamable-http"),
    ),
    "Cline": Form("mcpServers", timeout=("timeout", 1), types=(None, "streamableHttp")),
    "Goose": Form(
        "extensions",
        stdio=frozenset({"name", "enabled", "cmd", "args"}),
        http=frozenset({"name", "enabled", "uri", "headers"}),
        command="cmd",
        url="uri",
        timeout=("timeout", 1),
        types=("stdio", "streamable_http"),
    ),
}
PROGRAMS = {"OpenAI Agents SDK", "LangChain", "Python"}
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
CLIENTS = [*FORMS, *sorted(PROGRAMS)]


def snippets(text: str, *languages: str) -> list[tuple[str, str]]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(language, body) for language, body in found if language in languages]


def parsed(language: str, body: str) -> dict[str, Any]:
    if language == "json":
        found = json.loads(body)
    else:
        found = tomllib.loads(body) if language == "toml" else yaml.safe_load(body)
    assert isinstance(found, dict)
    return found


def entries(client: str) -> Iterator[dict[str, Any]]:
    """Yield the server of each snippet that is configuration."""
    for language, body in snippets(SECTIONS[client], "json", "toml", "yaml"):
        servers = parsed(language, body)[FORMS[client].servers]
        (entry,) = servers if isinstance(servers, list) else servers.values()
        if isinstance(servers, list):
            assert entry["name"] == "tensorrt"
        else:
            assert list(servers) == ["tensorrt"]
        yield entry


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)


def checked_arguments(arguments: list[str]) -> None:
    """Check that the command line of this version takes these arguments."""
    asked = CliRunner().invoke(app, [*arguments, "--help"])
    assert asked.exit_code == 0, asked.output


def test_every_client_has_its_section_with_the_address_of_its_documentation() -> None:
    assert [name for name in SECTIONS if name != "Time limits of clients"] == [
        *FORMS,
        "OpenAI Agents SDK",
        "LangChain",
        "Python",
    ]
    for client in CLIENTS:
        assert len(re.findall(r"\[documentation\]\(https://[^)]+\)", SECTIONS[client])) == 1, client


@pytest.mark.parametrize("client", FORMS)
def test_a_configuration_has_the_keys_that_the_client_knows(client: str) -> None:
    form = FORMS[client]
    found = list(entries(client))
    assert len(found) == (2 if form.http else 1)
    for entry in found:
        over_http = form.url in entry
        keys = form.http if over_http else form.stdio
        kind = form.types[over_http]
        more = {"type"} if kind else set()
        more |= {form.timeout[0]} if form.timeout else set()
        assert set(entry) == keys | more
        assert entry.get("type") == kind


@pytest.mark.parametrize("client", FORMS)
def test_a_configuration_starts_this_server_or_calls_where_it_serves(client: str) -> None:
    form = FORMS[client]
    for entry in entries(client):
        if form.url not in entry:
            assert entry[form.command] == COMMAND
            assert entry["args"] == ARGUMENTS
            checked_arguments(entry["args"])
            continue
        assert entry[form.url] == URL
        named = entry.get("bearer_token_env_var") == VARIABLE
        assert named or any(TOKEN.fullmatch(text) for text in texts(entry))


@pytest.mark.parametrize("client", [client for client, form in FORMS.items() if form.timeout])
def test_a_configuration_lets_the_longest_wait_end(client: str) -> None:
    timeout = FORMS[client].timeout
    assert timeout is not None
    key, units = timeout
    for entry in entries(client):
        assert entry[key] / units >= MAX_WAIT_S + 15


def test_the_commands_of_claude_code_name_the_same_server() -> None:
    ((_, body),) = snippets(SECTIONS["Claude Code"], "sh")
    stdio, http = (shlex.split(line) for line in body.splitlines())
    assert stdio[:6] == ["claude", "mcp", "add", "--transport", "stdio", "tensorrt"]
    assert stdio[6:] == ["--", COMMAND, *ARGUMENTS]
    assert http[:7] == ["claude", "mcp", "add", "--transport", "http", "tensorrt", URL]
    assert http[7:] == ["--header", "Authorization: Bearer tat_..."]


def test_the_commands_of_the_operator_are_those_of_this_version() -> None:
    ((_, body),) = snippets(PAGE.split("\n## ")[0], "sh")
    for line in body.splitlines():
        command, *arguments = shlex.split(line)
        assert command == "trt-agent-tools"
        checked_arguments(arguments)


@pytest.mark.parametrize("client", sorted(PROGRAMS))
def test_a_program_is_valid_and_names_this_server(client: str) -> None:
    stdio, http = (ast.parse(body) for _, body in snippets(SECTIONS[client], "python"))
    for tree in (stdio, http):
        compile(tree, client, "exec")
    constants = {
        tuple(element.value for element in node.elts if isinstance(element, ast.Constant))
        for node in ast.walk(stdio)
        if isinstance(node, ast.List)
    }
    assert tuple(ARGUMENTS) in constants
    strings = {n.value for n in ast.walk(stdio) if isinstance(n, ast.Constant)}
    assert COMMAND in strings
    assert URL in {n.value for n in ast.walk(http) if isinstance(n, ast.Constant)}
    assert "Bearer {os.environ['TENSORRT_MCP_TOKEN']}" in ast.unparse(http).replace('"', "'")


def test_the_program_in_python_runs_as_it_stands(tmp_path: Path) -> None:
    (_, program), _ = snippets(SECTIONS["Python"], "python")
    command = Path(sys.executable).with_name("trt-agent-tools")
    program = program.replace(COMMAND, str(command)).replace("/path/to/models", str(tmp_path))
    # The SDK hands on few variables of the environment: what the server is told goes by arguments.
    program = program.replace(
        '["serve",', f'["serve", "--embedded", "--state-dir", "{tmp_path}/s",'
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env=dict(os.environ),
    )
    assert ran.returncode == 0, ran.stderr
    assert ast.literal_eval(ran.stdout)["builds"] == []
