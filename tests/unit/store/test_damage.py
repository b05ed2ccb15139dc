"""A journal that cannot be used says why, at once, and is used again once it can be."""

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from tests.unit.store.told import ACCEPTED, ENDED, OWNER, SESSION, STARTED, WALL, accepted, ended
from trt_agent_tools.store import journal as journal_module
from trt_agent_tools.store.errors import NoAnswerError
from trt_agent_tools.store.journal import FILE_NAME, Journal, JournalError
from trt_agent_tools.store.records import Happened, Progressed
from trt_agent_tools.store.schema import BUSY_S

pytestmark = pytest.mark.anyio

LIMIT_S = 20.0
QUICK_S = 1.0
LARGE = "x" * 100_000


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=1m", "none", str(folder))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted: {error}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def health_error(journal: Journal) -> str | None:
    health = journal.health
    assert health.ok == (health.error is None)
    return health.error


@contextmanager
def quick() -> Iterator[None]:
    """Fail where the block takes longer than a caller should wait for a refusal."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < QUICK_S


async def test_a_full_disk_is_told_at_once_and_writing_works_again_with_room(
    small_disk: Path,
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    journal = await Journal.open(small_disk)
    await journal.write(SESSION, ACCEPTED, STARTED)
    stored = ["b_1"]
    refusals: list[str] = []
    for number in range(2, 40):
        with quick():
            try:
                await journal.write(replace(accepted(f"b_{number}"), snapshot=LARGE))
                stored.append(f"b_{number}")
            except JournalError as error:
                refusals.append(str(error))
    assert 1 < len(stored) < 10
    assert all("the disk is full" in text for text in refusals)
    assert health_error(journal) == refusals[-1]
    # Progress does not raise and does not hang either.
    journal.write_soon(Progressed("b_1", WALL, 1.0, LARGE))
    with quick(), pytest.raises(JournalError, match="the disk is full"):
        await journal.write(replace(accepted("b_99"), snapshot=LARGE * 10))

    # What was acknowledged is there, and can be read while the disk is full.
    found, _ = await journal.builds(owner=OWNER, limit=100)
    assert [build.build_id for build in reversed(found)] == stored

    ballast.unlink()
    await journal.write(ENDED)
    assert health_error(journal) is None
    stored.append("b_100")
    await journal.write(accepted("b_100"))
    await journal.aclose()
    journal = await Journal.open(small_disk)
    found, _ = await journal.builds(owner=OWNER, limit=100)
    assert [build.build_id for build in reversed(found)] == stored
    session = await journal.session("s_1")
    assert session is not None
    assert session.spent_s == ENDED.gpu_s
    await journal.aclose()


async def test_a_disk_that_becomes_read_only_is_told(small_disk: Path) -> None:
    journal = await Journal.open(small_disk)
    await journal.write(SESSION)
    await journal.aclose()
    mount("-o", "remount,ro", str(small_disk))
    with quick(), pytest.raises(JournalError, match=r"cannot be opened.*[Rr]ead-only"):
        await Journal.open(small_disk)
    mount("-o", "remount,rw", str(small_disk))
    journal = await Journal.open(small_disk)
    assert await journal.session("s_1") is not None
    await journal.aclose()


@pytest.mark.parametrize("instead", ["nothing", "an empty folder", "another journal"])
async def test_a_journal_that_was_removed_takes_nothing_more(tmp_path: Path, instead: str) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    journal = await Journal.open(folder)
    await journal.write(SESSION, ACCEPTED)
    folder.rename(tmp_path / "moved")
    other = None
    if instead != "nothing":
        folder.mkdir()
    if instead == "another journal":
        other = await Journal.open(folder)
        await other.write(SESSION, accepted("b_2"))
    with quick(), pytest.raises(JournalError, match=r"was (removed|replaced)"):
        await journal.write(STARTED)
    assert health_error(journal)
    if other:
        with quick(), pytest.raises(JournalError, match="was replaced"):
            await journal.write(accepted("b_3"))
        assert await other.build("b_3") is None
        await other.write(ended("b_2"))
        await journal.aclose()
        # That the old one was closed took nothing from the new one.
        assert [event.kind for event in await other.events("b_2")] == ["accepted", "ended"]
        await other.check()
        assert other.health.ok
        await other.aclose()
        return
    shutil.rmtree(folder, ignore_errors=True)
    (tmp_path / "moved").rename(folder)
    await journal.write(STARTED)
    assert health_error(journal) is None
    await journal.aclose()


async def test_a_corrupt_file_is_refused_with_its_name(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path)
    await journal.write(SESSION, *(accepted(f"b_{number}") for number in range(200)))
    await journal.aclose()
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    page = 4096
    for name, damaged in {
        "garbage": b"no database at all, but a text of some length" * 100,
        "a page overwritten": whole[: 9 * page] + b"\xff" * page + whole[10 * page :],
        "cut off": whole[: len(whole) // 2],
    }.items():
        path.write_bytes(damaged)
        with quick(), pytest.raises(JournalError, match="corrupt") as caught:
            await Journal.open(tmp_path)
        assert str(path) in str(caught.value), name
    path.write_bytes(whole)
    await (await Journal.open(tmp_path)).aclose()


async def test_damage_that_comes_later_is_found_by_a_check(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path)
    await journal.write(SESSION, *(accepted(f"b_{number}") for number in range(200)))
    await journal.aclose()
    journal = await Journal.open(tmp_path)
    assert (await journal.check()).ok
    with (tmp_path / FILE_NAME).open("r+b") as file:
        # Opened beside SQLite: its locks are gone with this, which one process alone does not need.
        file.seek(9 * 4096)
        file.write(b"\xff" * 4096)
    health = await journal.check()
    assert not health.ok
    assert "corrupt" in (health.error or "")
    await journal.aclose()


async def test_a_newer_journal_is_left_alone(tmp_path: Path) -> None:
    await (await Journal.open(tmp_path)).aclose()
    path = tmp_path / FILE_NAME
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 9999")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"newer version.*9999"):
        await Journal.open(tmp_path)
    assert path.read_bytes() == before


async def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with quick(), pytest.raises(JournalError, match=r"cannot be opened: .*No such file"):
        await Journal.open(tmp_path / "none")


async def test_a_lock_of_another_process_is_waited_for_but_not_for_ever(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path)
    await journal.write(SESSION)
    holder = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\n"
        "print('held', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    async with await anyio.open_process(
        [sys.executable, "-c", holder, tmp_path / FILE_NAME]
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert (await process.stdout.receive()).startswith(b"held")
        began = time.monotonic()
        with pytest.raises(JournalError, match="another process keeps it locked"):
            await journal.write(ACCEPTED)
        assert BUSY_S * 0.9 < time.monotonic() - began < BUSY_S + QUICK_S
        # Reading goes on.
        assert await journal.session("s_1") is not None
        await process.stdin.send(b"\n")
        await process.wait()
    await journal.write(ACCEPTED)
    assert health_error(journal) is None
    await journal.aclose()


async def test_a_disk_that_hangs_is_told_and_what_was_refused_is_not_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "ANSWER_S", 0.1)
    journal = await Journal.open(tmp_path)
    await journal.write(SESSION, ACCEPTED)
    lock = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    begun = Happened("b_1", 1.0, "begun", "{}")
    with pytest.raises(NoAnswerError, match="hangs"):
        await journal.write(begun)
    with pytest.raises(NoAnswerError):
        await journal.write(Happened("b_1", 2.0, "refused", "{}"))
    lock.execute("ROLLBACK")
    lock.close()
    monkeypatch.setattr(journal_module, "ANSWER_S", LIMIT_S)
    await journal.write(Happened("b_1", 3.0, "after", "{}"))
    kinds = [event.kind for event in await journal.events("b_1")]
    assert kinds == ["accepted", "begun", "after"]
    await journal.aclose()


async def test_descriptors_and_threads_do_not_grow_with_failures(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    journal = await Journal.open(folder)
    await journal.write(SESSION)
    folder.rename(tmp_path / "moved")

    async def fail(times: int) -> tuple[int, int]:
        for _ in range(times):
            with pytest.raises(JournalError):
                await journal.write(ACCEPTED)
        return len([*Path("/proc/self/fd").iterdir()]), len([*Path("/proc/self/task").iterdir()])

    assert await fail(5) == await fail(200)
    await journal.aclose()
