"""The supervisor as a process of its own: found, shared, kept, replaced, ended."""

import os
import shutil
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from tests.conftest import processes_of_this_run
from tests.integration.api_processes import Hosts, exit_of, hosts_of
from tests.integration.api_serving import recording
from trt_agent_tools import __version__
from trt_agent_tools.api import attach as attach_module
from trt_agent_tools.api.attach import ask, attach, stop
from trt_agent_tools.api.folder_lock import FolderLock
from trt_agent_tools.api.place import find_socket, read_record
from trt_agent_tools.api.supervise import ALREADY_RUNNING
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.supervisor.config import SupervisorConfig

pytestmark = pytest.mark.anyio

OLDER, NEWER = "0.0.1", "99.0.0"
LONG = {"actions": [{"at": 1.2, "do": "hang_idle"}], "speed": 5.0}
"""A build that goes on for ever."""


@pytest.fixture
def hosts(
    root: Path, tmp_path: Path, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hosts]:
    monkeypatch.setenv("TRT_AGENT_TOOLS_ROOT", str(root))
    monkeypatch.setenv("TRT_AGENT_TOOLS_ENABLE_REPLAY", "1")
    yield from hosts_of(tmp_path / "state", root)


async def long_build(hosts: Hosts) -> tuple[str, int]:
    """Start a build that does not end, and return its id and its worker's pid."""
    async with attach(hosts.config, hosts.allowed) as service:
        build = await service.start(recording(hosts.root, **LONG))  # type: ignore[arg-type]
        with anyio.fail_after(20):
            while build.current is None or "Determining" not in build.current:
                build = await service.progress(build.build_id, wait_s=5, since_seq=build.seq)
    return build.build_id, worker_of(hosts)


def worker_of(hosts: Hosts) -> int:
    (worker,) = [
        process.pid
        for process in processes_of_this_run()
        if "trt_agent_tools.worker" in process.cmdline()
    ]
    return worker


async def test_eight_front_ends_that_start_at_once_share_one_supervisor(hosts: Hosts) -> None:
    front_ends = [hosts.front_end() for _ in range(8)]
    for front_end in front_ends:
        assert await front_end.read() == {"ready": True}
    for front_end in front_ends:
        front_end.go_on()
    found = [await front_end.read() for front_end in front_ends]
    assert len({said.get("host") for said in found}) == 1, found
    (host,) = hosts.alive()
    assert found[0]["host"] == host.pid
    hello = await ask(hosts.state)
    assert hello is not None
    assert hello.front_ends == 8


async def test_a_killed_front_end_leaves_its_build_running_for_the_next_one(hosts: Hosts) -> None:
    request = recording(hosts.root, speed=4)
    front_end = hosts.front_end(request.model_dump_json())
    said = await front_end.attached()
    front_end.kill()
    with anyio.fail_after(5):
        while (hello := await ask(hosts.state)) is None or hello.front_ends:
            await anyio.sleep(0.02)
    assert hello.pid == said["host"]
    assert hello.builds_live == 1
    async with attach(hosts.config, hosts.allowed) as service:
        (build,) = (await service.list_builds()).builds
        assert build.build_id == said["build"]
        with anyio.fail_after(30):
            *_, last = [s async for s in service.events(build.build_id)]
    assert last.state is State.SUCCEEDED
    assert (await hosts.answering()).pid == said["host"]


async def test_a_supervisor_holds_nothing_of_the_front_end_that_started_it(hosts: Hosts) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    async with attach(hosts.config, hosts.allowed):
        pass
    os.close(writer)
    with open(reader, "rb") as pipe, anyio.fail_after(5):  # noqa: ASYNC230, PTH123
        assert await anyio.to_thread.run_sync(pipe.read) == b""
    (host,) = hosts.alive()
    assert host.cwd() == "/"
    assert os.getsid(host.pid) == host.pid
    log = str(hosts.state / "supervisor.log")
    streams = [str(Path(f"/proc/{host.pid}/fd/{n}").readlink()) for n in range(3)]
    assert streams == ["/dev/null", log, log]
    assert str(hosts.state) in host.cmdline()


async def test_everything_of_a_supervisor_is_for_its_user_alone(hosts: Hosts) -> None:
    before = os.umask(0)
    try:
        async with attach(hosts.config, hosts.allowed):
            modes = {
                path.name: stat.S_IMODE(path.lstat().st_mode)
                for path in [hosts.state, *hosts.state.iterdir()]
            }
    finally:
        os.umask(before)
    assert modes["supervisor.sock"] == 0o600
    assert modes["state"] == 0o700
    assert not [name for name, mode in modes.items() if mode & 0o077], modes


async def test_the_record_says_who_serves(hosts: Hosts) -> None:
    async with attach(hosts.config, hosts.allowed):
        record = read_record(hosts.state)
        hello = await hosts.answering()
        assert record is not None
        assert record.pid == hello.pid
        assert record.version == hello.version == __version__
        assert record.started == pytest.approx(psutil.Process(record.pid).create_time(), abs=1)
        assert record.socket == str(find_socket(hosts.state))


async def test_a_second_supervisor_of_a_folder_ends_at_once_and_disturbs_nothing(
    hosts: Hosts,
) -> None:
    async with attach(hosts.config, hosts.allowed):
        first = await hosts.answering()
        second = hosts.supervise()
        with anyio.fail_after(10):
            assert await anyio.to_thread.run_sync(second.wait) == ALREADY_RUNNING
        assert second.stdout
        assert b"another supervisor" in second.stdout.read()
        assert (await hosts.answering()).pid == first.pid


async def test_an_idle_supervisor_ends_by_itself_and_leaves_neither_socket_nor_record(
    hosts: Hosts,
) -> None:
    host = hosts.supervise("--idle-s", "1")
    began = time.monotonic()
    await hosts.answering()
    with anyio.fail_after(15):
        assert await anyio.to_thread.run_sync(host.wait) == 0
    assert time.monotonic() - began >= 1
    left = {path.name for path in hosts.state.iterdir()}
    assert not left & {"supervisor.sock", "supervisor.json"}, left


async def test_a_supervisor_stays_for_a_front_end_and_for_a_build(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRT_AGENT_TOOLS_IDLE_S", "1")
    async with attach(hosts.config, hosts.allowed) as service:
        hello = await hosts.answering()
        await anyio.sleep(1.5)  # longer than a host without front ends stays
        assert (await hosts.answering()).pid == hello.pid
        build = await service.start(recording(hosts.root, speed=8))
        assert build.output
    await exit_of(hello.pid, within_s=30)
    # It has outlived its last front end by as long as the build took.
    assert Path(build.output).exists()


async def test_stop_refuses_while_a_build_runs_and_ends_it_by_force(hosts: Hosts) -> None:
    build_id, worker = await long_build(hosts)
    hello = await hosts.answering()
    with pytest.raises(Refusal) as caught:
        await stop(hosts.state)
    assert caught.value.info.code is ErrorCode.BUILDS_LIVE
    assert caught.value.info.details == {"builds": [build_id]}
    async with attach(hosts.config, hosts.allowed) as service:
        last: list[Snapshot] = []

        async def follow() -> None:
            last.extend([s async for s in service.events(build_id)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            stopping = await stop(hosts.state, force=True)
            assert stopping is not None
            assert stopping.stopping
            assert stopping.pid == hello.pid
    await exit_of(hello.pid)
    await exit_of(worker, within_s=1)
    # Whoever followed the build was told how it ended.
    assert last[-1].state is State.CANCELLED
    assert last[-1].reason is Reason.SERVER_SHUTDOWN


async def test_stop_of_another_process_ends_nobody(hosts: Hosts) -> None:
    async with attach(hosts.config, hosts.allowed):
        hello = await hosts.answering()
        with pytest.raises(Refusal, match=str(hello.pid + 1)):
            await stop(hosts.state, pid=hello.pid + 1)
        assert (await hosts.answering()).pid == hello.pid


async def test_stop_without_a_supervisor_says_that_there_is_none(hosts: Hosts) -> None:
    assert await stop(hosts.state) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_a_supervisor_and_its_builds(
    hosts: Hosts, number: signal.Signals
) -> None:
    _, worker = await long_build(hosts)
    hello = await hosts.answering()
    os.kill(hello.pid, number)
    await exit_of(hello.pid)
    await exit_of(worker, within_s=0.5)
    assert not find_socket(hosts.state).exists()


async def test_a_killed_supervisor_leaves_nothing_that_keeps_the_next_one_out(
    hosts: Hosts,
) -> None:
    _, worker = await long_build(hosts)
    killed = await hosts.answering()
    os.kill(killed.pid, signal.SIGKILL)
    await exit_of(worker, within_s=5)
    assert find_socket(hosts.state).exists()
    async with attach(hosts.config, hosts.allowed) as service:
        assert (await hosts.answering()).pid != killed.pid
        await service.list_builds()


async def test_a_front_end_whose_supervisor_was_killed_gets_another_with_its_next_call(
    hosts: Hosts,
) -> None:
    async with attach(hosts.config, hosts.allowed) as service:
        await service.list_builds()
        killed = await hosts.answering()
        waiting: list[Refusal] = []

        async def wait(build_id: str) -> None:
            try:
                await service.progress(build_id, wait_s=40, since_seq=10**9)
            except Refusal as refusal:
                waiting.append(refusal)

        build = await service.start(recording(hosts.root, **LONG))  # type: ignore[arg-type]
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(wait, build.build_id)
                await service.progress(build.build_id, wait_s=1)
                os.kill(killed.pid, signal.SIGKILL)
        assert [r.info.code for r in waiting] == [ErrorCode.SUPERVISOR_GONE] * 3
        assert "Call again" in waiting[0].info.hint
        await service.list_builds()
        hello = await hosts.answering()
        assert hello.pid != killed.pid
        assert hello.front_ends == 1


async def test_a_socket_file_that_was_taken_away_comes_back(hosts: Hosts) -> None:
    async with attach(hosts.config, hosts.allowed) as service:
        hello = await hosts.answering()
        path = find_socket(hosts.state)
        path.unlink()
        await service.list_builds()  # what is connected stays so
        again = await hosts.answering()
        assert (again.pid, again.front_ends) == (hello.pid, 1)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        # Somebody else's in its place goes too.
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))
            assert (await hosts.answering()).pid == hello.pid


async def test_a_lock_file_that_was_taken_away_lets_no_second_supervisor_in(hosts: Hosts) -> None:
    async with attach(hosts.config, hosts.allowed):
        hello = await hosts.answering()
        lock = hosts.state / "supervisor.lock"
        lock.unlink()
        with anyio.fail_after(5):
            while not lock.exists():
                await anyio.sleep(0.02)
        second = hosts.supervise()
        with anyio.fail_after(10):
            assert await anyio.to_thread.run_sync(second.wait) == ALREADY_RUNNING
        assert (await hosts.answering()).pid == hello.pid


async def test_a_supervisor_whose_lock_went_to_another_ends_with_its_builds(hosts: Hosts) -> None:
    _, worker = await long_build(hosts)
    hello = await hosts.answering()
    (hosts.state / "supervisor.lock").unlink()
    other = FolderLock(hosts.state / "supervisor.lock")
    # Whoever comes first has it: the host looks once a second.
    if other.take():
        await exit_of(hello.pid)
        await exit_of(worker, within_s=1)
        assert "another supervisor" in (hosts.state / "supervisor.log").read_text()
        other.release()


async def test_a_state_folder_that_was_removed_ends_an_idle_supervisor(hosts: Hosts) -> None:
    async with attach(hosts.config, hosts.allowed) as service:
        hello = await hosts.answering()
        shutil.rmtree(hosts.state)
        await exit_of(hello.pid)
        await service.list_builds()
        assert (await hosts.answering()).pid != hello.pid


async def test_a_state_folder_that_was_removed_under_a_build_is_made_again(hosts: Hosts) -> None:
    build_id, _ = await long_build(hosts)
    hello = await hosts.answering()
    shutil.rmtree(hosts.state)
    assert (await hosts.answering()).pid == hello.pid
    async with attach(hosts.config, hosts.allowed) as service:
        assert not (await service.progress(build_id)).ended
        await service.cancel(build_id, at_once=True, wait_s=10)


async def test_a_state_folder_with_a_long_path_works_the_same(
    root: Path,
    tmp_path: Path,
    nothing_left: None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    # A short path, as a login has one: pytest's own are long.
    runtime = Path(tempfile.mkdtemp(prefix="run"))
    request.addfinalizer(lambda: shutil.rmtree(runtime))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    for hosts in hosts_of(tmp_path / ("deep" * 20) / ("er" * 40), root):
        async with attach(hosts.config, hosts.allowed) as service:
            assert (await service.list_builds()).builds == []
            hello = await hosts.answering()
        (made,) = runtime.iterdir()
        (path,) = made.iterdir()
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        async with attach(hosts.config, hosts.allowed):
            assert (await hosts.answering()).pid == hello.pid


async def refused(config: SupervisorConfig, hosts: Hosts) -> Refusal:
    with anyio.fail_after(8), pytest.raises(Refusal) as caught:
        async with attach(config, hosts.allowed):
            pass
    assert caught.value.info.hint
    return caught.value


async def test_a_supervisor_that_cannot_start_is_told_of_with_the_end_of_its_log(
    hosts: Hosts, tmp_path: Path
) -> None:
    hosts.state.mkdir(mode=0o700)
    (hosts.state / "supervisor.log").write_text("an error of last week\n")
    policy = tmp_path / "garbage.toml"
    policy.write_text("[rules]\nbuild_time = [\n")
    config = SupervisorConfig(hosts.state, (hosts.root,), policy=str(policy))
    info = (await refused(config, hosts)).info
    assert info.code is ErrorCode.SUPERVISOR_GONE
    assert "garbage.toml" in info.message
    lines = info.details["log"]
    assert isinstance(lines, list)
    assert any("garbage.toml" in line for line in lines)
    assert not any("last week" in line for line in lines)


async def test_a_state_folder_with_a_file_in_the_way_is_told_of(hosts: Hosts) -> None:
    hosts.state.mkdir(mode=0o700)
    (hosts.state / "builds").write_text("in the way")
    info = (await refused(hosts.config, hosts)).info
    assert info.code is ErrorCode.SUPERVISOR_GONE
    assert str(hosts.state / "builds") in info.message
    assert not find_socket(hosts.state).exists()


async def test_a_state_folder_that_cannot_be_made_is_told_of(hosts: Hosts) -> None:
    (hosts.root / "file").write_text("no folder")
    config = SupervisorConfig(hosts.root / "file" / "state", (hosts.root,))
    info = (await refused(config, hosts)).info
    assert info.code is ErrorCode.SUPERVISOR_GONE
    assert "Not a directory" in info.message


async def test_a_state_folder_on_a_read_only_disk_is_told_of(hosts: Hosts) -> None:
    # The kernel's own read-only file system, there on every Linux.
    config = SupervisorConfig(Path("/proc/self/state"), (hosts.root,))
    info = (await refused(config, hosts)).info
    assert info.code is ErrorCode.SUPERVISOR_GONE


async def test_a_state_folder_that_others_may_write_to_is_refused(hosts: Hosts) -> None:
    hosts.state.mkdir()
    hosts.state.chmod(0o777)
    info = (await refused(hosts.config, hosts)).info
    assert info.code is ErrorCode.SUPERVISOR_GONE
    assert "chmod go-w" in info.message


async def test_a_supervisor_that_hangs_is_told_of_in_bounded_time(hosts: Hosts) -> None:
    async with attach(hosts.config, hosts.allowed):
        hello = await hosts.answering()
    os.kill(hello.pid, signal.SIGSTOP)
    info = (await refused(hosts.config, hosts)).info
    assert info.code is ErrorCode.SUPERVISOR_GONE
    assert str(hello.pid) in info.message
    os.kill(hello.pid, signal.SIGCONT)


async def test_an_older_idle_supervisor_is_replaced(hosts: Hosts) -> None:
    old = hosts.supervise(version=OLDER)
    assert (await hosts.answering()).version == OLDER
    async with attach(hosts.config, hosts.allowed):
        hello = await hosts.answering()
        assert hello.version == __version__
        assert hello.pid != old.pid
    assert old.wait(5) == 0


async def test_an_older_supervisor_with_a_build_is_used(hosts: Hosts) -> None:
    hosts.supervise(version=OLDER)
    await hosts.answering()
    # What starts its build is of its own version.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attach_module, "__version__", OLDER)
        build_id, _ = await long_build(hosts)
    async with attach(hosts.config, hosts.allowed) as service:
        assert (await hosts.answering()).version == OLDER
        assert not (await service.progress(build_id)).ended


async def test_a_newer_supervisor_is_used(hosts: Hosts) -> None:
    newer = hosts.supervise(version=NEWER)
    await hosts.answering()
    async with attach(hosts.config, hosts.allowed) as service:
        await service.list_builds()
        assert (await hosts.answering()).pid == newer.pid


async def test_a_newer_supervisor_of_another_protocol_is_refused_naming_both_versions(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = hosts.supervise(version=NEWER)
    await hosts.answering()
    monkeypatch.setattr(attach_module, "API_PROTOCOL", 0)
    info = (await refused(hosts.config, hosts)).info
    assert info.code is ErrorCode.OTHER_VERSION
    assert NEWER in info.message
    assert __version__ in info.message
    assert "stop" in info.hint
    assert (await hosts.answering()).pid == newer.pid
