"""A supervisor under a long random load: `python -m tests.benchmarks.soak MINUTES` (2 without).

Replays start, succeed, fail, crash and are cancelled at random, with readers that poll and wait. Printed
are memory, descriptors, threads and latencies when it is warm and at the end.
"""

import json
import random
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import anyio
import psutil

from tests.benchmarks.harness import Place, Row, percentile, print_table, workplace
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.states import State
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

READERS = 32
WAITING = 6
"""So many builds wait or run at once, about."""
WARM_SHARE = 0.2
"""After so much of the time the supervisor is warm."""
KEPT = 30
"""So many of the newest builds are read."""
MIB = 1 << 20
REPLAY = Path(__file__).parents[1] / "data" / "quick.jsonl"
POLICY = """[escalation]
cancel_grace = "300ms"
terminate_grace = "300ms"
[session]
queued_builds = 64
"""
CHAOS = random.Random(7)  # noqa: S311  (a load, not a secret)

Action = dict[str, str | float]
WAYS: dict[str, tuple[Action, ...]] = {
    "succeeds": (),
    "fails": ({"at": 0.1, "do": "fail"},),
    "crashes": ({"at": 0.1, "do": "crash"},),
    "exits": ({"at": 0.15, "do": "exit"},),
    "hangs": ({"at": 0.12, "do": "hang_idle", "for_s": 3},),
    "deaf": ({"at": 0, "do": "ignore_sigterm"}, {"at": 0.12, "do": "hang_idle", "for_s": 3}),
    "garbage": ({"at": 0.1, "do": "garbage"},),
    "grandchild": ({"at": 0.1, "do": "grandchild", "new_session": "yes"},),
}


@dataclass(frozen=True)
class Measured:
    """The supervisor's process at one moment, and the latencies before it, in ms."""

    rss: float
    uss: float
    descriptors: int
    threads: int
    children: int
    journal: float
    p50: float
    p99: float


@dataclass
class Load:
    """A supervisor, what was started on it, and what was seen."""

    supervisor: Supervisor
    place: Place
    newest: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=20_000))
    started: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    async def start_builds(self) -> None:
        """Start builds of every kind, as fast as they end."""
        for number in count():
            live = 0
            for state in (State.QUEUED, State.STARTING, State.BUILDING, State.CANCELLING):
                live += len((await self.supervisor.list_builds(state=state)).builds)
            if live >= WAITING:
                await anyio.sleep(0.05)
                continue
            way = CHAOS.choice([*WAYS])
            request = StartRequest(
                model=f"{way}.jsonl", output=f"{number}.engine", backend=Backend.REPLAY, label=way
            )
            self.newest.append((await self.supervisor.start(request)).build_id)
            self.started += 1
            if number > KEPT:
                for name in (f"{number - KEPT}.engine", f"{number - KEPT}.engine.json"):
                    (self.place.root / name).unlink(missing_ok=True)

    async def cancel_builds(self) -> None:
        """Cancel one of the newest builds now and then."""
        while True:
            await anyio.sleep(CHAOS.uniform(0.1, 1.0))
            if self.newest:
                at_once = CHAOS.random() < 0.2
                await self.supervisor.cancel(CHAOS.choice(self.newest), at_once=at_once)

    async def read(self) -> None:
        """Read as agents do: polls, waits, lists, logs."""
        while True:
            await anyio.sleep(CHAOS.uniform(0.0, 0.2))
            if not self.newest:
                continue
            build_id = CHAOS.choice(self.newest)
            asked = time.perf_counter()
            snapshot = await self.supervisor.progress(build_id)
            await anyio.lowlevel.checkpoint()
            self.latencies.append(1000 * (time.perf_counter() - asked))
            also = CHAOS.random()
            if also < 0.3:
                await self.supervisor.progress(build_id, wait_s=1.0, since_seq=snapshot.seq)
            elif also < 0.4:
                await self.supervisor.list_builds()
            elif also < 0.5:
                await self.supervisor.log(build_id)

    async def measure(self) -> Measured:
        """Measure this process."""
        process = psutil.Process()
        memory = await anyio.to_thread.run_sync(process.memory_full_info)
        recent = list(self.latencies)
        return Measured(
            memory.rss / MIB,
            memory.uss / MIB,
            process.num_fds(),
            process.num_threads(),
            len(process.children(recursive=True)),
            self.supervisor._journal.health.bytes / MIB,
            percentile(recent, 0.5),
            percentile(recent, 0.99),
        )


def write_recordings(place: Place) -> None:
    """Write an event file for every way in which a build may go."""
    for way, actions in WAYS.items():
        told = [
            {key: True if value == "yes" else value for key, value in action.items()}
            for action in actions
        ]
        settings = json.dumps({"type": "replay", "speed": 5, "actions": told})
        (place.root / f"{way}.jsonl").write_text(f"{settings}\n{REPLAY.read_text()}")


async def quiet(load: Load) -> None:
    """Wait for every build's end."""
    for state in (State.QUEUED, State.STARTING, State.BUILDING, State.CANCELLING):
        for build in (await load.supervisor.list_builds(state=state, limit=100)).builds:
            while not (await load.supervisor.progress(build.build_id, wait_s=20)).ended:
                continue


async def main(minutes: float) -> None:
    """Print the table."""
    with workplace() as place:
        write_recordings(place)
        policy = place.root / "policy.toml"
        policy.write_text(POLICY)
        config = SupervisorConfig(
            place.state, (place.root,), policy=str(policy), enable_replay=True
        )
        async with Supervisor(config) as supervisor:
            load = Load(supervisor, place)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load.start_builds)
                tasks.start_soon(load.cancel_builds)
                for _ in range(READERS):
                    tasks.start_soon(load.read)
                await anyio.sleep(60 * minutes * WARM_SHARE)
                warm = await load.measure()
                warm_builds = load.started
                await anyio.sleep(60 * minutes * (1 - WARM_SHARE))
                late = await load.measure()
                tasks.cancel_scope.cancel()
            await quiet(load)
            after = await load.measure()
            for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.LOST):
                listed = await supervisor.list_builds(state=state, limit=1)
                load.ends[state.value] = len(listed.builds) + listed.left_out
    ends = ", ".join(f"{number} {state}" for state, number in load.ends.items())
    print_table(
        f"{minutes:g} minutes, {load.started} builds ({ends}), {READERS} readers; "
        f"warm after {warm_builds} builds",
        [
            Row("resident, warm", warm.rss, "MiB", None, 1),
            Row("resident, at the end", late.rss, "MiB", None, 1),
            Row("growth, memory of its own (USS)", late.uss - warm.uss, "MiB"),
            Row("descriptors, warm", warm.descriptors, "", None, 0),
            Row("descriptors, at the end", late.descriptors, "", None, 0),
            Row("descriptors, no build left", after.descriptors, "", None, 0),
            Row("threads, warm", warm.threads, "", None, 0),
            Row("threads, at the end", late.threads, "", None, 0),
            Row("children, no build left", after.children, "", 0, 0),
            Row("builds lost", load.ends[State.LOST.value], "", 0, 0),
            Row("journal, warm", warm.journal, "MiB"),
            Row("journal, at the end", late.journal, "MiB"),
            Row("get_progress, p50, warm", warm.p50, "ms"),
            Row("get_progress, p50, at the end", late.p50, "ms"),
            Row("get_progress, p99, warm", warm.p99, "ms"),
            Row("get_progress, p99, at the end", late.p99, "ms"),
        ],
    )


if __name__ == "__main__":
    anyio.run(main, float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
