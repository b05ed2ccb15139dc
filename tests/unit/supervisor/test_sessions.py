"""No caller's sessions keep another's out, and no session comes back with more than it had left."""

import gc

import pytest

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.store.stored import StoredSession
from trt_agent_tools.supervisor import sessions
from trt_agent_tools.supervisor.sessions import OpenSession, Sessions
from trt_agent_tools.supervisor.shares import LOCAL

POLICY = Policy.model_validate({"rules": {}, "session": {"gpu_time": "1h"}}).model_copy(
    update={"name": "test"}
)
MINE = "token:mine"
THEIRS = "token:theirs"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 6)
    monkeypatch.setattr(sessions, "MAX_SESSIONS_OF_ONE", 3)
    monkeypatch.setattr(sessions, "MAX_DEFAULTS", 2)


def opened(known: Sessions, owner: str) -> OpenSession:
    return known.open(SessionRequest(), POLICY, owner)


def stored(session: OpenSession, spent_s: float) -> StoredSession:
    return StoredSession(
        session_id=session.session_id,
        owner=session.owner,
        label=None,
        policy=session.policy.model_dump_json(),
        budget_s=session.account.budget_s,
        concurrent_builds=1,
        queued_builds=1,
        extension_left_s=0.0,
        created_at=session.created_at,
        is_default=False,
        spent_s=spent_s,
        reservations=(),
    )


def test_who_has_opened_all_that_may_be_still_has_a_default_session() -> None:
    known = Sessions(POLICY)
    held = [opened(known, MINE) for _ in range(3)]
    with pytest.raises(Refusal) as refused:
        opened(known, MINE)
    assert refused.value.info.code is ErrorCode.QUEUE_FULL
    assert refused.value.info.details["limit"] == "sessions_of_principal"
    assert known.find(None, MINE).is_default
    assert known.knows(opened(known, THEIRS).session_id)
    assert len(held) == 3


def test_a_session_unused_for_long_makes_room_and_one_in_use_does_not() -> None:
    known = Sessions(POLICY)
    first, second, _ = (opened(known, MINE) for _ in range(3))
    for session in (first, second):
        session.used_at -= sessions.UNUSED_S
    # Used again, so the second is the longest unused.
    known.find(first.session_id, MINE)
    gone = second.session_id
    del session, second
    assert known.knows(opened(known, MINE).session_id)
    gc.collect()
    assert known.knows(first.session_id)
    assert not known.knows(gone)
    with pytest.raises(Refusal):
        opened(known, MINE)


def test_others_are_left_room_by_those_that_fill_the_server() -> None:
    known = Sessions(POLICY)
    for owner in ("token:a", "token:b"):
        for _ in range(3):
            opened(known, owner)
    assert known.knows(opened(known, MINE).session_id)


def test_the_local_user_may_open_as_many_as_there_may_be() -> None:
    known = Sessions(POLICY)
    for _ in range(6):
        opened(known, LOCAL)
    with pytest.raises(Refusal):
        opened(known, LOCAL)


def test_a_session_that_something_still_holds_is_never_there_twice() -> None:
    known = Sessions(POLICY)
    held = opened(known, MINE)
    held.reserve("b", now=0.0, at_most_s=None)
    held.used_at -= sessions.UNUSED_S
    for _ in range(3):
        opened(known, MINE)
    # A build of it goes on: what it spends is in this very account.
    assert known.find(held.session_id, MINE) is held


def test_a_session_comes_back_from_the_journal_with_what_it_has_spent() -> None:
    known = Sessions(POLICY)
    session = opened(known, MINE)
    session.used_at -= sessions.UNUSED_S
    record = stored(session, spent_s=3000.0)
    del session
    for _ in range(3):
        opened(known, MINE)
    gc.collect()
    assert not known.knows(record.session_id)
    for other in list(known._opened.values()):
        other.used_at -= sessions.UNUSED_S
    assert known.restore(record).account.left_s(0.0) == 600.0


def test_nothing_is_left_to_a_journal_that_has_not_everything() -> None:
    written = False
    known = Sessions(POLICY, lambda: written)
    first = opened(known, MINE)
    first.used_at -= sessions.UNUSED_S
    opened(known, MINE)
    opened(known, MINE)
    with pytest.raises(Refusal):
        opened(known, MINE)
    written = True
    assert known.knows(opened(known, MINE).session_id)


def test_a_default_session_that_had_a_build_is_kept_however_many_callers_come() -> None:
    known = Sessions(POLICY)
    used = known.find(None, MINE)
    used.has_built = True
    used_id = used.session_id
    del used
    for number in range(5):
        known.find(None, f"token:{number}")
    gc.collect()
    assert known.find(None, MINE).session_id == used_id
    assert len(known._defaults) == 2
