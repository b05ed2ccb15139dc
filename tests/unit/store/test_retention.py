"""What is removed is old, over, and paid for."""

import sqlite3
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.unit.store.told import OWNER, SESSION, accepted, ended, started
from trt_agent_tools.store.journal import FILE_NAME, KEEP_BUILDS, KEEP_DAYS, Journal
from trt_agent_tools.store.records import VerdictRecorded

pytestmark = pytest.mark.anyio

COUNT = "SELECT 1 FROM {}"
DAY_S = 86_400.0
NOW = datetime.now(timezone.utc).isoformat(timespec="seconds")


async def left(journal: Journal) -> list[str]:
    found, _ = await journal.builds(owner=OWNER, limit=1000)
    return [build.build_id for build in reversed(found)]


async def spent(journal: Journal, session_id: str = "s_1") -> float:
    session = await journal.session(session_id)
    assert session is not None
    return session.spent_s


async def test_the_newest_builds_stay_and_what_the_others_cost(
    journal: Journal, tmp_path: Path
) -> None:
    await journal.write(SESSION, replace(SESSION, session_id="s_2"))
    for number in range(60):
        build_id = f"b_{number}"
        await journal.write(
            accepted(build_id, f"s_{1 + number % 2}"),
            started(build_id),
            VerdictRecorded(build_id, 1.0, "silent", "warned", "{}"),
        )
        if number not in {3, 50}:
            await journal.write(ended(build_id, 0.1 * number))
    before = await spent(journal), await spent(journal, "s_2")
    assert await journal.prune(keep_builds=10) == 49
    assert await left(journal) == ["b_3", *(f"b_{number}" for number in range(50, 60))]
    assert (await spent(journal), await spent(journal, "s_2")) == pytest.approx(before)
    assert await journal.events("b_2") == []
    assert await journal.build("b_2") is None
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        for table in ("builds", "documents", "snapshots", "verdicts"):
            assert len(connection.execute(COUNT.format(table)).fetchall()) == 11, table
    connection.close()
    # It goes on being charged once, and a second time nothing goes.
    assert await journal.prune(keep_builds=10) == 0
    await journal.write(ended("b_3", 7.0))
    assert await journal.prune(keep_builds=10) == 1
    assert await spent(journal, "s_2") == pytest.approx(before[1] + 7.0)


async def test_builds_that_ended_long_ago_go(journal: Journal) -> None:
    now = time.time()
    await journal.write(replace(SESSION, created_at=NOW))
    for number, age_days in enumerate((100, 91, 89, 0)):
        await journal.write(
            accepted(f"b_{number}"), ended(f"b_{number}", wall=now - age_days * DAY_S)
        )
    await journal.write(accepted("b_waits"))
    assert await journal.prune() == 2
    assert await left(journal) == ["b_2", "b_3", "b_waits"]
    assert (KEEP_BUILDS, KEEP_DAYS) == (10_000, 90)


async def test_old_sessions_without_builds_go_but_for_those_in_use(journal: Journal) -> None:
    await journal.write(
        replace(SESSION, session_id="s_default", is_default=True),
        replace(SESSION, session_id="s_in_use"),
        replace(SESSION, session_id="s_empty"),
        replace(SESSION, session_id="s_new", created_at=NOW),
        replace(SESSION, session_id="s_waits"),
        replace(SESSION, session_id="s_over"),
        accepted("b_1", "s_waits"),
        accepted("b_2", "s_over"),
        ended("b_2", wall=time.time() - 365 * DAY_S),
    )
    # Those of the tests were opened when this was written.
    days = (time.time() - datetime.fromisoformat(SESSION.created_at).timestamp()) / DAY_S
    assert await journal.prune(keep_days=days / 2, keep_sessions=["s_in_use"]) == 1
    kept = [session.session_id for session in await journal.sessions()]
    assert kept == ["s_default", "s_in_use", "s_new", "s_waits"]


async def test_removing_gives_space_back(journal: Journal, tmp_path: Path) -> None:
    await journal.write(SESSION)
    for number in range(100):
        build_id = f"b_{number}"
        await journal.write(replace(accepted(build_id), snapshot="x" * 20_000))
        await journal.write(replace(ended(build_id), snapshot="x" * 20_000))
    await journal.aclose()
    path = tmp_path / FILE_NAME
    before = path.stat().st_size
    again = await Journal.open(tmp_path)
    assert await again.prune(keep_builds=10) == 90
    assert (await again.check()).ok
    await again.aclose()
    assert path.stat().st_size < before / 4
