"""From the command line: a second build reuses the first one's engine, and a person sees and clears them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import stop_host
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.cli.kept_engines import KeptEngines
from trt_agent_tools.model.snapshot import Snapshot

DATA = Path(__file__).parents[1] / "data"
LONGEST_S = 60


class Shell:
    """Runs the command in a folder with a recording in it, for one state folder."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.state = folder / "state"
        settings = {"type": "replay", "speed": 50}
        recorded = (DATA / "quick.jsonl").read_text()
        (folder / "m.jsonl").write_text(json.dumps(settings) + "\n" + recorded)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trt_agent_tools", *arguments, "--state-dir", str(self.state)],
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_S,
            cwd=self.folder,
            env=os.environ,
        )

    def build(self, output: str, *more: str) -> Snapshot:
        done = self.run(
            *("build", "m.jsonl", "-o", output, "--backend", "replay", "--enable-replay"),
            *("--json", *self.options, *more),
        )
        assert done.returncode == ExitCode.OK, done.stderr
        return Snapshot.model_validate_json(done.stdout.splitlines()[-1])

    def shown(self, *more: str) -> KeptEngines:
        done = self.run("cache", "show", "--json", *more)
        assert done.returncode == ExitCode.OK, done.stderr
        return KeptEngines.model_validate_json(done.stdout)


@pytest.fixture
def shell(tmp_path: Path, nothing_left: None) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def attached(tmp_path: Path, nothing_left: None) -> Iterator[Shell]:
    """A shell whose builds are with a supervisor of their own, told where engines are kept."""
    shell = Shell(tmp_path, "--no-embedded", "--engine-cache", str(tmp_path / "shared"))
    yield shell
    stop_host(shell.state)


def test_a_second_build_reuses_the_engine_until_it_is_told_not_to_or_the_cache_is_cleared(
    shell: Shell,
) -> None:
    first = shell.build("a.engine")
    second = shell.build("b.engine")
    assert second.result
    assert second.result.reused == first.build_id
    (kept,) = shell.shown().engines
    assert (kept.build_id, kept.backend, kept.bytes) == (first.build_id, "replay", 4096)
    line = shell.run("cache", "show")
    assert first.build_id in line.stdout
    assert "1 engines" in line.stderr
    third = shell.build("c.engine", "--no-reuse")
    assert third.result
    assert third.result.reused is None
    cleared = shell.run("cache", "clear")
    assert (cleared.returncode, cleared.stderr) == (ExitCode.OK, "")
    assert shell.shown().engines == []
    assert (shell.folder / "c.engine").exists()


def test_a_supervisor_that_a_command_starts_keeps_engines_where_the_command_says(
    attached: Shell,
) -> None:
    first = attached.build("a.engine")
    second = attached.build("b.engine")
    assert second.result
    assert second.result.reused == first.build_id
    assert not (attached.state / "engines").exists()
    shown = attached.shown("--engine-cache", "shared")
    assert [kept.build_id for kept in shown.engines] == [first.build_id]


def test_a_size_that_is_none_is_refused_before_anything_is_started(shell: Shell) -> None:
    done = shell.run("build", "m.jsonl", "--engine-cache-size", "plenty")
    assert done.returncode == ExitCode.USAGE
    assert "--engine-cache-size" in done.stderr
    assert "TRT_AGENT_TOOLS_ENGINE_CACHE_SIZE" in done.stderr
