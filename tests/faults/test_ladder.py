"""Cancelling whatever the builder does: which rung ends it, and that nothing of it is left."""

import re
from pathlib import Path

import anyio
import psutil
import pytest

from tests.faults.conftest import Action, Play, Supervise
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.supervisor.process import ladder
from trt_agent_tools.supervisor.process.process_tree import ProcessTree

pytestmark = pytest.mark.anyio

SILENT = ("Determining refit engines",)


async def test_a_responsive_build_ends_by_being_asked(supervise: Supervise, play: Play) -> None:
    async with supervise() as watcher:
        build = await watcher.start(play({"at": 0.02, "do": "burn_cpu", "for_s": 0.1}))
        await watcher.until(build)
        ended = await watcher.cancel(build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.USER_REQUEST)
    assert ended.ended_by is Rung.ASK


async def test_the_silent_step_ends_by_sigterm(supervise: Supervise, play: Play) -> None:
    async with supervise() as watcher:
        build = await watcher.start(play(speed=5))
        await watcher.until(build, SILENT)
        ended = await watcher.cancel(build)
    assert ended.state is State.CANCELLED
    assert ended.ended_by is Rung.TERMINATE


async def test_a_worker_that_ignores_sigterm_is_killed(supervise: Supervise, play: Play) -> None:
    async with supervise() as watcher:
        build = await watcher.start(play({"at": 0, "do": "ignore_sigterm"}, speed=5))
        await watcher.until(build, SILENT)
        ended = await watcher.cancel(build)
    assert ended.state is State.CANCELLED
    assert ended.ended_by is Rung.KILL


async def test_a_stopped_worker_is_killed_without_waiting_for_what_it_cannot_do(
    supervise: Supervise, play: Play
) -> None:
    graces = '[escalation]\ncancel_grace = "1h"\nterminate_grace = "1h"\n'
    async with supervise(graces) as watcher:
        build = await watcher.start(play({"at": 1.3, "do": "stop_self"}, speed=5))
        await watcher.until(build, SILENT)
        (worker,) = [
            process
            for process in psutil.Process().children()
            if "trt_agent_tools.worker" in process.cmdline()
        ]
        while worker.status() != psutil.STATUS_STOPPED:
            await watcher.service.progress(build)
        ended = await watcher.cancel(build)
    assert ended.state is State.CANCELLED
    assert ended.ended_by is Rung.KILL


@pytest.mark.parametrize("new_session", [False, True])
async def test_a_grandchild_ends_with_the_build_also_in_a_session_of_its_own(
    supervise: Supervise, play: Play, new_session: bool
) -> None:
    action: Action = {
        "at": 0.1,
        "do": "grandchild",
        "new_session": new_session,
        "ignore_sigterm": True,
    }
    async with supervise() as watcher:
        build = await watcher.start(play(action, speed=5))
        await watcher.until(build, SILENT)
        log = await watcher.service.log(build)
        pids = [int(pid) for line in log.lines for pid in re.findall(r"pid (\d+)", line.text)]
        assert pids
        ended = await watcher.cancel(build)
        assert ended.state is State.CANCELLED
        assert not any(psutil.pid_exists(pid) and _runs(pid) for pid in pids)


async def test_a_grandchild_ends_also_when_its_build_succeeds(
    supervise: Supervise, play: Play
) -> None:
    async with supervise() as watcher:
        build = await watcher.start(
            play({"at": 0.1, "do": "grandchild", "new_session": True}, recording="quick")
        )
        ended = await watcher.end(build)
    assert ended.state is State.SUCCEEDED


async def test_asking_at_once_needs_no_grace(supervise: Supervise, play: Play) -> None:
    graces = '[escalation]\ncancel_grace = "1h"\nterminate_grace = "1h"\n'
    async with supervise(graces) as watcher:
        build = await watcher.start(play({"at": 0, "do": "ignore_sigterm"}, speed=5))
        await watcher.until(build, SILENT)
        cancelling = await watcher.service.cancel(build)
        assert cancelling.state is State.CANCELLING
        ended = await watcher.cancel(build, at_once=True)
    assert ended.ended_by is Rung.KILL


async def test_an_engine_that_was_complete_before_the_cancel_is_kept(
    supervise: Supervise, play: Play, root: Path
) -> None:
    graces = '[escalation]\ncancel_grace = "10s"\nterminate_grace = "10s"\n'
    async with supervise(graces) as watcher:
        build = await watcher.start(play({"at": 0, "do": "finish_late"}, recording="quick"))
        await watcher.until(build)
        ended = await watcher.cancel(build)
    assert (ended.state, ended.reason) == (State.SUCCEEDED, Reason.COMPLETED)
    assert ended.ended_by is None
    assert ended.notes
    assert any("engine was kept" in note for note in ended.notes)
    assert ended.result
    assert Path(ended.result.engine).stat().st_size == ended.result.bytes


async def test_cancelling_twice_keeps_the_first_reason_and_ends_once(
    supervise: Supervise, play: Play
) -> None:
    async with supervise() as watcher:
        build = await watcher.start(play(speed=5))
        await watcher.until(build, SILENT)
        await watcher.service.cancel(build, reason="first")
        await watcher.service.cancel(build, reason="second")
        ended = await watcher.end(build)
    assert ended.state is State.CANCELLED
    assert ended.notes == ["Cancel asked for: first"]


async def test_the_queue_goes_on_after_a_cancel(supervise: Supervise, play: Play) -> None:
    async with supervise() as watcher:
        first = await watcher.start(play(speed=5))
        second = await watcher.start(play(recording="quick"))
        await watcher.until(first, SILENT)
        await watcher.cancel(first)
        assert (await watcher.end(second)).state is State.SUCCEEDED


async def test_an_end_that_is_not_proven_is_not_claimed_and_the_device_stays_out_of_service(
    supervise: Supervise, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process stuck in the kernel cannot be made on demand: here no signal reaches it.
    monkeypatch.setattr(ladder, "PROOF_S", 0.5)
    async with supervise() as watcher:
        with monkeypatch.context() as deaf:
            deaf.setattr(ProcessTree, "send", lambda _tree, _number: None)
            stuck = await watcher.start(play({"at": 1.2, "do": "hang_idle"}, speed=5))
            waiting = await watcher.start(play(recording="quick"))
            await watcher.until(stuck, SILENT)
            await watcher.service.cancel(stuck)
            snapshot = await watcher.service.progress(stuck)
            with anyio.fail_after(15):
                while not snapshot.notes:
                    snapshot = await watcher.service.progress(
                        stuck, wait_s=5, since_seq=snapshot.seq
                    )
            assert snapshot.state is State.CANCELLING
            assert "still there after SIGKILL" in snapshot.notes[-1]
            assert (await watcher.service.progress(waiting)).state is State.QUEUED
        # The process goes after all: the build is over, and its device serves again.
        (worker,) = [
            process
            for process in psutil.Process().children()
            if "trt_agent_tools.worker" in process.cmdline()
        ]
        worker.kill()
        ended = await watcher.end(stuck)
        assert (ended.state, ended.ended_by) == (State.CANCELLED, Rung.KILL)
        assert (await watcher.end(waiting)).state is State.SUCCEEDED


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
