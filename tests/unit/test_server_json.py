"""server.json, by which registries and hosts of MCP servers know how to start this one."""

import json
import re
import sys
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator
from typer.main import get_command
from typer.testing import CliRunner

import trt_agent_tools
from trt_agent_tools.cli.main import app
from trt_agent_tools.cli.settings import ENV_PREFIX, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(trt_agent_tools.__file__).parent.parent
SCHEMA = json.loads((ROOT / "tests/data/mcp-registry/server.schema.json").read_text("utf-8"))
SERVER: dict[str, Any] = json.loads((ROOT / "server.json").read_text("utf-8"))
(PACKAGE,) = SERVER["packages"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_the_official_schema_takes_it() -> None:
    assert SERVER["$schema"] == SCHEMA["$id"]
    checker = Draft7Validator(SCHEMA, format_checker=Draft7Validator.FORMAT_CHECKER)
    assert [error.message for error in checker.iter_errors(SERVER)] == []
    assert list(checker.iter_errors({**SERVER, "description": "x" * 101})), "the schema is strict"


def test_it_names_the_package_and_the_version_that_is_built_here() -> None:
    assert PACKAGE["identifier"] == PROJECT["name"]
    assert PROJECT["name"] in PROJECT["scripts"], "uvx runs the command of the package's name"
    assert SERVER["version"] == PACKAGE["version"] == PROJECT["version"]


def test_the_package_index_shows_whose_server_it_is() -> None:
    readme = (ROOT / PROJECT["readme"]).read_text("utf-8")
    assert re.findall(r"^<!-- mcp-name: (\S+) -->$", readme, re.MULTILINE) == [SERVER["name"]]


def test_its_arguments_are_those_of_the_command_line() -> None:
    command, *options = PACKAGE["packageArguments"]
    assert command == {"type": "positional", "value": "serve"}
    serve = get_command(app).commands[command["value"]]  # type: ignore[attr-defined]
    known = {name: option for option in serve.params for name in option.opts}
    for option in options:
        assert option["type"] == "named"
        assert known[option["name"]].multiple is option.get("isRepeated", False)
    arguments = [part for option in options for part in (option["name"], option["placeholder"])]
    asked = CliRunner().invoke(app, [command["value"], *arguments, "--help"])
    assert asked.exit_code == 0


def test_its_environment_variables_are_settings_with_these_defaults() -> None:
    given = {variable["name"]: variable for variable in PACKAGE["environmentVariables"]}
    names = {f"{ENV_PREFIX}{name.upper()}": name for name in Settings.model_fields}
    assert set(given) <= set(names)
    for name, variable in given.items():
        value = Settings.model_fields[names[name]].default
        if "default" in variable:
            text = str(value).lower() if isinstance(value, bool) else value
            assert variable["default"] == text
        assert (variable.get("format") == "boolean") is isinstance(value, bool)
