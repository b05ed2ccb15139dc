import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.tensorrt_rtx

LONGEST_S = 150


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trt_agent_tools", "demo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def test_the_demo_builds_cancels_and_leaves_nothing(tmp_path: Path) -> None:
    done = demo(tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"succeeded in .*resnet50\.engine", done.stdout)
    assert re.search(r"sha256 +[0-9a-f]{64}\n +read back from the file: the same", done.stdout)
    assert re.search(r"gone after [\d.]+ s, ended by: (ask|terminate) ", done.stdout)
    assert re.search(r"process \d+: gone\n", done.stdout)
    assert "files left behind: none" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "shown", "status"),
    [
        (signal.SIGTERM, "3. A build", 143),
        (signal.SIGHUP, "1. Two", 129),
        (signal.SIGINT, "2. The MCP server", 130),
    ],
    ids=["SIGTERM", "SIGHUP", "SIGINT"],
)
def test_a_signal_ends_the_demo_and_leaves_neither_process_nor_file(
    tmp_path: Path, number: signal.Signals, shown: str, status: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trt_agent_tools", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout
        assert process.stderr
        assert any(shown in line for line in process.stdout)
        started = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        errors = process.stderr.read()
        assert (process.wait(LONGEST_S), errors) == (status, "")

    assert started or shown == "1. Two"
    assert not [child for child in started if child.is_running()]
    assert list(tmp_path.iterdir()) == []


def test_the_demo_takes_no_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()

    done = demo(tmp_path, "--keep", str(tmp_path))

    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
