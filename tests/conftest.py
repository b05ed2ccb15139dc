"""What all tests share: models, a folder to work in, and the promise that nothing is left behind."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from trt_agent_tools.cli.demo_models import transformer

_MARK = "TRT_AGENT_TOOLS_TEST_RUN"
"""In the environment of every process that a test starts, directly or not."""
os.environ[_MARK] = secrets.token_hex(8)
# Builds end with the process that a test starts, unless the test says otherwise.
os.environ["TRT_AGENT_TOOLS_EMBEDDED"] = "1"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True)
class Models:
    """Real ONNX models with random weights, made once a run."""

    quick: Path
    """Builds in well under a second."""
    silent: Path
    """Sits in one step without a callback for many seconds."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    made = Models(folder / "quick.onnx", folder / "silent.onnx")
    transformer(made.quick, blocks=2)
    transformer(made.silent, blocks=64)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that builds may read and write, free of symbolic links."""
    folder = tmp_path.resolve() / "root"
    folder.mkdir()
    return folder


def processes_of_this_run() -> list[psutil.Process]:
    """Return the living processes that carry this run's mark, this one and its parents left out."""
    mark = f"{_MARK}={os.environ[_MARK]}".encode()
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            if mark in environment.split(b"\0") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.NoSuchProcess):
            continue
    return found


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """After the test no process that it started lives, and no half-written file is there."""
    before = set(processes_of_this_run())
    yield
    # What was told to end may take a moment to be gone; what was forgotten stays for ever.
    gone, alive = psutil.wait_procs(set(processes_of_this_run()) - before, timeout=3)
    del gone
    described = [(process.pid, process.cmdline()) for process in alive if process.is_running()]
    for process in alive:
        process.kill()
    partial = list(tmp_path.rglob("*.partial*"))
    assert not described, f"processes left: {described}"
    assert not partial, f"half-written files left: {partial}"
