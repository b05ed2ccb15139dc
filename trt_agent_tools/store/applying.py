"""Stores one record: its event, and the rows that follow from it, in the transaction under way."""

import json
import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from functools import singledispatch

from trt_agent_tools.model.states import State
from trt_agent_tools.store import history
from trt_agent_tools.store.errors import RecordRefusedError
from trt_agent_tools.store.records import (
    BuildAccepted,
    BuildEnded,
    BuildStarted,
    Happened,
    Kind,
    LimitExtended,
    Progressed,
    Record,
    SessionOpened,
    VerdictRecorded,
)

_DOCUMENTS = ("request", "order", "facts", "policy", "snapshot")
"""Of an accepted build: large, and kept beside its event."""

_REFUSALS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
)
"""A fault of the record; any other error is one of the file."""


def apply(connection: sqlite3.Connection, record: Record) -> None:
    """Store `record`.

    Raises:
        RecordRefusedError: it contradicts what is stored.
        sqlite3.Error: it cannot be stored.
    """
    try:
        _apply(record, connection)
    except _REFUSALS as error:
        name = type(record).__name__
        whose = record.session_id if isinstance(record, SessionOpened) else record.build_id
        raise RecordRefusedError(f"the journal refuses {name} of {whose}: {error}") from error


_log = logging.getLogger(__name__)


@singledispatch
def _apply(record: object, connection: sqlite3.Connection) -> None:
    raise TypeError(f"{type(record).__name__} is no record (for {connection})")


@_apply.register
def _(record: SessionOpened, connection: sqlite3.Connection) -> None:
    done = connection.execute(
        "INSERT INTO sessions (session_id, owner, label, policy, budget_s, concurrent_builds, "
        "queued_builds, extension_left_s, created_at, is_default) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_id) DO NOTHING",
        (
            record.session_id,
            record.owner,
            record.label,
            record.policy,
            record.budget_s,
            record.concurrent_builds,
            record.queued_builds,
            record.extension_left_s,
            record.created_at,
            record.is_default,
        ),
    )
    if done.rowcount:
        connection.execute(
            "INSERT INTO events (session_id, at, kind, body) VALUES (?, 0, ?, ?)",
            (record.session_id, Kind.SESSION_OPENED.value, _json(asdict(record))),
        )


@_apply.register
def _(record: BuildAccepted, connection: sqlite3.Connection) -> None:
    done = connection.execute(
        "INSERT INTO builds (build_id, session_id, owner, idempotency_key, created_at, wall, "
        "supervisor, facts, state, last_wall) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (build_id) DO NOTHING",
        (
            record.build_id,
            record.session_id,
            record.owner,
            record.idempotency_key,
            record.created_at,
            record.wall,
            record.supervisor,
            record.facts,
            State.QUEUED.value,
            record.wall,
        ),
    )
    if not done.rowcount:
        return
    connection.execute(
        "INSERT INTO documents (number, policy, request, build_order) VALUES (?, ?, ?, ?)",
        (done.lastrowid, record.policy, record.request, record.order),
    )
    connection.execute("INSERT INTO snapshots VALUES (?, ?)", (done.lastrowid, record.snapshot))
    told = {key: value for key, value in asdict(record).items() if key not in _DOCUMENTS}
    _append(connection, record.build_id, 0.0, Kind.ACCEPTED, told)


@_apply.register
def _(record: BuildStarted, connection: sqlite3.Connection) -> None:
    done = connection.execute(
        "UPDATE builds SET started_wall = coalesce(started_wall, :wall), "
        "device = coalesce(device, :device), worker_pid = coalesce(worker_pid, :worker_pid), "
        "token = coalesce(token, :token), at_most_s = coalesce(at_most_s, :at_most_s), "
        "last_wall = max(last_wall, :wall), "
        "state = CASE WHEN state = 'queued' THEN 'starting' ELSE state END "
        "WHERE build_id = :build_id AND (started_wall IS NULL "
        "OR (worker_pid IS NULL AND :worker_pid IS NOT NULL))",
        asdict(record),
    )
    if not done.rowcount:
        _known(connection, record.build_id)
        return
    _append(
        connection,
        record.build_id,
        _since_accepted(connection, record),
        Kind.STARTED,
        asdict(record),
    )
    # One that has ended holds no device: what it cost is settled, or will never be known.
    connection.execute(
        "INSERT INTO ledger (build_id, kind, session_id, wall, amount_s) "
        "SELECT build_id, 'reserve', session_id, ?, ? FROM builds WHERE build_id = ? AND ended = 0 "
        "ON CONFLICT (build_id, kind) DO NOTHING",
        (record.wall, record.at_most_s, record.build_id),
    )


@_apply.register
def _(record: Progressed, connection: sqlite3.Connection) -> None:
    done = connection.execute(
        "UPDATE builds SET last_wall = max(last_wall, ?), gpu_s = coalesce(?, gpu_s) "
        "WHERE build_id = ? AND ended = 0",
        (record.wall, record.gpu_s, record.build_id),
    )
    if done.rowcount:
        _show(connection, record.build_id, record.snapshot)


@_apply.register
def _(record: Happened, connection: sqlite3.Connection) -> None:
    state = record.state.value if record.state else None
    reason = record.reason.value if record.reason else None
    connection.execute(
        "INSERT INTO events (build_id, at, kind, body, state, reason) VALUES (?, ?, ?, ?, ?, ?)",
        (record.build_id, record.at, record.kind, record.body, state, reason),
    )
    _show_life(connection, record)
    if state:
        connection.execute(
            "UPDATE builds SET state = ?, reason = ? WHERE build_id = ? AND ended = 0",
            (state, reason, record.build_id),
        )


@_apply.register
def _(record: VerdictRecorded, connection: sqlite3.Connection) -> None:
    event = connection.execute(
        "INSERT INTO events (build_id, at, kind, body) VALUES (?, ?, ?, ?)",
        (record.build_id, record.at, Kind.VERDICT.value, record.body),
    )
    connection.execute(
        "INSERT INTO verdicts (seq, build_id, at, rule, action) VALUES (?, ?, ?, ?, ?)",
        (event.lastrowid, record.build_id, record.at, record.rule, record.action),
    )
    _show_life(connection, record)


@_apply.register
def _(record: LimitExtended, connection: sqlite3.Connection) -> None:
    done = connection.execute(
        "UPDATE sessions SET extension_left_s = ? WHERE session_id = ? AND session_id = "
        "(SELECT session_id FROM builds WHERE build_id = ?)",
        (record.extension_left_s, record.session_id, record.build_id),
    )
    if not done.rowcount:
        raise RecordRefusedError(
            f"the journal refuses LimitExtended of {record.build_id}: it knows no such build in "
            f"session {record.session_id}"
        )
    connection.execute(
        "UPDATE documents SET policy = ? "
        "WHERE number = (SELECT number FROM builds WHERE build_id = ?)",
        (record.policy, record.build_id),
    )
    _append(connection, record.build_id, record.at, Kind.LIMIT_EXTENDED, asdict(record))


@_apply.register
def _(record: BuildEnded, connection: sqlite3.Connection) -> None:
    # Where the end does not tell the GPU time, what was last told of it counts.
    done = connection.execute(
        "UPDATE builds SET ended = 1, state = :state, reason = :reason, ended_at = :at, "
        "ended_wall = :wall, last_wall = max(last_wall, :wall), "
        "gpu_s = coalesce(:gpu_s, gpu_s, CASE WHEN started_wall IS NOT NULL THEN 0.0 END) "
        "WHERE build_id = :build_id AND ended = 0",
        {
            "build_id": record.build_id,
            "state": record.state.value,
            "reason": record.reason.value if record.reason else None,
            "at": record.at,
            "wall": record.wall,
            "gpu_s": record.gpu_s,
        },
    )
    if not done.rowcount:
        _known(connection, record.build_id)
        return
    told = {
        key: value for key, value in asdict(record).items() if key not in {"snapshot", "learned"}
    }
    (told["gpu_s"],) = connection.execute(
        "SELECT gpu_s FROM builds WHERE build_id = ?", (record.build_id,)
    ).fetchone()
    _append(connection, record.build_id, record.at, Kind.ENDED, told)
    connection.execute(
        "INSERT INTO ledger (build_id, kind, session_id, wall, amount_s) "
        "SELECT build_id, 'settle', session_id, ?, gpu_s FROM builds "
        "WHERE build_id = ? AND gpu_s IS NOT NULL ON CONFLICT (build_id, kind) DO NOTHING",
        (record.wall, record.build_id),
    )
    _show(connection, record.build_id, record.snapshot)
    if record.learned is not None and record.state is State.SUCCEEDED:
        try:
            history.add(connection, record.build_id, record.wall, record.learned)
        except (*_REFUSALS, ValueError) as error:
            # The end of a build is worth more than what it tells of others.
            _log.error("nothing is learned from build %s: %s", record.build_id, error)


def _known(connection: sqlite3.Connection, build_id: str) -> None:
    if not connection.execute("SELECT 1 FROM builds WHERE build_id = ?", (build_id,)).fetchone():
        raise RecordRefusedError(f"the journal knows no build {build_id}")


def _since_accepted(connection: sqlite3.Connection, record: BuildStarted) -> float:
    (accepted,) = connection.execute(
        "SELECT wall FROM builds WHERE build_id = ?", (record.build_id,)
    ).fetchone()
    return max(0.0, record.wall - float(accepted))


def _show_life(connection: sqlite3.Connection, record: Happened | VerdictRecorded) -> None:
    connection.execute(
        "UPDATE builds SET last_wall = max(last_wall, wall + ?) WHERE build_id = ?",
        (record.at, record.build_id),
    )


def _show(connection: sqlite3.Connection, build_id: str, snapshot: str) -> None:
    connection.execute(
        "UPDATE snapshots SET snapshot = ? "
        "WHERE number = (SELECT number FROM builds WHERE build_id = ?)",
        (snapshot, build_id),
    )


def _append(
    connection: sqlite3.Connection, build_id: str, at: float, kind: Kind, told: Mapping[str, object]
) -> None:
    connection.execute(
        "INSERT INTO events (build_id, at, kind, body) VALUES (?, ?, ?, ?)",
        (build_id, at, kind.value, _json(told)),
    )


def _json(told: Mapping[str, object]) -> str:
    return json.dumps(told, separators=(",", ":"))
