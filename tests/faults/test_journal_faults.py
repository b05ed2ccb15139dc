"""A journal that cannot be written: what runs goes on, nothing new starts, and both are said."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.faults.conftest import GRACES, Action, Play, Watcher
from tests.faults.invariants import assert_ledger
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.store.journal import FILE_NAME
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

pytestmark = pytest.mark.anyio

SMALL = "4m"
PARSING = ("Parsing",)
PAUSE: Action = {"at": 0.07, "do": "hang_idle", "for_s": 1.0}
HANG: Action = {"at": 0.07, "do": "hang_idle"}


def mount(folder: Path, *options: str) -> None:
    """Mount a small file system in memory; skip where this user may not."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join((f"size={SMALL}", *options)), "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount(folder)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def config(root: Path, tmp_path: Path, nothing_left: None) -> SupervisorConfig:
    policy = tmp_path / "policy.toml"
    policy.write_text(GRACES)
    return SupervisorConfig(tmp_path / "state", (root,), policy=str(policy), enable_replay=True)


def fill(disk: Path) -> Path:
    """Write until nothing more fits; return the file to remove for room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    with ballast.open("ab", buffering=0) as file, pytest.raises(OSError, match="space") as full:
        file.write(bytes(4096))
    assert full.value.errno == errno.ENOSPC
    return ballast


async def refused(watcher: Watcher, request: StartRequest) -> Refusal:
    """Return the refusal of a build while the journal is not to be had."""
    with pytest.raises(Refusal) as refusal:
        await watcher.start(request)
    assert refusal.value.info.code is ErrorCode.JOURNAL_UNAVAILABLE
    assert refusal.value.info.hint
    return refusal.value


async def test_a_full_disk_ends_no_build_and_lets_none_start_until_there_is_room(
    config: SupervisorConfig, mounted: Path, play: Play
) -> None:
    config = replace(config, state_dir=mounted)
    async with Supervisor(config) as supervisor:
        watcher = Watcher(supervisor)
        build = await watcher.start(play(PAUSE, recording="quick"))
        await watcher.until(build, PARSING)
        ballast = fill(mounted)
        assert "full" in str(await refused(watcher, play(recording="quick")))
        ended = await watcher.end(build)
        assert ended.state is State.SUCCEEDED
        assert any("journal" in note for note in ended.notes or [])
        listed = await supervisor.list_builds()
        assert [each.state for each in listed.builds] == [State.SUCCEEDED]
        ballast.unlink()
        following = await watcher.start(play(recording="quick"))
        assert (await watcher.end(following)).state is State.SUCCEEDED
        await assert_ledger(supervisor)


@pytest.mark.parametrize("room", ["while it runs", "before its end"])
async def test_an_end_that_was_shown_while_the_disk_was_full_is_known_to_the_next_supervisor(
    config: SupervisorConfig, mounted: Path, play: Play, room: str
) -> None:
    config = replace(config, state_dir=mounted)
    async with Supervisor(config) as supervisor:
        watcher = Watcher(supervisor)
        build = await watcher.start(play(HANG, recording="quick"))
        await watcher.until(build, PARSING)
        ballast = fill(mounted)
        ended = await watcher.cancel(build, at_once=True)
        assert (ended.state, ended.reason) == (State.CANCELLED, Reason.USER_REQUEST)
        if room == "while it runs":
            ballast.unlink()
            with anyio.fail_after(20):
                while (stored := await supervisor._journal.build(build)) and not stored.ended:
                    await anyio.sleep(0.05)
            await assert_ledger(supervisor)
        else:
            ballast.unlink()
    async with Supervisor(config) as supervisor:
        known = await supervisor.progress(build)
        assert (known.state, known.reason) == (State.CANCELLED, Reason.USER_REQUEST)
        await assert_ledger(supervisor)


async def test_a_disk_that_is_full_at_the_start_is_named_in_the_refusal(
    config: SupervisorConfig, mounted: Path, play: Play
) -> None:
    ballast = fill(mounted)
    config = replace(config, state_dir=mounted / "state")
    with pytest.raises(Refusal, match=r"full|space") as refusal:
        async with Supervisor(config):
            pytest.fail("it has no journal")
    assert refusal.value.info.code is ErrorCode.JOURNAL_UNAVAILABLE
    ballast.unlink()
    async with Supervisor(config) as supervisor:
        watcher = Watcher(supervisor)
        build = await watcher.start(play(recording="quick"))
        assert (await watcher.end(build)).state is State.SUCCEEDED


async def test_a_read_only_state_folder_is_named_in_the_refusal(
    config: SupervisorConfig, tmp_path: Path
) -> None:
    async with Supervisor(config):
        pass
    folder = tmp_path / "read-only"
    folder.mkdir()
    mount(folder)
    try:
        shutil.copytree(config.state_dir, folder / "state")
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with pytest.raises(Refusal, match=r"[Rr]ead-only") as refusal:
            async with Supervisor(replace(config, state_dir=folder / "state")):
                pytest.fail("it has no journal")
        assert refusal.value.info.code is ErrorCode.JOURNAL_UNAVAILABLE
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("damage", ["garbage", "torn in the middle", "a folder"])
async def test_a_corrupt_journal_is_named_in_the_refusal_and_stays_as_it_is(
    config: SupervisorConfig, play: Play, damage: str
) -> None:
    async with Supervisor(config) as supervisor:
        watcher = Watcher(supervisor)
        await watcher.end(await watcher.start(play(recording="quick")))
    journal = config.state_dir / FILE_NAME
    whole = journal.read_bytes()
    if damage == "garbage":
        journal.write_bytes(os.urandom(100_000))
    elif damage == "a folder":
        journal.unlink()
        journal.mkdir()
    else:
        third = len(whole) // 3
        journal.write_bytes(whole[:third] + os.urandom(third) + whole[2 * third :])
    left = None if journal.is_dir() else journal.read_bytes()
    with pytest.raises(Refusal, match=str(journal)) as refusal:
        async with Supervisor(config):
            pytest.fail("it has no journal")
    assert refusal.value.info.code is ErrorCode.JOURNAL_UNAVAILABLE
    assert "corrupt" in str(refusal.value) or damage == "a folder"
    if left is not None:
        assert journal.read_bytes() == left


@pytest.mark.parametrize("what", ["state folder", "journal"])
async def test_a_build_whose_state_folder_is_removed_goes_on_and_leaves_nothing(
    config: SupervisorConfig, play: Play, what: str
) -> None:
    state = config.state_dir
    async with Supervisor(config) as supervisor:
        watcher = Watcher(supervisor)
        build = await watcher.start(play(PAUSE, recording="quick"))
        await watcher.until(build, PARSING)
        if what == "journal":
            for file in state.glob(f"{FILE_NAME}*"):
                file.unlink()
        else:
            shutil.rmtree(state)
        assert "removed" in str(await refused(watcher, play(recording="quick")))
        ended = await watcher.end(build)
        assert ended.state is State.SUCCEEDED
        assert any("journal" in note for note in ended.notes or [])
        await supervisor.log(build)
        with suppress(Refusal):
            # An open file outlives its name: a list may still be answered.
            await supervisor.list_builds()
    async with Supervisor(config) as supervisor:
        watcher = Watcher(supervisor)
        build = await watcher.start(play(recording="quick"))
        assert (await watcher.end(build)).state is State.SUCCEEDED
