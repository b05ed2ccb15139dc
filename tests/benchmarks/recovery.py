"""How long a supervisor takes to start on a full journal, and to list what is in it."""

import json
import secrets
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copy
from time import perf_counter

import anyio

from tests.benchmarks.harness import Place, Row, middle, percentile, print_table, workplace
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.store.journal import Journal
from trt_agent_tools.store.records import BuildAccepted, BuildEnded, BuildStarted, Record
from trt_agent_tools.store.stored import StoredBuild
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.process.identity import Owner
from trt_agent_tools.supervisor.service import Supervisor

BUILDS = 10_000
UNFINISHED = 20
"""So many of them were under way when their supervisor died."""
AT_ONCE = 200
STARTS = 5
LISTS = 100
COMMITS = 200
GONE = Owner(pid=1, started=0.0, boot_id="of another boot")
REPLAY = Path(__file__).parents[1] / "data" / "quick.jsonl"


async def one_build(supervisor: Supervisor) -> str:
    """Build once, really, as the pattern of the rest."""
    snapshot = await supervisor.start(StartRequest(model="quick.jsonl", backend=Backend.REPLAY))
    while not snapshot.ended:
        snapshot = await supervisor.progress(snapshot.build_id, wait_s=30, since_seq=snapshot.seq)
    assert snapshot.state is State.SUCCEEDED, snapshot
    return snapshot.build_id


def copy_of(pattern: StoredBuild, root: Path, *, is_ended: bool) -> list[Record]:
    """Return the records of another build like `pattern`."""
    build_id = f"b_{secrets.token_hex(8)}"
    order = json.loads(pattern.order.replace(pattern.build_id, build_id))
    order["output"] = str(root / f"{build_id}.engine")
    order["manifest"] = f"{order['output']}.json"
    records: list[Record] = [
        BuildAccepted(
            build_id=build_id,
            session_id=pattern.session_id,
            owner=pattern.owner,
            idempotency_key=None,
            created_at=pattern.created_at,
            wall=pattern.wall,
            supervisor=GONE.model_dump_json(),
            request=pattern.request,
            order=json.dumps(order),
            facts=pattern.facts.replace(pattern.build_id, build_id),
            policy=pattern.policy,
            snapshot=pattern.snapshot.replace(pattern.build_id, build_id),
        ),
        BuildStarted(build_id, pattern.wall, "cpu", None, secrets.token_hex(16), None),
    ]
    if is_ended:
        records.append(
            BuildEnded(
                build_id=build_id,
                at=pattern.ended_at or 0.0,
                wall=pattern.ended_wall or pattern.wall,
                state=State.SUCCEEDED,
                reason=Reason.COMPLETED,
                gpu_s=pattern.gpu_s,
                snapshot=pattern.snapshot.replace(pattern.build_id, build_id),
            )
        )
    return records


async def fill(place: Place, pattern: StoredBuild, number: int, *, are_ended: bool) -> list[float]:
    """Add builds to the journal, with their folders; return how long each commit took, in ms."""
    took = []
    journal = await Journal.open(place.state)
    for first in range(0, number, AT_ONCE):
        records: list[Record] = []
        for _ in range(min(AT_ONCE, number - first)):
            new = copy_of(pattern, place.root, is_ended=are_ended)
            records += new
            accepted = new[0]
            assert isinstance(accepted, BuildAccepted)
            (place.state / "builds" / accepted.build_id).mkdir()
        asked = perf_counter()
        await journal.write(*records)
        took.append(1000 * (perf_counter() - asked))
    await journal.aclose()
    return took


async def commits(place: Place, pattern: StoredBuild) -> list[float]:
    """Return how long single commits take, in ms."""
    took = []
    journal = await Journal.open(place.state)
    accepted = copy_of(pattern, place.root, is_ended=False)
    await journal.write(*accepted)
    start = accepted[0]
    assert isinstance(start, BuildAccepted)
    for _ in range(COMMITS):
        again = replace(start, build_id=f"b_{secrets.token_hex(8)}")
        asked = perf_counter()
        await journal.write(again)
        took.append(1000 * (perf_counter() - asked))
    await journal.aclose()
    return took


async def main(builds: int) -> None:
    """Print the table."""
    with workplace() as place:
        copy(REPLAY, place.root)
        config = SupervisorConfig(place.state, (place.root,), enable_replay=True)
        async with Supervisor(config) as supervisor:
            build_id = await one_build(supervisor)
        empty = perf_counter()
        async with Supervisor(config) as supervisor:
            empty = 1000 * (perf_counter() - empty)
        journal = await Journal.open(place.state)
        pattern = await journal.build(build_id)
        await journal.aclose()
        assert pattern
        singly = await commits(place, pattern)
        async with Supervisor(config):
            pass
        await fill(place, pattern, builds - UNFINISHED - COMMITS - 2, are_ended=True)
        starts, twenty, many, filtered = [], [], [], []
        await fill(place, pattern, UNFINISHED, are_ended=False)
        for _ in range(STARTS):
            asked = perf_counter()
            async with Supervisor(config) as supervisor:
                starts.append(1000 * (perf_counter() - asked))
        async with Supervisor(config) as supervisor:
            for _ in range(LISTS):
                asked = perf_counter()
                await supervisor.list_builds(limit=20)
                twenty.append(1000 * (perf_counter() - asked))
                asked = perf_counter()
                await supervisor.list_builds(state=State.LOST)
                filtered.append(1000 * (perf_counter() - asked))
            for _ in range(LISTS // 10):
                asked = perf_counter()
                listed = await supervisor.list_builds(limit=500)
                many.append(1000 * (perf_counter() - asked))
            listed = await supervisor.list_builds(limit=1)
            total = listed.left_out + len(listed.builds)
            health = supervisor._journal.health
        print_table(
            f"A journal with {total:,} builds ({health.bytes / (1 << 20):.0f} MiB)",
            [
                Row("start on an empty journal", empty, "ms"),
                Row(f"start with {UNFINISHED} builds to recover", starts[0], "ms", 1000),
                middle("start with none to recover", starts[1:], "ms", 1000),
                middle("list_builds, 20", twenty, "ms", 20),
                Row("list_builds, 20, p99", percentile(twenty, 0.99), "ms", 20),
                middle("list_builds, 20 that are lost", filtered, "ms", 20),
                middle("list_builds, 500", many, "ms"),
                Row("commit, p50", percentile(singly, 0.5), "ms"),
                Row("commit, p99", percentile(singly, 0.99), "ms"),
            ],
        )


if __name__ == "__main__":
    anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else BUILDS)
