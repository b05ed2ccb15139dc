"""Whatever records come, in whatever order: the rows are what the events tell, and no time is counted twice."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.store.told import OWNER, SESSION, WALL, accepted
from trt_agent_tools.model.states import LIVE, TERMINAL, Reason, State
from trt_agent_tools.store.applying import apply
from trt_agent_tools.store.errors import RecordRefusedError
from trt_agent_tools.store.queries import newest_builds, sessions
from trt_agent_tools.store.records import (
    BuildEnded,
    BuildStarted,
    Happened,
    LimitExtended,
    Progressed,
    Record,
    VerdictRecorded,
)
from trt_agent_tools.store.schema import migrate, shipped_migrations
from trt_agent_tools.store.writer import _apart

Row = dict[str, object]

BUILD_IDS = st.sampled_from(["b_1", "b_1", "b_1", "b_2", "b_2", "b_unknown"])
SESSION_IDS = st.sampled_from(["s_1", "s_2", "s_unknown"])
SECONDS = st.integers(-1, 50).map(lambda quarters: quarters / 4)
WALLS = SECONDS.map(lambda seconds: WALL + seconds)
REASONS = st.none() | st.sampled_from(Reason)

SESSIONS = st.builds(
    replace,
    st.just(SESSION),
    session_id=st.sampled_from(["s_1", "s_2"]),
    is_default=st.booleans(),
    budget_s=st.none() | SECONDS,
)
ACCEPTANCES = st.builds(
    lambda build_id, session_id, key, wall: replace(accepted(build_id, session_id, key), wall=wall),
    st.sampled_from(["b_1", "b_2"]),
    SESSION_IDS,
    st.none() | st.sampled_from(["k", "l"]),
    WALLS,
)
STARTS = st.builds(
    BuildStarted,
    BUILD_IDS,
    WALLS,
    st.sampled_from(["cpu", "0"]),
    st.none() | st.integers(1, 9),
    st.sampled_from(["t", "u"]),
    st.none() | SECONDS,
)
ENDS = st.builds(
    BuildEnded,
    BUILD_IDS,
    SECONDS,
    WALLS,
    st.sampled_from(sorted(TERMINAL)),
    REASONS,
    st.none() | SECONDS,
    st.just("end"),
)
RECORDS = st.one_of(
    SESSIONS,
    ACCEPTANCES,
    ACCEPTANCES,
    STARTS,
    STARTS,
    st.builds(Progressed, BUILD_IDS, WALLS, st.none() | SECONDS, st.text(max_size=3)),
    st.builds(
        Happened,
        BUILD_IDS,
        SECONDS,
        st.just("moved"),
        st.just("{}"),
        st.none() | st.sampled_from(sorted(LIVE)),
        REASONS,
    ),
    st.builds(
        VerdictRecorded,
        BUILD_IDS,
        SECONDS,
        st.sampled_from(["silent", "build_time"]),
        st.sampled_from(["warned", "cancel"]),
        st.just("{}"),
    ),
    st.builds(LimitExtended, BUILD_IDS, SESSION_IDS, SECONDS, st.just("longer"), SECONDS),
    ENDS,
    ENDS,
)
CALLS = st.lists(st.lists(RECORDS, min_size=1, max_size=3), max_size=30)
BEGUN: list[Sequence[Record]] = [[SESSION, accepted("b_1")]]


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection, shipped_migrations())
    yield connection
    connection.close()


def store(connection: sqlite3.Connection, calls: Sequence[Sequence[Record]]) -> None:
    """Store each call's records, or none of them, as the writer does."""
    connection.execute("BEGIN")
    for records in calls:

        def work(connection: sqlite3.Connection, records: Sequence[Record] = records) -> None:
            for record in records:
                apply(connection, record)

        outcome = _apart(connection, work)
        assert outcome is None or isinstance(outcome, RecordRefusedError)
    connection.execute("COMMIT")


def rows(connection: sqlite3.Connection, query: str) -> list[Row]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


@dataclass
class Folded:
    """What the events tell, worked out apart from the code under test."""

    sessions: dict[object, Row] = field(default_factory=dict)
    builds: dict[object, Row] = field(default_factory=dict)
    ledger: dict[tuple[object, str], tuple[object, object]] = field(default_factory=dict)
    verdicts: list[tuple[object, ...]] = field(default_factory=list)

    def take(self, event: Row) -> None:
        build_id = event["build_id"]
        body = json.loads(str(event["body"]))
        build = self.builds.get(build_id, {})
        match event["kind"]:
            case "session_opened":
                self.sessions[event["session_id"]] = body
            case "accepted":
                life: Row = {"state": "queued", "reason": None, "ended": 0}
                self.builds[build_id] = body | life
            case "started":
                self._start(build, body)
            case "verdict":
                self.verdicts.append((event["seq"], build_id, event["at"]))
            case "limit_extended":
                left = body["extension_left_s"]
                self.sessions[body["session_id"]]["extension_left_s"] = left
            case "ended":
                self._end(build, body)
            case _ if event["state"] and not build["ended"]:
                build |= {"state": event["state"], "reason": event["reason"]}

    def _start(self, build: Row, body: Row) -> None:
        for key in ("device", "worker_pid", "token", "at_most_s"):
            if build.get(key) is None:
                build[key] = body[key]
        build.setdefault("started_wall", body["wall"])
        if build["state"] == "queued":
            build["state"] = "starting"
        if not build["ended"]:
            claim = (build["session_id"], body["at_most_s"])
            self.ledger.setdefault((build["build_id"], "reserve"), claim)

    def _end(self, build: Row, body: Row) -> None:
        assert not build["ended"]
        build |= {"ended": 1, "ended_at": body["at"], "ended_wall": body["wall"]}
        build |= {key: body[key] for key in ("state", "reason", "gpu_s")}
        entry = (build["build_id"], "settle")
        assert entry not in self.ledger
        if body["gpu_s"] is not None:
            self.ledger[entry] = (build["session_id"], body["gpu_s"])


@given(CALLS)
def test_every_row_is_what_the_events_tell(calls: list[list[Record]]) -> None:
    with database() as connection:
        store(connection, [*BEGUN, *calls])
        told = Folded()
        for event in rows(connection, "SELECT * FROM events ORDER BY seq"):
            told.take(event)

        stored = rows(connection, "SELECT * FROM sessions")
        assert {row["session_id"] for row in stored} == set(told.sessions)
        for row in stored:
            for key, value in told.sessions[row["session_id"]].items():
                assert row[key] == value, key

        stored = rows(connection, "SELECT * FROM builds")
        assert {row["build_id"] for row in stored} == set(told.builds)
        for row in stored:
            for key, value in told.builds[row["build_id"]].items():
                assert row[key] == value, key

        entries = rows(connection, "SELECT * FROM ledger")
        assert {
            (row["build_id"], row["kind"]): (row["session_id"], row["amount_s"]) for row in entries
        } == told.ledger
        verdicts = connection.execute("SELECT seq, build_id, at FROM verdicts ORDER BY seq")
        assert verdicts.fetchall() == told.verdicts


@given(CALLS)
def test_the_ledger_is_the_sum_of_what_the_ended_builds_used(calls: list[list[Record]]) -> None:
    with database() as connection:
        store(connection, [*BEGUN, *calls])
        builds, left_out = newest_builds(
            connection, owner=OWNER, session_id=None, state=None, limit=100
        )
        assert left_out == 0
        for session in sessions(connection):
            mine = [build for build in builds if build.session_id == session.session_id]
            # Quarters of seconds add up exactly.
            assert session.spent_s == sum(build.gpu_s or 0 for build in mine if build.ended)
            holding = {b.build_id for b in mine if b.started_wall is not None and not b.ended}
            assert {claim.build_id for claim in session.reservations} == holding


@given(st.lists(RECORDS, max_size=40))
def test_a_record_told_twice_counts_once(records: list[Record]) -> None:
    """Notes and verdicts are added again: they have no identity; no row that counts is touched."""
    once = [[record] for record in records]
    twice = [[record] for record in records for _ in range(2)]
    found = []
    for told in (once, twice):
        with database() as connection:
            store(connection, [*BEGUN, *told])
            builds, _ = newest_builds(connection, owner=OWNER, session_id=None, state=None, limit=9)
            ledger = rows(connection, "SELECT * FROM ledger")
            found.append((builds, sessions(connection), ledger))
    assert found[0] == found[1]


@given(CALLS)
def test_what_is_known_of_progress_never_goes_back_after_the_end(
    calls: list[list[Record]],
) -> None:
    with database() as connection:
        ends: dict[str, tuple[object, ...]] = {}
        for call in [*BEGUN, *calls]:
            store(connection, [call])
            builds, _ = newest_builds(connection, owner=OWNER, session_id=None, state=None, limit=9)
            for build in builds:
                if build.ended:
                    end = (build.state, build.reason, build.gpu_s, build.ended_wall, build.snapshot)
                    assert ends.setdefault(build.build_id, end) == end


def test_states_are_all_known() -> None:
    assert {*LIVE, *TERMINAL} == set(State)
