"""The commands over builds that a supervisor of their own keeps: from any terminal of the user."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import Models, processes_of_this_run
from tests.hosts import ATTACHED, LONGEST_S, command, host_of, stop_host
from trt_agent_tools.model.snapshot import BuildList, BuildSummary, Snapshot
from trt_agent_tools.model.states import Rung, State

pytestmark = pytest.mark.tensorrt_rtx


Popen = subprocess.Popen[str]
Running = tuple[Popen, BuildSummary]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder whose supervisor serves every test here."""
    folder = tmp_path_factory.mktemp("state")
    before = processes_of_this_run()
    yield folder
    stop_host(folder)
    _, alive = psutil.wait_procs(set(processes_of_this_run()) - set(before), timeout=3)
    assert not alive


@pytest.fixture
def running(state: Path, tmp_path: Path, models: Models) -> Iterator[Running]:
    """A command that shows a long build, and the build."""
    words = ("build", models.silent, "-o", tmp_path / "a.engine", "--state-dir", state)
    process = begin(*words, "--json")
    assert process.stdout
    try:
        build_id = Snapshot.model_validate_json(process.stdout.readline()).build_id
        yield process, next(b for b in listed(state) if b.build_id == build_id)
    finally:
        process.kill()
        process.communicate(timeout=LONGEST_S)
    assert command("cancel", build_id, "--kill", "--wait", "--state-dir", state).returncode == 0
    assert list(tmp_path.iterdir()) == []


def begin(*words: object) -> Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "trt_agent_tools", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ATTACHED},
    )


def listed(state: Path, *words: str) -> list[BuildSummary]:
    done = command("list", "--json", "--state-dir", state, *words)
    assert done.returncode == 0, done.stderr
    return BuildList.model_validate_json(done.stdout).builds


def test_a_build_is_shown_listed_watched_logged_and_verified(
    state: Path, tmp_path: Path, models: Models
) -> None:
    engine = tmp_path / "a.engine"
    built = command("build", models.quick, "-o", engine, "--label", "one", "--state-dir", state)
    build = listed(state, "--limit", "1")[0]
    lines = command("list", "--state", "succeeded", "--state-dir", state).stdout
    watched = command("watch", build.build_id[:12], "--json", "--state-dir", state)
    log = command("log", build.build_id, "--tail", "3", "--state-dir", state)
    verified = command("verify", engine)
    engine.write_bytes(b"another")
    changed = command("verify", engine)

    assert (built.returncode, built.stderr) == (0, "")
    assert "succeeded after" in built.stdout
    assert (build.state, build.label) == (State.SUCCEEDED, "one")
    assert build.build_id in lines
    assert watched.returncode == 0
    final = json.loads(watched.stdout.splitlines()[-1])
    assert final["result"]["engine"] == str(engine)
    assert len(log.stdout.splitlines()) == 3
    assert (verified.returncode, verified.stdout.count(": ok\n")) == (0, 2)
    assert changed.returncode == 1
    assert f"{engine}: MISMATCH" in changed.stdout


def test_a_killed_build_command_leaves_the_build_and_cancel_ends_it_with_its_processes(
    state: Path, running: Running
) -> None:
    process, build = running
    process.kill()
    process.wait(LONGEST_S)
    assert [b.build_id for b in listed(state) if b.state in {State.STARTING, State.BUILDING}] == [
        build.build_id
    ]
    refused = command("stop", "--state-dir", state)
    workers = host_of(state).children(recursive=True)
    cancelled = command("cancel", build.build_id[:12], "--wait", "--state-dir", state)

    assert refused.returncode == 2
    assert build.build_id in refused.stderr
    assert "--force" in refused.stderr
    assert cancelled.returncode == 0
    assert "cancelled" in cancelled.stdout
    assert not [worker for worker in workers if worker.is_running()]
    assert command("watch", build.build_id, "--state-dir", state).returncode == 130


def test_ctrl_c_at_build_asks_and_a_second_one_kills(state: Path, running: Running) -> None:
    process, _ = running
    assert process.stdout
    process.send_signal(signal.SIGINT)
    assert any('"cancelling"' in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=LONGEST_S)

    final = Snapshot.model_validate_json(output.splitlines()[-1])
    assert process.returncode == 130
    assert final.state is State.CANCELLED
    assert final.ended_by in {Rung.ASK, Rung.TERMINATE, Rung.KILL}


def test_ctrl_c_at_watch_leaves_and_the_build_goes_on(state: Path, running: Running) -> None:
    _, build = running
    watcher = begin("watch", build.build_id, "--json", "--state-dir", state)
    assert watcher.stdout
    watcher.stdout.readline()
    watcher.send_signal(signal.SIGINT)
    _, errors = watcher.communicate(timeout=LONGEST_S)

    assert watcher.returncode == 130
    assert errors == f"{build.build_id} goes on\n"
    (still,) = (b for b in listed(state) if b.build_id == build.build_id)
    assert still.state in {State.STARTING, State.BUILDING}


def test_doctor_tells_of_the_supervisor_that_runs(state: Path) -> None:
    listed(state)
    report = json.loads(command("doctor", "--json", "--state-dir", state).stdout)

    assert report["supervisor"]["pid"] == host_of(state).pid
    assert report["supervisor"]["builds_live"] == 0
    assert report["journal"]["bytes"] > 0
    assert "ok" not in report["journal"], "what was not looked into is not called sound"


def test_an_id_that_no_build_has_is_refused(state: Path) -> None:
    done = command("cancel", "b_nonsense", "--wait", "--state-dir", state)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown_build: ")


def test_stop_ends_the_supervisor_and_twice_does_no_harm(tmp_path: Path) -> None:
    listed(tmp_path)
    host = host_of(tmp_path)
    first = command("stop", "--state-dir", tmp_path)
    again = command("stop", "--state-dir", tmp_path)

    assert (first.returncode, again.returncode) == (0, 0)
    assert not host.is_running()
    assert str(host.pid) in first.stdout
    assert again.stdout == f"no supervisor answers for {tmp_path}\n"
