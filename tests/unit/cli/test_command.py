import subprocess
import sys

import pytest
from typer.testing import CliRunner

from trt_agent_tools import __version__
from trt_agent_tools.cli.exit_codes import EPILOG, ExitCode
from trt_agent_tools.cli.main import app

HEAVY = {"mcp", "onnx", "numpy", "anyio", "pydantic", "psutil", "tensorrt_rtx"}


def test_help_lists_the_commands_and_the_exit_statuses() -> None:
    result = CliRunner().invoke(app, ["--help"])

    assert result.exit_code == ExitCode.OK
    commands = "serve build list watch cancel log stop verify doctor demo policy"
    for command in commands.split():
        assert command in result.output
    assert "Exit status" in result.output


def test_every_exit_status_is_in_the_help() -> None:
    for code in ExitCode:
        assert str(int(code)) in EPILOG


def test_the_version_is_told() -> None:
    assert __version__ in CliRunner().invoke(app, ["--version"]).output


def test_policy_help_lists_its_commands() -> None:
    output = CliRunner().invoke(app, ["policy", "--help"]).output

    for command in ("list", "show", "check", "schema", "replay"):
        assert command in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["build"],
        ["build", "a.onnx", "--nonsense"],
        ["nonsense"],
        ["watch"],
        ["list", "--state", "nonsense"],
        ["log", "b_1", "--tail", "0"],
        ["serve", "extra"],
        ["policy", "nonsense"],
        ["policy", "replay", "default"],
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [(["--help"], HEAVY), (["policy", "--help"], HEAVY - {"pydantic"})],  # typer's own for groups
)
def test_help_loads_nothing_heavy(arguments: list[str], heavy: set[str]) -> None:
    script = (
        "import sys; from trt_agent_tools.cli.main import app; "
        f"app({arguments!r}, standalone_mode=False); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30
    )

    assert heavy.isdisjoint(done.stderr.split())
