"""Many builds, many readers, many events, and a clock that steps: every state stays true."""

import sys
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles

import anyio
import pytest

from tests.faults.conftest import GRACES, Action, Play, Supervise
from tests.faults.invariants import assert_ledger
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.supervisor.process import launch
from trt_agent_tools.supervisor.shares import LOCAL

pytestmark = pytest.mark.anyio

QUEUED = 500
RUN = 6
"""So many of the crowd are left to run: each is a process, and one device runs one at a time."""
SECONDS = 90
POLLERS = 64
CROWD_POLICY = f"{GRACES}[session]\nqueued_builds = 600\n"
DAY_S = 86_400.0
FLOOD_BYTES = 100_000_000
PAUSE_S = 0.01
LAG_S = 5.0


async def test_500_queued_builds_half_of_them_cancelled_all_end_truly(
    supervise: Supervise, play: Play
) -> None:
    quick = play(recording="quick", speed=1000)
    blocker = play({"at": 0.07, "do": "hang_idle"}, recording="quick")
    began = time.monotonic()
    async with supervise(CROWD_POLICY) as watcher:
        service = watcher.service
        first = await watcher.start(blocker)
        await watcher.until(first, ("Parsing",))
        crowd = [
            await watcher.start(quick.model_copy(update={"output": f"crowd{number}.engine"}))
            for number in range(QUEUED)
        ]
        accepted = time.monotonic() - began
        assert Counter(b.state for b in (await service.list_builds(limit=500)).builds) == {
            State.QUEUED: QUEUED
        }
        cancelled, rest = crowd[::2], crowd[1::2]
        async with anyio.create_task_group() as tasks:
            for build in cancelled:
                tasks.start_soon(service.cancel, build)
        for build in cancelled:
            assert (await watcher.end(build)).state is State.CANCELLED
        # The device is free for the other half.
        await watcher.cancel(first, at_once=True)
        for build in rest[:RUN]:
            assert (await watcher.end(build, within_s=SECONDS)).state is State.SUCCEEDED
        async with anyio.create_task_group() as tasks:
            for build in rest[RUN:]:
                tasks.start_soon(service.cancel, build)
        ends = Counter([(await watcher.end(build)).state for build in rest])
        assert ends[State.SUCCEEDED] >= RUN
        assert ends[State.SUCCEEDED] + ends[State.CANCELLED] == len(rest)
        stored, _ = await service._journal.builds(owner=LOCAL, limit=1000)
        assert len(stored) == QUEUED + 1
        assert all(build.ended for build in stored)
        await assert_ledger(service)
    took = time.monotonic() - began
    print(f"\n{QUEUED} queued in {accepted:.1f} s, ended in {took:.1f} s: {dict(ends)}")
    assert took < SECONDS


async def test_64_readers_see_every_build_start_and_end_without_an_error(
    supervise: Supervise, play: Play
) -> None:
    latencies: list[float] = []
    over = anyio.Event()
    builds: list[str] = []
    last: dict[tuple[int, str], Snapshot] = {}

    async with supervise(CROWD_POLICY) as watcher:
        service = watcher.service

        async def read(number: int) -> None:
            while not over.is_set():
                for build_id in tuple(builds):
                    before = last.get((number, build_id))
                    if before and before.ended:
                        continue
                    asked = time.perf_counter()
                    snapshot = await service.progress(build_id)
                    latencies.append(time.perf_counter() - asked)
                    assert before is None or snapshot.seq >= before.seq
                    last[number, build_id] = snapshot
                    wait_s = 0.2 if number % 2 else 0.0
                    await service.progress(build_id, wait_s=wait_s, since_seq=snapshot.seq)
                asked = time.perf_counter()
                await service.list_builds(limit=20)
                latencies.append(time.perf_counter() - asked)
                await anyio.sleep(0.05)

        async with anyio.create_task_group() as tasks:
            for number in range(POLLERS):
                tasks.start_soon(read, number)
            for number in range(6):
                crash: list[Action] = [{"at": 0.1, "do": "crash"}] if number % 3 == 2 else []
                build = await watcher.start(play(*crash, recording="quick"))
                builds.append(build)
                if number % 3 == 1:
                    await service.cancel(build)
            ends = [(await watcher.end(build, within_s=60)).state for build in builds]
            over.set()
        await assert_ledger(service)
    assert ends == [State.SUCCEEDED, State.CANCELLED, State.FAILED] * 2
    cuts = quantiles(latencies, n=100)
    print(
        f"\n{POLLERS} readers, {len(latencies)} answers: "
        f"p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms"
    )


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S], ids=["ahead", "back"])
async def test_a_clock_that_steps_fires_no_rule_and_keeps_the_order(
    supervise: Supervise, play: Play, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    policy = f"""{GRACES}
[rules]
build_time = {{ limit = "1h" }}
gpu_time = {{ limit = "1h" }}
step_stall = {{ limit = "1h" }}
unattended = {{ limit = "1h" }}
"""
    real = time.time
    pause: Action = {"at": 0.07, "do": "hang_idle", "for_s": 1.0}
    async with supervise(policy) as watcher:
        before = await watcher.start(play(recording="quick"))
        await watcher.end(before)
        build = await watcher.start(play(pause, recording="quick"))
        await watcher.until(build, ("Parsing",))
        # The real clock is the whole host's; this is all that the supervisor reads of it.
        monkeypatch.setattr(time, "time", lambda: real() + step_s)
        after = await watcher.start(play(recording="quick"))
        for build_id in (build, after):
            ended = await watcher.end(build_id)
            assert ended.state is State.SUCCEEDED
            assert not ended.verdicts
            assert ended.gpu_s is not None
            assert ended.gpu_s < SECONDS
        listed = await watcher.service.list_builds()
        assert [each.build_id for each in listed.builds] == [after, build, before]
        events = await watcher.service._journal.events(build)
        assert [event.at for event in events] == sorted(event.at for event in events)
        await assert_ledger(watcher.service)
        spent = (await watcher.service.session()).spent_s
        assert spent < SECONDS
    async with supervise(policy) as watcher:
        listed = await watcher.service.list_builds()
        assert [each.build_id for each in listed.builds] == [after, build, before]
        for each in listed.builds:
            assert each.elapsed_s < SECONDS


async def test_100_mb_of_events_leave_a_true_snapshot_and_a_responsive_supervisor(
    supervise: Supervise, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervise() as watcher:
        with monkeypatch.context() as flooded:
            script = str(Path(__file__).with_name("flooding_worker.py"))
            flooded.setattr(launch, "WORKER", (sys.executable, script, str(FLOOD_BYTES)))
            build = await watcher.start(play(recording="quick"))
            await watcher.until(build, ("a phase",))
        following = await watcher.start(play(recording="quick"))
        slowest = 0.0
        with anyio.fail_after(120):
            while not (await watcher.service.progress(build)).ended:
                asked = time.perf_counter()
                await anyio.sleep(PAUSE_S)
                await watcher.service.progress(build)
                slowest = max(slowest, time.perf_counter() - asked - PAUSE_S)
        ended = await watcher.end(build)
        assert (await watcher.end(following)).state is State.SUCCEEDED
        await assert_ledger(watcher.service)
    assert (ended.state, ended.reason) == (State.FAILED, Reason.BUILDER_ERROR)
    assert ended.error
    sent = int(ended.error.message.split()[0])
    assert sent >= FLOOD_BYTES
    assert len(ended.model_dump_json()) < 2_000_000
    print(f"\n{sent / 1e6:.0f} MB of events; slowest answer meanwhile: {slowest * 1000:.0f} ms")
    assert slowest < LAG_S
