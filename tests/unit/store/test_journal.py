"""What is written is read again, by whoever asks, and what is told twice counts once."""

import asyncio
import json
import sqlite3
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.unit.store.told import (
    ACCEPTED,
    ENDED,
    OWNER,
    SESSION,
    STARTED,
    WALL,
    accepted,
    ended,
    started,
)
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.store.journal import FILE_NAME, Journal, JournalError, RecordRefusedError
from trt_agent_tools.store.records import (
    Happened,
    LimitExtended,
    Progressed,
    VerdictRecorded,
)
from trt_agent_tools.store.schema import connect
from trt_agent_tools.store.stored import StoredBuild, StoredReservation, StoredSession
from trt_agent_tools.store.writer import Work

pytestmark = pytest.mark.anyio

LIMIT_S = 20.0


async def known(journal: Journal, build_id: str = "b_1") -> StoredBuild:
    found = await journal.build(build_id)
    assert found is not None
    return found


async def account(journal: Journal) -> StoredSession:
    found = await journal.session("s_1")
    assert found is not None
    return found


async def kinds(journal: Journal) -> list[str]:
    return [event.kind for event in await journal.events("b_1")]


async def test_a_build_is_read_as_it_was_written(journal: Journal) -> None:
    await journal.write(SESSION, replace(ACCEPTED, idempotency_key="k"))
    build = await known(journal)
    for name in ACCEPTED.__slots__:
        if name != "idempotency_key":
            assert getattr(build, name) == getattr(ACCEPTED, name)
    assert (build.state, build.reason, build.ended) == (State.QUEUED, None, False)
    assert (build.gpu_s, build.last_wall, build.started_wall) == (None, WALL, None)

    await journal.write(STARTED)
    build = await known(journal)
    assert build.state is State.STARTING
    assert (build.device, build.worker_pid, build.token) == ("cpu", 4711, "token")
    assert (build.started_wall, build.at_most_s, build.last_wall) == (WALL + 1, 60.0, WALL + 1)

    await journal.write(Happened("b_1", 2.0, "state_changed", "{}", State.BUILDING))
    await journal.write(Progressed("b_1", WALL + 3, 2.0, '{"seq": 7}'))
    build = await known(journal)
    assert (build.state, build.gpu_s, build.last_wall) == (State.BUILDING, 2.0, WALL + 3)
    assert build.snapshot == '{"seq": 7}'

    await journal.write(ENDED)
    build = await known(journal)
    assert (build.state, build.reason, build.ended) == (State.SUCCEEDED, Reason.COMPLETED, True)
    assert (build.ended_at, build.ended_wall, build.gpu_s) == (5.5, WALL + 5.5, 4.25)
    assert build.snapshot == ENDED.snapshot
    assert await journal.by_key(OWNER, "k") == build
    assert await journal.builds(owner=OWNER, limit=1) == ([build], 0)
    assert await journal.unfinished() == []


async def test_a_session_s_account_is_what_its_builds_have_cost_and_may_cost(
    journal: Journal,
) -> None:
    await journal.write(SESSION)
    session = await account(journal)
    for name in SESSION.__slots__:
        assert getattr(session, name) == getattr(SESSION, name)
    assert (session.spent_s, session.reservations) == (0.0, ())

    await journal.write(accepted("b_1"), accepted("b_2"), started("b_1"), started("b_2"))
    await journal.write(ended("b_1", 4.25))
    session = await account(journal)
    assert session.spent_s == 4.25
    assert session.reservations == (StoredReservation("b_2", WALL + 1, 60.0),)
    assert await journal.sessions() == [session]
    assert await journal.session("s_2") is None


async def test_what_is_told_twice_counts_once(journal: Journal) -> None:
    await journal.write(SESSION, ACCEPTED, STARTED, ENDED)
    before = await known(journal), await account(journal), await journal.events("b_1")
    await journal.write(SESSION, ACCEPTED, STARTED, ENDED)
    await journal.write(replace(ENDED, state=State.FAILED, gpu_s=100.0))
    assert (await known(journal), await account(journal), await journal.events("b_1")) == before


async def test_the_worker_s_pid_may_become_known_after_the_reservation(journal: Journal) -> None:
    await journal.write(SESSION, ACCEPTED, replace(STARTED, worker_pid=None))
    assert (await known(journal)).worker_pid is None
    await journal.write(replace(STARTED, wall=WALL + 9, at_most_s=1.0))
    build = await known(journal)
    assert (build.worker_pid, build.started_wall, build.at_most_s) == (4711, WALL + 1, 60.0)
    assert (await account(journal)).reservations == (StoredReservation("b_1", WALL + 1, 60.0),)


async def test_an_end_without_gpu_time_costs_what_was_last_told(journal: Journal) -> None:
    await journal.write(SESSION, *map(accepted, ("b_1", "b_2", "b_3")))
    await journal.write(started("b_1"), Progressed("b_1", WALL + 3, 2.5, "{}"), started("b_2"))
    await journal.write(*(ended(build, None) for build in ("b_1", "b_2", "b_3")))
    costs = [(await known(journal, build)).gpu_s for build in ("b_1", "b_2", "b_3")]
    assert costs == [2.5, 0.0, None]
    assert (await account(journal)).spent_s == 2.5


async def test_an_end_whose_start_could_not_be_written_is_charged_all_the_same(
    journal: Journal,
) -> None:
    await journal.write(SESSION, ACCEPTED, ENDED, STARTED)
    session = await account(journal)
    assert (session.spent_s, session.reservations) == (4.25, ())
    assert (await known(journal)).state is State.SUCCEEDED


async def test_an_extension_changes_the_policy_and_what_the_session_has_left(
    journal: Journal,
) -> None:
    await journal.write(SESSION, ACCEPTED)
    await journal.write(LimitExtended("b_1", "s_1", 30.0, '{"name": "longer"}', 1.0))
    assert (await account(journal)).extension_left_s == 30.0
    assert (await known(journal)).policy == '{"name": "longer"}'
    with pytest.raises(RecordRefusedError, match="session s_2"):
        await journal.write(LimitExtended("b_1", "s_2", 0.0, "{}", 2.0))
    assert (await known(journal)).policy == '{"name": "longer"}'


async def test_events_come_in_order_and_page_by_page(journal: Journal) -> None:
    await journal.write(SESSION, ACCEPTED, STARTED)
    await journal.write(VerdictRecorded("b_1", 1.5, "silent", "warned", '{"rule": "silent"}'))
    await journal.write(Happened("b_1", 2.0, "note", '{"text": "x"}'), ENDED)
    found = await journal.events("b_1")
    assert [event.kind for event in found] == ["accepted", "started", "verdict", "note", "ended"]
    assert [event.at for event in found] == [0.0, 1.0, 1.5, 2.0, 5.5]
    assert found[3].body == '{"text": "x"}'
    assert json.loads(found[4].body)["gpu_s"] == 4.25
    page = await journal.events("b_1", after=found[1].seq, limit=2)
    assert page == found[2:4]
    assert await journal.events("b_2") == []


async def test_lists_are_the_owner_s_newest_first_and_say_how_many_more(journal: Journal) -> None:
    other = replace(SESSION, session_id="s_2")
    stranger = replace(SESSION, session_id="s_3", owner="stranger")
    await journal.write(SESSION, other, stranger)
    for number in range(1, 6):
        await journal.write(accepted(f"b_{number}", f"s_{1 + number % 2}"))
    await journal.write(replace(accepted("b_6", "s_3"), owner="stranger"), ended("b_1"))

    async def ids(limit: int, **filters: str | State) -> tuple[list[str], int]:
        found, left_out = await journal.builds(owner=OWNER, limit=limit, **filters)  # type: ignore[arg-type]
        short, also = await journal.summaries(owner=OWNER, limit=limit, **filters)  # type: ignore[arg-type]
        for build, summary in zip(found, short, strict=True):
            for name in summary.__slots__:
                assert getattr(summary, name) == getattr(build, name)
        assert left_out == also
        return [build.build_id for build in found], left_out

    assert await ids(2) == (["b_5", "b_4"], 3)
    assert await ids(10, session_id="s_2") == (["b_5", "b_3", "b_1"], 0)
    assert await ids(1, state=State.QUEUED) == (["b_5"], 3)
    assert await ids(5, session_id="s_2", state=State.SUCCEEDED) == (["b_1"], 0)
    assert await ids(5, session_id="s_3") == ([], 0)
    assert await ids(0) == ([], 5)


async def test_an_idempotency_key_belongs_to_one_build_of_an_owner(journal: Journal) -> None:
    stranger = replace(SESSION, session_id="s_2", owner="stranger")
    await journal.write(SESSION, stranger, accepted("b_1", key="k"))
    with pytest.raises(RecordRefusedError, match="idempotency_key"):
        await journal.write(accepted("b_2", key="k"))
    assert await journal.build("b_2") is None
    await journal.write(replace(accepted("b_3", "s_2", "k"), owner="stranger"))
    assert (await journal.by_key(OWNER, "k")) == await known(journal, "b_1")
    assert await journal.by_key(OWNER, "other") is None


async def test_an_owner_has_one_default_session(journal: Journal) -> None:
    default = replace(SESSION, is_default=True)
    await journal.write(default)
    with pytest.raises(RecordRefusedError, match="owner"):
        await journal.write(replace(default, session_id="s_2"))
    await journal.write(replace(default, session_id="s_3", owner="stranger"))


@pytest.mark.parametrize(
    "record",
    [
        STARTED,
        ENDED,
        ACCEPTED,
        Happened("b_1", 0.0, "note", "{}"),
        VerdictRecorded("b_1", 0.0, "silent", "warned", "{}"),
        LimitExtended("b_1", "s_1", 0.0, "{}", 0.0),
    ],
    ids=lambda record: type(record).__name__,
)
async def test_a_record_of_what_is_not_known_is_refused(journal: Journal, record: Happened) -> None:
    with pytest.raises(RecordRefusedError):
        await journal.write(record)
    assert journal.health.ok


async def test_a_refused_record_takes_its_own_call_along_and_no_other(journal: Journal) -> None:
    await journal.write(SESSION)
    outcomes: dict[str, bool] = {}

    async def write(build_id: str, *, spoilt: bool) -> None:
        bad = [ended("unknown")] if spoilt else []
        try:
            await journal.write(accepted(build_id), *bad)
            outcomes[build_id] = True
        except RecordRefusedError:
            outcomes[build_id] = False

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(partial(write, f"b_{number}", spoilt=number % 3 == 0))
    assert outcomes == {f"b_{n}": n % 3 != 0 for n in range(30)}
    found, _ = await journal.builds(owner=OWNER, limit=100)
    assert {build.build_id for build in found} == {b for b, stored in outcomes.items() if stored}


async def test_values_that_mean_nothing_are_refused(journal: Journal) -> None:
    await journal.write(SESSION, ACCEPTED)
    for record in (
        replace(ENDED, gpu_s=-1.0),
        replace(ENDED, at=float("nan"), snapshot="\ud800"),
        replace(STARTED, worker_pid=2**70),
    ):
        with pytest.raises(RecordRefusedError):
            await journal.write(record)
    assert await kinds(journal) == ["accepted"]
    with pytest.raises(ValueError, match="of its own"):
        Happened("b_1", 0.0, "ended", "{}")
    with pytest.raises(ValueError, match="BuildEnded"):
        Happened("b_1", 0.0, "moved", "{}", State.LOST)
    with pytest.raises(ValueError, match="not the end"):
        replace(ENDED, state=State.BUILDING)


async def test_writers_at_once_share_commits(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await journal.write(SESSION, ACCEPTED)
    writer = journal._writer
    sizes: list[int] = []
    commit = writer._commit

    def counted(works: Sequence[Work[object]]) -> list[object]:
        sizes.append(len(works))
        return commit(works)

    monkeypatch.setattr(writer, "_commit", counted)
    # While another process holds the lock the first commit waits, and the others gather.
    lock = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(journal.write, Happened("b_1", float(number), "note", "{}"))
        with anyio.fail_after(LIMIT_S):
            while sum(sizes) + len(writer._entries) < 100:
                await anyio.lowlevel.checkpoint()
        lock.execute("ROLLBACK")
    lock.close()
    assert sum(sizes) == 100
    assert len(sizes) <= 3
    # Each call is one event, in the order of the calls.
    assert [event.at for event in await journal.events("b_1")][1:] == [*map(float, range(100))]


async def test_the_newest_progress_wins_and_the_end_stands(journal: Journal) -> None:
    await journal.write(SESSION, ACCEPTED, STARTED)
    for number in range(500):
        journal.write_soon(Progressed("b_1", WALL + number, float(number), str(number)))
    journal.write_soon(Progressed("unknown", WALL, 0.0, "{}"))
    await journal.write(Happened("b_1", 1.0, "note", "{}"))
    build = await known(journal)
    assert (build.snapshot, build.gpu_s) == ("499", 499.0)
    await journal.write(ENDED)
    journal.write_soon(Progressed("b_1", WALL + 999, 999.0, "late"))
    await journal.write(Happened("b_1", 6.0, "note", "{}"))
    build = await known(journal)
    assert (build.snapshot, build.gpu_s) == (ENDED.snapshot, 4.25)
    assert journal.health.ok


async def test_progress_is_stored_without_another_write(journal: Journal) -> None:
    await journal.write(SESSION, ACCEPTED, STARTED)
    with anyio.fail_after(LIMIT_S):
        for number in range(3):
            journal.write_soon(Progressed("b_1", WALL, None, str(number)))
            while (await known(journal)).snapshot != str(number):
                await anyio.sleep(0.01)


async def test_progress_that_is_refused_is_logged(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    await journal.write(SESSION, ACCEPTED, STARTED)
    journal.write_soon(Progressed("b_1", WALL, -1.0, "{}"))
    await journal.write(Happened("b_1", 1.0, "note", "{}"))
    assert "refuses Progressed of b_1" in caplog.text
    assert journal.health.ok


async def test_a_caller_that_is_cancelled_leaves_its_record_to_be_stored(
    journal: Journal,
) -> None:
    await journal.write(SESSION)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await journal.write(ACCEPTED)
    assert scope.cancelled_caught
    await journal.write(STARTED)
    assert await kinds(journal) == ["accepted", "started"]


async def test_closing_writes_what_was_handed_over(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path)
    await journal.write(SESSION, ACCEPTED)
    journal.write_soon(Progressed("b_1", WALL, 1.5, "last"))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await journal.write(STARTED)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await journal.aclose()
    await journal.aclose()
    with pytest.raises(JournalError, match="closed"):
        await journal.write(ENDED)
    with pytest.raises(JournalError, match="closed"):
        await journal.unfinished()
    assert {path.name for path in tmp_path.iterdir()} == {FILE_NAME}
    again = await Journal.open(tmp_path)
    build = await known(again)
    assert (build.snapshot, build.worker_pid) == ("last", 4711)
    await again.aclose()


def test_a_record_is_stored_though_its_event_loop_has_ended(tmp_path: Path) -> None:
    lock = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)

    async def begin() -> Journal:
        journal = await Journal.open(tmp_path)
        await journal.write(SESSION)
        lock.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(journal.write(ACCEPTED))
        await asyncio.sleep(0)
        task.cancel()
        return journal

    left = asyncio.run(begin())
    lock.execute("ROLLBACK")
    left._writer.stop()
    left._reader.stop()
    until = time.monotonic() + LIMIT_S
    while not lock.execute("SELECT * FROM builds").fetchall():
        assert time.monotonic() < until
    lock.close()


@pytest.mark.parametrize("before", ["nothing", "a file that others can read"])
async def test_only_the_user_can_read_it(tmp_path: Path, before: str) -> None:
    if before != "nothing":
        (tmp_path / FILE_NAME).touch(mode=0o644)
    journal = await Journal.open(tmp_path)
    await journal.write(SESSION)
    await journal.session("s_1")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert len(modes) == 3
    await journal.aclose()


async def test_a_commit_is_on_the_disk_when_it_returns(tmp_path: Path) -> None:
    await (await Journal.open(tmp_path)).aclose()
    connection = connect(tmp_path / FILE_NAME)
    full = 2
    assert connection.execute("PRAGMA synchronous").fetchone() == (full,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA foreign_keys").fetchone() == (1,)
    connection.close()


async def test_health_tells_size_and_content(journal: Journal) -> None:
    empty = await journal.check()
    assert (empty.ok, empty.builds, empty.oldest, empty.checked) == (True, 0, None, True)
    await journal.write(SESSION, ACCEPTED, accepted("b_2"), ended("b_2"))
    health = await journal.check()
    assert (health.builds, health.unfinished, health.oldest) == (2, 1, ACCEPTED.created_at)
    assert health.bytes > empty.bytes > 0
    assert health.path.endswith(FILE_NAME)
