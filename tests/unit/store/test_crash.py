"""Whatever was acknowledged is there after the process was killed, at whatever moment that was."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from trt_agent_tools.store.journal import FILE_NAME, Journal
from trt_agent_tools.store.queries import totals

pytestmark = pytest.mark.anyio

KILLS = 12
LIMIT_S = 30.0

WRITES = """\
import os, sys
from pathlib import Path
import anyio
from tests.unit.store.told import SESSION, accepted, ended, started
from trt_agent_tools.store.journal import Journal
from trt_agent_tools.store.records import Happened, Progressed

async def build(journal, build_id):
    for record in (
        accepted(build_id), started(build_id), Happened(build_id, 1.0, "note", "{}"), ended(build_id)
    ):
        await journal.write(record)
        # One write to a pipe: a whole line, or none.
        os.write(1, f"{type(record).__name__} {build_id}\\n".encode())
        journal.write_soon(Progressed(build_id, 0.0, 1.0, "x" * 5000))

async def main(folder, life):
    journal = await Journal.open(folder)
    await journal.write(SESSION)
    for number in range(100_000):
        async with anyio.create_task_group() as tasks:
            for lane in range(4):
                tasks.start_soon(build, journal, f"b_{life}_{number}_{lane}")

anyio.run(main, Path(sys.argv[1]), sys.argv[2])
"""

EXITS = """\
import sys
from pathlib import Path
import anyio
from tests.unit.store.told import SESSION
from trt_agent_tools.store.journal import Journal

async def main(folder):
    journal = await Journal.open(folder)
    await journal.write(SESSION)
    print("stored", flush=True)

anyio.run(main, Path(sys.argv[1]))
"""

KINDS = {
    "BuildAccepted": "accepted",
    "BuildStarted": "started",
    "Happened": "note",
    "BuildEnded": "ended",
}


async def lives_until(folder: Path, life: int, lines: int) -> list[str]:
    """Let a process write until it has acknowledged so much, kill it, and return what it said."""
    said = b""
    async with await anyio.open_process(
        [sys.executable, "-c", WRITES, str(folder), str(life)], stderr=None
    ) as process:
        assert process.stdout is not None
        with anyio.fail_after(LIMIT_S):
            while said.count(b"\n") < lines:
                said += await process.stdout.receive()
            process.send_signal(signal.SIGKILL)
            async for chunk in process.stdout:
                said += chunk
            assert await process.wait() == -signal.SIGKILL
    return said.decode().splitlines()


async def test_no_kill_loses_what_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: set[tuple[str, str]] = set()
    for life in range(KILLS):
        for line in await lives_until(tmp_path, life, 7 * life + 1):
            kind, build_id = line.split()
            acknowledged.add((KINDS[kind], build_id))
    assert len(acknowledged) > KILLS
    journal = await Journal.open(tmp_path)
    assert (await journal.check()).ok
    for kind, build_id in acknowledged:
        assert kind in [event.kind for event in await journal.events(build_id)]
    # And the account is that of the ends, acknowledged or not.
    builds, _ = await journal.builds(owner="local", limit=100_000)
    costs = [build.gpu_s for build in builds if build.ended and build.gpu_s is not None]
    (session,) = await journal.sessions()
    assert session.spent_s == pytest.approx(sum(costs))
    assert {claim.build_id for claim in session.reservations} == {
        build.build_id for build in builds if build.started_wall is not None and not build.ended
    }
    await journal.aclose()


async def test_a_killed_first_start_leaves_a_journal_that_opens(tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with await anyio.open_process(
            [sys.executable, "-c", WRITES, str(folder), "0"], stdout=subprocess.DEVNULL, stderr=None
        ) as process:
            with anyio.fail_after(LIMIT_S):
                # Somewhere in making the file, setting it up, and the first commits.
                while len([*folder.iterdir()]) <= number // 2:
                    assert process.returncode is None
                    await anyio.lowlevel.checkpoint()
            process.kill()
            await process.wait()
        journal = await Journal.open(folder)
        assert (await journal.check()).ok
        await journal.aclose()


async def test_a_process_that_forgets_to_close_still_ends(tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process([sys.executable, "-c", EXITS, str(tmp_path)], check=False)
    assert (done.returncode, done.stdout) == (0, b"stored\n")
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        assert totals(connection) == (0, 0, None)
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
    connection.close()
