"""Every process of a build is found, wherever it hid, and no other is ever touched."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import psutil
import pytest

from trt_agent_tools.model.events import BUILD_TOKEN_ENV
from trt_agent_tools.supervisor.process.process_tree import ProcessTree

pytestmark = pytest.mark.anyio

Process = subprocess.Popen[str]
Start = Callable[..., Process]
Reuse = tuple[ProcessTree, Process]

# Each script prints a line once it stands as the test wants it, then waits for its end.
WAIT = "import signal; print('ready', flush=True); signal.pause()"

PARENT = f"""
import os, signal, subprocess, sys
env = None if sys.argv[1] == "keep" else {{}}
child = subprocess.Popen(
    [sys.executable, "-c", {WAIT!r}], stdout=subprocess.PIPE, text=True, env=env,
    start_new_session=sys.argv[2] == "apart",
)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
"""

# The first thread ends; another lives on. The kernel shows the process as a zombie.
HEADLESS = """
import ctypes, platform, signal, threading
threading.Thread(target=signal.pause).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


@pytest.fixture
def token() -> str:
    return secrets.token_hex(16)


@pytest.fixture
def start(token: str) -> Iterator[Start]:
    """Start a Python script as a worker is started, wait for its line, and end it with the test."""
    started: list[Process] = []

    def start(
        script: str, *arguments: str, marked: bool = True, env: Mapping[str, str] | None = None
    ) -> Process:
        mark = {BUILD_TOKEN_ENV: token} if marked else {}
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **mark, **(env or {})},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: Process) -> str:
    """Return the line that a process printed when it was ready."""
    assert process.stdout
    line = process.stdout.readline().strip()
    assert line, "the process ended before it was ready"
    return line


def wait_unreaped(process: Process, change: int) -> None:
    """Wait until a process has exited or stopped, and leave its status to be read."""
    os.waitid(os.P_PID, process.pid, change | os.WNOWAIT)


def pids(processes: list[psutil.Process]) -> set[int]:
    return {process.pid for process in processes}


@pytest.fixture
def grandchildren() -> Iterator[list[int]]:
    """Pids to kill after the test, whatever it did."""
    found: list[int] = []
    yield found
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def family(start: Start, grandchildren: list[int], env: str, session: str) -> tuple[Process, int]:
    """Start a worker with one child; return the worker and the child's pid."""
    worker = start(PARENT, env, session)
    child = int(said(worker))
    grandchildren.append(child)
    return worker, child


async def test_the_worker_and_its_child_are_found_and_nobody_else(
    start: Start, token: str, grandchildren: list[int]
) -> None:
    stranger = start(WAIT, marked=False)
    said(stranger)
    worker, child = family(start, grandchildren, "keep", "together")
    tree = ProcessTree(worker.pid, token)
    assert pids(tree.members()) == pids(tree.descendants()) == {worker.pid, child}


@pytest.mark.parametrize("session", ["together", "apart"])
async def test_an_orphan_that_kept_the_token_is_found_and_killed(
    start: Start, token: str, grandchildren: list[int], session: str
) -> None:
    worker, child = family(start, grandchildren, "keep", session)
    tree = ProcessTree(worker.pid, token)
    # It ends before anybody looked: the child is nobody's descendant now.
    worker.communicate("end\n")
    assert pids(tree.members()) == {child}
    tree.send(signal.SIGKILL)
    with anyio.fail_after(5):
        await tree.all_exits()
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


async def test_an_orphan_that_dropped_its_environment_stays_in_the_builds_session(
    start: Start, token: str, grandchildren: list[int]
) -> None:
    worker, child = family(start, grandchildren, "drop", "together")
    tree = ProcessTree(worker.pid, token)
    worker.communicate("end\n")
    assert pids(tree.members()) == {child}


async def test_one_that_dropped_everything_is_known_if_it_was_seen_before(
    start: Start, token: str, grandchildren: list[int]
) -> None:
    worker, child = family(start, grandchildren, "drop", "apart")
    tree = ProcessTree(worker.pid, token)
    # What the supervisor does once a second.
    assert pids(tree.descendants()) == {worker.pid, child}
    worker.communicate("end\n")
    assert pids(tree.members()) == pids(tree.descendants()) == {child}


async def test_another_builds_token_is_no_match(start: Start, token: str) -> None:
    worker = start(WAIT)
    other = start(WAIT, env={BUILD_TOKEN_ENV: secrets.token_hex(16)})
    said(worker)
    said(other)
    assert pids(ProcessTree(worker.pid, token).members()) == {worker.pid}


async def test_a_zombie_is_no_living_process(start: Start, token: str) -> None:
    worker = start(WAIT)
    said(worker)
    tree = ProcessTree(worker.pid, token)
    worker.send_signal(signal.SIGKILL)
    wait_unreaped(worker, os.WEXITED)
    assert psutil.Process(worker.pid).status() == psutil.STATUS_ZOMBIE
    assert tree.members() == []
    with anyio.fail_after(1):
        await tree.worker_exit()
        await tree.all_exits()


async def test_a_process_whose_first_thread_is_dead_is_not_gone(start: Start, token: str) -> None:
    worker = start(HEADLESS)
    said(worker)
    shown = psutil.Process(worker.pid)
    with anyio.fail_after(5):
        while shown.status() != psutil.STATUS_ZOMBIE:
            await anyio.sleep(0.01)
    tree = ProcessTree(worker.pid, token)
    assert pids(tree.members()) == {worker.pid}
    with anyio.move_on_after(0.2) as waited:
        await tree.worker_exit()
    assert waited.cancelled_caught
    tree.send(signal.SIGKILL)
    with anyio.fail_after(5):
        await tree.worker_exit()
        await tree.all_exits()
    assert tree.members() == []


async def test_all_exits_returns_when_the_last_one_has_gone_and_not_before(
    start: Start, token: str, grandchildren: list[int]
) -> None:
    worker, child = family(start, grandchildren, "keep", "apart")
    tree = ProcessTree(worker.pid, token)
    worker_gone, all_gone = anyio.Event(), anyio.Event()

    async def watch() -> None:
        await tree.worker_exit()
        worker_gone.set()
        await tree.all_exits()
        all_gone.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.to_thread.run_sync(worker.communicate, "end\n")
            await worker_gone.wait()
            with anyio.move_on_after(0.2):
                await all_gone.wait()
            assert not all_gone.is_set()
            os.kill(child, signal.SIGKILL)
    assert all_gone.is_set()


async def test_waiting_can_be_given_up_and_leaves_no_descriptor_open(
    start: Start, token: str
) -> None:
    worker = start(WAIT)
    said(worker)
    tree = ProcessTree(worker.pid, token)
    await anyio.lowlevel.checkpoint()
    before = psutil.Process().num_fds()
    for _ in range(20):
        with anyio.move_on_after(0.001) as scope:
            await tree.all_exits()
        assert scope.cancelled_caught
    assert psutil.Process().num_fds() == before


async def test_a_stopped_worker_is_seen_and_can_be_killed(start: Start, token: str) -> None:
    worker = start(WAIT)
    said(worker)
    tree = ProcessTree(worker.pid, token)
    assert not tree.stopped()
    worker.send_signal(signal.SIGSTOP)
    wait_unreaped(worker, os.WSTOPPED)
    assert tree.stopped()
    tree.send(signal.SIGKILL)
    with anyio.fail_after(5):
        await tree.all_exits()
    worker.wait()
    assert not tree.stopped()


async def test_a_tree_of_a_process_that_is_gone_already_is_empty(start: Start, token: str) -> None:
    gone = start("")
    gone.communicate()
    tree = ProcessTree(gone.pid, token)
    assert tree.members() == tree.descendants() == []
    tree.send(signal.SIGKILL)
    with anyio.fail_after(1):
        await tree.worker_exit()
        await tree.all_exits()


LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
ATTEMPTS = 20
"""On a busy machine somebody else may be given the pid first."""


def reuse_pid(start: Start, end_one: Callable[[], tuple[ProcessTree, int]]) -> Reuse:
    """End a process of a build and start a stranger, a session's leader, under the same pid."""
    for _ in range(ATTEMPTS):
        tree, pid = end_one()
        try:
            LAST_PID.write_text(str(pid - 1))
        except OSError as error:
            pytest.skip(f"the next pid cannot be chosen here: {error}")
        stranger = start(WAIT, marked=False)
        said(stranger)
        if stranger.pid == pid:
            return tree, stranger
    pytest.skip("other processes took the pid each time")


async def test_a_stranger_with_the_workers_old_pid_is_left_alone(start: Start, token: str) -> None:
    def end_a_worker() -> tuple[ProcessTree, int]:
        worker = start(WAIT)
        said(worker)
        tree = ProcessTree(worker.pid, token)
        tree.send(signal.SIGKILL)
        worker.wait()
        return tree, worker.pid

    tree, stranger = reuse_pid(start, end_a_worker)
    assert tree.members() == tree.descendants() == []
    tree.send(signal.SIGKILL)
    with anyio.fail_after(1):
        await tree.worker_exit()
        await tree.all_exits()
    assert not tree.stopped()
    assert stranger.poll() is None


async def test_a_stranger_with_a_childs_old_pid_is_left_alone(
    start: Start, token: str, grandchildren: list[int]
) -> None:
    def end_a_child() -> tuple[ProcessTree, int]:
        worker, child = family(start, grandchildren, "drop", "apart")
        tree = ProcessTree(worker.pid, token)
        assert child in pids(tree.descendants())
        os.kill(child, signal.SIGKILL)
        worker.communicate("end\n")
        grandchildren.clear()
        return tree, child

    tree, stranger = reuse_pid(start, end_a_child)
    tree.send(signal.SIGKILL)
    assert tree.members() == []
    assert stranger.poll() is None
