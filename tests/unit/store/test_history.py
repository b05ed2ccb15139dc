"""What past builds took is found again by what is asked, bounded, and damaged rows hurt nobody."""

import logging
import math
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.store.told import ACCEPTED, ENDED, SESSION, accepted
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.progress.past import Past, Setting, Shape, Span
from trt_agent_tools.store.history import (
    KEEP_OF_ONE,
    OF_ONE_AMONG_OTHERS,
    KnownModel,
    Learned,
    SidecarStamp,
    prune,
)
from trt_agent_tools.store.journal import FILE_NAME, Journal
from trt_agent_tools.store.schema import connect

pytestmark = pytest.mark.anyio

SETTING = Setting("tensorrt_rtx", "1.7", "cpu")
SHAPE = Shape(12, 3456, {"MatMul": 8, "me::Mine": 4}, 64, 3)
SPANS = (Span("Building > Building engine", 0.5, 3.25), Span("Writing the engine", 3.5, 4.0))
PAST = Past(SETTING, "m" * 64, "o" * 64, SHAPE, 4.25, SPANS)
SIDECARS = (SidecarStamp("weights.bin", 7, 2**62),)
LEARNED = Learned(PAST, "1-2-3-4", SIDECARS)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    opened = await Journal.open(tmp_path)
    await opened.write(SESSION)
    yield opened
    await opened.aclose()


async def end(journal: Journal, build_id: str, learned: Learned | None) -> None:
    await journal.write(accepted(build_id), replace(ENDED, build_id=build_id, learned=learned))


async def test_a_past_build_is_found_again_as_it_was(journal: Journal) -> None:
    await end(journal, "b_1", LEARNED)
    assert await journal.same(SETTING, PAST.model, PAST.options) == (PAST,)
    assert await journal.others(SETTING, 10) == (PAST,)
    assert await journal.by_stamp("1-2-3-4") == KnownModel(PAST.model, SHAPE, SIDECARS)
    assert await journal.latest_version("tensorrt_rtx", "cpu") == "1.7"


async def test_nothing_is_found_under_another_key(journal: Journal) -> None:
    await end(journal, "b_1", LEARNED)
    for other in (
        replace(SETTING, backend="tensorrt"),
        replace(SETTING, version="1.8"),
        replace(SETTING, device="gpu0"),
    ):
        assert await journal.same(other, PAST.model, PAST.options) == ()
        assert await journal.others(other, 10) == ()
    assert await journal.same(SETTING, "x", PAST.options) == ()
    assert await journal.same(SETTING, PAST.model, "x") == ()
    assert await journal.by_stamp("1-2-3-5") is None
    assert await journal.latest_version("tensorrt", "cpu") is None


async def test_a_build_without_a_shape_or_stamp_is_kept_too(journal: Journal) -> None:
    past = replace(PAST, shape=None, spans=())
    await end(journal, "b_1", Learned(past))
    assert await journal.same(SETTING, PAST.model, PAST.options) == (past,)


async def test_only_a_success_is_learned_from_and_only_once(journal: Journal) -> None:
    failed = replace(
        ENDED, state=State.FAILED, reason=Reason.BUILDER_ERROR, build_id="b_1", learned=LEARNED
    )
    await journal.write(accepted("b_1"), failed)
    assert await journal.others(SETTING, 10) == ()
    await end(journal, "b_2", LEARNED)
    await journal.write(replace(ENDED, build_id="b_2", learned=LEARNED))
    assert len(await journal.others(SETTING, 10)) == 1


async def test_what_cannot_be_stored_of_a_past_build_does_not_cost_its_end(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    for number, broken in enumerate((replace(PAST, total_s=-1.0), replace(PAST, total_s=math.nan))):
        await end(journal, f"b_{number}", Learned(broken))
        stored = await journal.build(f"b_{number}")
        assert stored is not None
        assert stored.state is State.SUCCEEDED
    assert await journal.others(SETTING, 10) == ()
    assert len(caplog.records) == 2


async def test_what_was_learned_outlives_the_build(journal: Journal) -> None:
    await end(journal, ACCEPTED.build_id, LEARNED)
    assert await journal.prune(keep_builds=0) == 1
    assert await journal.build(ACCEPTED.build_id) is None
    assert await journal.same(SETTING, PAST.model, PAST.options) == (PAST,)


async def test_the_newest_come_first_and_a_frequent_model_leaves_room_for_others(
    journal: Journal,
) -> None:
    rare = replace(PAST, model="rare")
    await end(journal, "b_rare", Learned(rare))
    often = [replace(PAST, total_s=float(number + 1)) for number in range(KEEP_OF_ONE + 5)]
    for number, past in enumerate(often):
        await end(journal, f"b_{number}", Learned(past))
    same = await journal.same(SETTING, PAST.model, PAST.options)
    assert same == tuple(often[: -KEEP_OF_ONE - 1 : -1])
    others = await journal.others(SETTING, OF_ONE_AMONG_OTHERS + 1)
    assert others == (*often[: -OF_ONE_AMONG_OTHERS - 1 : -1], rare)


async def test_too_many_rows_are_pruned_the_oldest_first(journal: Journal, tmp_path: Path) -> None:
    for number in range(KEEP_OF_ONE + 3):
        await end(journal, f"b_{number}", Learned(replace(PAST, total_s=float(number + 1))))
    await end(journal, "b_other", Learned(replace(PAST, model="other")))
    await journal.prune()
    kept = await journal.same(SETTING, PAST.model, PAST.options)
    assert [past.total_s for past in kept][-1] == 4.0
    connection = connect(tmp_path / FILE_NAME)
    assert prune(connection, keep_rows=2) == KEEP_OF_ONE + 1 - 2
    connection.close()
    rest = await journal.others(SETTING, 10)
    assert [past.model for past in rest] == ["other", PAST.model]


DAMAGE = {
    "shape is no JSON": "shape = '{'",
    "shape is of another kind": "shape = '[1]'",
    "shape has a negative count": """shape = '{"nodes": -1, "weight_bytes": 0, "operators": {}}'""",
    "spans are no JSON": "spans = 'x'",
    "spans have no number": """spans = '[["a", NaN, 1]]'""",
    "spans are negative": """spans = '[["a", -1, 1]]'""",
    "spans are no text": "spans = x'ff00'",
    "total is negative": "total_s = -1",
    "total is endless": "total_s = 9e999",
    "total is no number": "total_s = 'long'",
    "model is no text": "model = CAST(x'ff' AS TEXT)",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
async def test_a_damaged_row_is_passed_over_and_told_once(
    journal: Journal, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    await end(journal, "b_1", LEARNED)
    await end(journal, "b_2", LEARNED)
    by_hand(tmp_path, damage)
    with caplog.at_level(logging.WARNING, "trt_agent_tools.store.history"):
        for _ in range(3):
            assert await journal.others(SETTING, 10) == (PAST,)
            assert await journal.same(SETTING, PAST.model, PAST.options) == (PAST,)
    [record] = caplog.records
    assert "row 2 " in record.getMessage()


@pytest.mark.parametrize("damage", ["sidecars = 'x'", "shape = 'x'", "model = CAST(x'ff' AS TEXT)"])
async def test_a_damaged_row_does_not_hide_an_older_one_with_its_stamp(
    journal: Journal, tmp_path: Path, damage: str
) -> None:
    await end(journal, "b_1", LEARNED)
    await end(journal, "b_2", LEARNED)
    by_hand(tmp_path, damage)
    assert await journal.by_stamp("1-2-3-4") == KnownModel(PAST.model, SHAPE, SIDECARS)


def by_hand(folder: Path, damage: str) -> None:
    connection = sqlite3.connect(folder / FILE_NAME)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    done = connection.execute(f"UPDATE history SET {damage} WHERE build_id = 'b_2'")  # noqa: S608  (our own)
    assert done.rowcount == 1
    connection.commit()
    connection.close()


async def test_a_journal_of_the_first_version_gets_a_history(tmp_path: Path) -> None:
    first = await Journal.open(tmp_path)
    await first.write(SESSION, ACCEPTED)
    await first.aclose()
    old = sqlite3.connect(tmp_path / FILE_NAME)
    old.execute("DROP TABLE history")
    old.execute("PRAGMA user_version = 1")
    old.commit()
    old.close()
    again = await Journal.open(tmp_path)
    assert await again.build(ACCEPTED.build_id) is not None
    assert await again.others(SETTING, 10) == ()
    await again.aclose()
