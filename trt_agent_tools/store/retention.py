"""Removes what is too old or too much, and keeps what it cost."""

import sqlite3
from collections.abc import Collection, Iterable

CHUNK = 10
"""So many builds go in one transaction, so that nobody waits long behind it."""

FREED_PAGES = 200
"""So many pages (4 KiB each) are given back to the file system with each chunk at most."""

_DAY_S = 86_400.0


def builds_to_prune(
    connection: sqlite3.Connection, *, keep_builds: int, keep_days: float, now: float
) -> list[str]:
    """Return the builds to remove, the oldest first.

    Those are to go that have ended and are not among the newest `keep_builds`, or ended more than
    `keep_days` before `now` (seconds since the epoch).
    """
    found = connection.execute(
        "SELECT build_id FROM builds WHERE ended = 1 AND (ended_wall < ? OR number <= "
        "(SELECT number FROM builds ORDER BY number DESC LIMIT 1 OFFSET ?)) ORDER BY number",
        (now - keep_days * _DAY_S, keep_builds),
    )
    return [build_id for (build_id,) in found]


def remove_builds(connection: sqlite3.Connection, build_ids: Iterable[str]) -> None:
    """Remove builds that have ended, with all that is known of them; add their cost to their session."""
    going = [(build_id,) for build_id in build_ids]
    connection.executemany(
        "UPDATE sessions SET removed_s = removed_s + coalesce("
        "(SELECT amount_s FROM ledger WHERE build_id = ?1 AND kind = 'settle'), 0) "
        "WHERE session_id = (SELECT session_id FROM builds WHERE build_id = ?1)",
        going,
    )
    connection.executemany("DELETE FROM builds WHERE build_id = ?", going)
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(min(free, FREED_PAGES)):
        # One page each, whatever number is given: the sqlite3 module steps such a statement once.
        connection.execute("PRAGMA incremental_vacuum(1)")


def prune_sessions(
    connection: sqlite3.Connection, *, keep: Collection[str], keep_days: float, now: float
) -> int:
    """Remove the sessions that nobody will miss, and return how many.

    Those go that have no builds, were opened more than `keep_days` before `now`, are no default
    session and not in `keep`.
    """
    found = connection.execute(
        "SELECT session_id FROM sessions WHERE is_default = 0 "
        "AND CAST(strftime('%s', created_at) AS REAL) < ? "
        "AND NOT EXISTS (SELECT 1 FROM builds WHERE builds.session_id = sessions.session_id)",
        (now - keep_days * _DAY_S,),
    ).fetchall()
    going = [row for row in found if row[0] not in keep]
    connection.executemany("DELETE FROM sessions WHERE session_id = ?", going)
    return len(going)
