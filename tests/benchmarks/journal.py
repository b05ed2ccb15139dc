"""What the journal costs: commits of one writer and of many at once, and reading among 10,000 builds.

The file is in the folder for temporary files: TMPDIR chooses the disk. What that disk takes to make
12 KiB durable is printed beside: a commit is one such write, and two threads' turns.
"""

import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

import anyio

from tests.benchmarks.harness import Row, percentile, print_table, spread
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.store.journal import FILE_NAME, Journal
from trt_agent_tools.store.records import (
    BuildAccepted,
    BuildEnded,
    BuildStarted,
    Happened,
    Progressed,
    Record,
    SessionOpened,
)

BUILDS = 10_000
UNFINISHED = 200
SESSIONS = 20
OWNER = "local"
COMMITS = 1000
WRITERS = 20
READS = 20
PROGRESS_FOR_S = 5.0
PAGE = 20
LONGEST_PAGE = 500
NOTES = 4
"""Events of each build beside its start and end: state changes, verdicts, notes."""

FACTS = json.dumps({"model": "/home/somebody/models/m.onnx", "padding": "x" * 400})
DOCUMENT = json.dumps({"model": "m.onnx", "options": {"padding": "x" * 1000}})
POLICY = json.dumps({"rules": "x" * 1500})
SNAPSHOT = json.dumps({"state": "succeeded", "phases": "x" * 8000})


def session(number: int) -> SessionOpened:
    """Return a session's record."""
    return SessionOpened(
        session_id=f"s_{number}",
        owner=OWNER,
        label=None,
        policy=POLICY,
        budget_s=3600.0,
        concurrent_builds=1,
        queued_builds=10,
        extension_left_s=600.0,
        created_at="2026-01-01T00:00:00+00:00",
        is_default=number == 0,
    )


def accepted(number: int) -> BuildAccepted:
    """Return the first record of a build."""
    return BuildAccepted(
        build_id=f"b_{number:016x}",
        session_id=f"s_{number % SESSIONS}",
        owner=OWNER,
        idempotency_key=f"key {number}",
        created_at="2026-01-01T00:00:00+00:00",
        wall=time.time(),
        supervisor='{"pid": 1, "started": 2.0, "boot_id": "x"}',
        request=DOCUMENT,
        order=DOCUMENT,
        facts=FACTS,
        policy=POLICY,
        snapshot=SNAPSHOT,
    )


def story(number: int) -> list[Record]:
    """Return the records of a build, without its end for the last ones."""
    first = accepted(number)
    build_id, wall = first.build_id, first.wall
    records: list[Record] = [
        first,
        BuildStarted(build_id, wall, "cpu", 1000 + number, "token", 60.0),
        *(Happened(build_id, 1.0 + at, "note", '{"text": "x"}') for at in range(NOTES)),
    ]
    if number < BUILDS - UNFINISHED:
        end = BuildEnded(build_id, 5.0, wall + 5, State.SUCCEEDED, Reason.COMPLETED, 4.5, SNAPSHOT)
        records.append(end)
    return records


def floor(folder: Path) -> list[float]:
    """Return the milliseconds of appending 12 KiB to a file and syncing it."""
    took = []
    with (folder / "floor").open("wb", buffering=0) as file:
        for _ in range(200):
            before = time.perf_counter()
            file.write(b"x" * 12_288)
            os.fdatasync(file.fileno())
            took.append(1000 * (time.perf_counter() - before))
    return took


async def clocked(call: Callable[[], Awaitable[object]]) -> float:
    """Return the milliseconds of one call."""
    before = time.perf_counter()
    await call()
    return 1000 * (time.perf_counter() - before)


async def repeated(call: Callable[[], Awaitable[object]], times: int = READS) -> list[float]:
    """Return the milliseconds of each of some calls."""
    return [await clocked(call) for _ in range(times)]


def note(number: int) -> Happened:
    """Return an event of a build."""
    return Happened(f"b_{number:016x}", 1.0, "note", '{"text": "x"}')


async def commits(journal: Journal, writers: int) -> tuple[list[float], float]:
    """Return the milliseconds of each write and the writes a second, `writers` at once."""
    took: list[float] = []

    async def write(writer: int) -> None:
        call = partial(journal.write, note(writer))
        took.extend(await repeated(call, COMMITS // writers))

    before = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for writer in range(writers):
            tasks.start_soon(write, writer)
    return took, COMMITS / (time.perf_counter() - before)


async def commits_beside(
    journal: Journal, other: Callable[[], Awaitable[object]], for_s: float
) -> list[float]:
    """Return the milliseconds of writes that are made while `other` runs, for some time at most."""
    took: list[float] = []
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            with anyio.move_on_after(for_s):
                await other()
            tasks.cancel_scope.cancel()

        tasks.start_soon(run)
        while True:
            took.append(await clocked(partial(journal.write, note(BUILDS - 1))))
    return took


async def tell_progress(journal: Journal) -> None:
    """Tell of the progress of each live build once a second."""
    while True:
        for number in range(BUILDS - UNFINISHED, BUILDS):
            journal.write_soon(Progressed(f"b_{number:016x}", time.time(), 1.0, SNAPSHOT))
        await anyio.sleep(1)


def latency(what: str, took: list[float]) -> list[Row]:
    """Return the rows of one kind of write."""
    return [
        Row(f"{what}: p50", median(took), "ms", remark=spread(took)),
        Row(f"{what}: p99", percentile(took, 0.99), "ms"),
    ]


async def writing(journal: Journal) -> list[Row]:
    """Measure commits into a full journal."""
    alone, alone_rate = await commits(journal, 1)
    together, rate = await commits(journal, WRITERS)
    beside = await commits_beside(journal, partial(tell_progress, journal), PROGRESS_FOR_S)
    return [
        *latency("commit, one writer", alone),
        *latency(f"commit, {WRITERS} writers at once", together),
        *latency(f"commit, {UNFINISHED} builds telling of their progress", beside),
        Row("commits a second, one writer", alone_rate, "", digits=0),
        Row(f"writes a second, {WRITERS} writers", rate, "", digits=0),
    ]


async def reading(journal: Journal) -> list[Row]:
    """Measure what is asked of a full journal."""
    state, session_id = State.SUCCEEDED, "s_1"
    rows = []
    for name, ask in (("builds", journal.builds), ("summaries", journal.summaries)):
        for limit in (PAGE, LONGEST_PAGE):
            # The longest page of whole builds is some 6 MB of text: for information.
            most = None if (name, limit) == ("builds", LONGEST_PAGE) else 20.0
            for what, call in (
                ("", partial(ask, owner=OWNER, limit=limit)),
                (", a state", partial(ask, owner=OWNER, limit=limit, state=state)),
                (
                    ", a session's",
                    partial(ask, owner=OWNER, limit=limit, session_id=session_id, state=state),
                ),
            ):
                took = await repeated(call)
                rows.append(
                    Row(f"{name}(limit={limit}){what}", median(took), "ms", most, 2, spread(took))
                )
    for name, other in (
        ("build()", partial(journal.build, f"b_{77:016x}")),
        ("by_key()", partial(journal.by_key, OWNER, "key 77")),
        ("events()", partial(journal.events, f"b_{77:016x}")),
        ("sessions()", journal.sessions),
        ("check()", journal.check),
    ):
        took = await repeated(other)
        rows.append(Row(name, median(took), "ms", None, 2, spread(took)))
    return rows


async def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory(prefix="trt-agent-tools-benchmark-") as name:
        folder = Path(name)
        path = folder / FILE_NAME
        journal = await Journal.open(folder)
        await journal.write(*map(session, range(SESSIONS)))
        for number in range(0, BUILDS, 50):
            told = [record for one in range(number, number + 50) for record in story(one)]
            await journal.write(*told)
        rows = [*latency("the disk alone", floor(folder)), *await writing(journal)]
        largest = journal.health.bytes / 1e6
        await journal.aclose()
        size = path.stat().st_size / 1e6

        before = time.perf_counter()
        journal = await Journal.open(folder)
        opened = 1000 * (time.perf_counter() - before)
        live = await clocked(journal.unfinished)
        await journal.sessions()
        recovered = 1000 * (time.perf_counter() - before)
        reads = [
            Row("open(), the file read through", opened, "ms"),
            Row(f"unfinished(), {UNFINISHED} of them", live, "ms"),
            Row("open, unfinished() and sessions(): recovery", recovered, "ms", 1000),
            *await reading(journal),
        ]
        prune = partial(journal.prune, keep_builds=BUILDS // 2)
        before = time.perf_counter()
        pruned = await commits_beside(journal, prune, 60)
        took_s = time.perf_counter() - before
        await journal.aclose()
        rest = path.stat().st_size / 1e6
    print_table(f"Journal: writing, {BUILDS:,} builds in it", rows)
    print_table(f"Journal: reading, {BUILDS:,} builds in it", reads)
    print_table(
        f"Journal: size, and half of the builds pruned, with {NOTES} notes and {len(SNAPSHOT):,} "
        "bytes of snapshot a build",
        [
            Row("file", size, "MB", digits=0),
            Row("file and write-ahead log at most", largest, "MB", digits=0),
            Row("file with half of the builds", rest, "MB", digits=0),
            Row("prune()", took_s, "s"),
            *latency("commit while pruning", pruned),
        ],
    )


if __name__ == "__main__":
    anyio.run(main)
