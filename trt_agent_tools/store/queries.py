"""What is asked of the journal, each in one read transaction."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.store.stored import (
    StoredBuild,
    StoredEvent,
    StoredReservation,
    StoredSession,
    StoredSummary,
)

_BUILD = (
    "SELECT b.build_id, b.session_id, b.owner, b.idempotency_key, b.created_at, b.wall, b.supervisor, "
    "d.request, d.build_order, b.facts, d.policy, s.snapshot, b.started_wall, b.device, b.worker_pid, "
    "b.token, b.at_most_s, b.gpu_s, b.last_wall, b.ended_at, b.ended_wall, b.state, b.reason, b.ended "
    "FROM {} AS b JOIN documents AS d USING (number) JOIN snapshots AS s USING (number)"
)
_ANY_BUILD = _BUILD.format("builds")

_SUMMARY = (
    "SELECT build_id, session_id, created_at, wall, facts, gpu_s, ended_at, state, reason, ended "
    "FROM builds WHERE {} ORDER BY number DESC LIMIT ?"
)

_COUNT = "SELECT count(*) FROM builds WHERE {}"

_PAGE = "(SELECT * FROM builds WHERE {} ORDER BY number DESC LIMIT ?)"
"""Chosen before anything large is read."""

_RESERVATION = (
    "SELECT a.session_id, a.build_id, a.wall, a.amount_s FROM ledger AS a "
    "JOIN builds AS b ON b.build_id = a.build_id AND b.ended = 0 WHERE a.kind = 'reserve'{}"
)

_SESSION = (
    "SELECT a.session_id, a.owner, a.label, a.policy, a.budget_s, a.concurrent_builds, "
    "a.queued_builds, a.extension_left_s, a.created_at, a.is_default, a.removed_s + "
    "(SELECT total(amount_s) FROM ledger AS l WHERE l.session_id = a.session_id AND l.kind = 'settle') "
    "FROM sessions AS a WHERE true{} ORDER BY a.rowid"
)

_OF_ONE = " AND a.session_id = ?"


def unfinished(connection: sqlite3.Connection) -> list[StoredBuild]:
    """Return the builds that have not ended, in the order in which they were accepted."""
    return _built(connection.execute(f"{_ANY_BUILD} WHERE b.ended = 0 ORDER BY b.number"))


def one_build(connection: sqlite3.Connection, build_id: str) -> StoredBuild | None:
    """Return the build, if there is one."""
    return _first(_built(connection.execute(f"{_ANY_BUILD} WHERE b.build_id = ?", (build_id,))))


def build_by_key(connection: sqlite3.Connection, owner: str, key: str) -> StoredBuild | None:
    """Return the build that `owner` started with this idempotency key, if there is one."""
    return _first(
        _built(
            connection.execute(
                f"{_ANY_BUILD} WHERE b.owner = ? AND b.idempotency_key = ?", (owner, key)
            )
        )
    )


def newest_builds(
    connection: sqlite3.Connection,
    *,
    owner: str,
    session_id: str | None,
    state: State | None,
    limit: int,
) -> tuple[list[StoredBuild], int]:
    """Return up to `limit` builds, newest first, and how many more there are."""
    where, values = _chosen(owner, session_id, state)
    with _one_view(connection):
        (number,) = connection.execute(_COUNT.format(where), values).fetchone()
        page = _BUILD.format(_PAGE.format(where))
        rows = connection.execute(f"{page} ORDER BY b.number DESC", (*values, max(0, limit)))
        found = _built(rows)
    return found, number - len(found)


def newest_summaries(
    connection: sqlite3.Connection,
    *,
    owner: str,
    session_id: str | None,
    state: State | None,
    limit: int,
) -> tuple[list[StoredSummary], int]:
    """Return what a list shows of up to `limit` builds, newest first, and how many more there are."""
    where, values = _chosen(owner, session_id, state)
    with _one_view(connection):
        (number,) = connection.execute(_COUNT.format(where), values).fetchone()
        rows = connection.execute(_SUMMARY.format(where), (*values, max(0, limit)))
        found = [
            StoredSummary(*(*told, State(state), Reason(reason) if reason else None, bool(ended)))
            for *told, state, reason, ended in rows
        ]
    return found, number - len(found)


def sessions(connection: sqlite3.Connection, session_id: str | None = None) -> list[StoredSession]:
    """Return all sessions, or the one with this id, in the order in which they were opened."""
    where, values = ("", ()) if session_id is None else (_OF_ONE, (session_id,))
    with _one_view(connection):
        reserved = defaultdict[str, list[StoredReservation]](list)
        for whose, *claim in connection.execute(_RESERVATION.format(where), values):
            reserved[whose].append(StoredReservation(*claim))
        rows = connection.execute(_SESSION.format(where), values).fetchall()
    return [
        StoredSession(*(*told, bool(is_default), spent_s, tuple(reserved[told[0]])))
        for *told, is_default, spent_s in rows
    ]


def events(
    connection: sqlite3.Connection, build_id: str, *, after: int, limit: int
) -> list[StoredEvent]:
    """Return up to `limit` events of the build whose `seq` is above `after`, in order."""
    rows = connection.execute(
        "SELECT seq, build_id, at, kind, body FROM events WHERE build_id = ? AND seq > ? "
        "ORDER BY seq LIMIT ?",
        (build_id, after, max(0, limit)),
    )
    return [StoredEvent(*row) for row in rows]


def totals(connection: sqlite3.Connection) -> tuple[int, int, str | None]:
    """Return how many builds there are, how many have not ended, and when the oldest was accepted."""
    number, waiting, oldest = connection.execute(
        "SELECT (SELECT count(*) FROM builds), (SELECT count(*) FROM builds WHERE ended = 0), "
        "(SELECT created_at FROM builds ORDER BY number LIMIT 1)"
    ).fetchone()
    return int(number), int(waiting), oldest


def _chosen(owner: str, session_id: str | None, state: State | None) -> tuple[str, tuple[str, ...]]:
    """Return a condition on builds, composed of constants, and the values in it."""
    where, values = "owner = ?", [owner]
    if session_id is not None:
        where += " AND session_id = ?"
        values.append(session_id)
    if state is not None:
        where += " AND state = ?"
        values.append(state.value)
    return where, tuple(values)


@contextmanager
def _one_view(connection: sqlite3.Connection) -> Iterator[None]:
    """Let what is asked for in the block be of one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _built(rows: sqlite3.Cursor) -> list[StoredBuild]:
    return [
        StoredBuild(*(*told, State(state), Reason(reason) if reason else None, bool(ended)))
        for *told, state, reason, ended in rows
    ]


def _first(found: list[StoredBuild]) -> StoredBuild | None:
    return found[0] if found else None


def build_ids(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of all builds."""
    return [str(row[0]) for row in connection.execute("SELECT build_id FROM builds")]
