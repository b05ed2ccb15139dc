"""The official suites: where they are installed, and how to run one."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

_MODULES = Path(__file__).parents[2] / ".ci" / "npm" / "node_modules"
_LONGEST_S = 240.0

needs_node_modules = pytest.mark.skipif(
    not _MODULES.is_dir(),
    reason="the official suites are not installed: npm ci --prefix .ci/npm --ignore-scripts",
)


async def suite(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the npm packages with the Node.js that is installed beside them."""
    return await run(str(_MODULES / ".bin" / "node"), str(_MODULES / ".bin" / name), *arguments)


async def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that a Python package has put beside the interpreter."""
    return await run(str(Path(sys.executable).with_name(name)), *arguments)


async def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it printed, whatever its exit status."""
    with anyio.fail_after(_LONGEST_S):
        # Colours and line lengths are a terminal's.
        done = await anyio.run_process(
            command, check=False, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
        )
    return subprocess.CompletedProcess(
        command, done.returncode, done.stdout.decode(), done.stderr.decode()
    )
