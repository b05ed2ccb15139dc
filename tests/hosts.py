"""Supervisors in processes of their own, as a front end without --embedded starts them."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from trt_agent_tools.api.place import read_record

ATTACHED = {"TRT_AGENT_TOOLS_EMBEDDED": "0"}
"""The environment of a front end that leaves its builds to the supervisor of the state folder."""

LONGEST_S = 60


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, attached."""
    return subprocess.run(
        [sys.executable, "-m", "trt_agent_tools", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        env={**os.environ, **ATTACHED},
    )


def host_of(state: Path) -> psutil.Process:
    """Return the process of the supervisor of a state folder."""
    record = read_record(state)
    assert record, "no supervisor has left its record"
    return psutil.Process(record.pid)


def stop_host(state: Path) -> None:
    """End the supervisor of a state folder, if there is one, and its builds."""
    stopped = command("stop", "--force", "--state-dir", state)
    assert stopped.returncode == 0, stopped.stderr
