"""Each migration is done once and as a whole, and the files are in what users install."""

import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from trt_agent_tools.store.errors import JournalError
from trt_agent_tools.store.schema import (
    Migration,
    connect,
    create_private,
    migrate,
    shipped_migrations,
)

FIRST = Migration(
    1, "CREATE TABLE one (x);\n-- what follows; is not left out\nCREATE TABLE two (x);"
)
SECOND = Migration(2, "CREATE TABLE three (x);\nINSERT INTO one VALUES (3);")
TRIGGER = Migration(
    2,
    "CREATE TRIGGER copies AFTER INSERT ON one BEGIN\n"
    "  INSERT INTO two VALUES (new.x);\n"
    "  INSERT INTO two VALUES (new.x);\n"
    "END;\nINSERT INTO one VALUES (1)",
)
BROKEN = Migration(2, "CREATE TABLE three (x);\nINSERT INTO nowhere VALUES (3);")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    create_private(tmp_path / "db")
    connection = connect(tmp_path / "db")
    yield connection
    connection.close()


def version(database: sqlite3.Connection) -> int:
    (found,) = database.execute("PRAGMA user_version").fetchone()
    return int(found)


def tables(database: sqlite3.Connection) -> set[str]:
    return {
        name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    }


def test_migrations_are_done_in_order_and_once(database: sqlite3.Connection) -> None:
    migrate(database, [FIRST])
    assert (version(database), tables(database)) == (1, {"one", "two"})
    migrate(database, [FIRST, SECOND])
    migrate(database, [FIRST, SECOND])
    assert (version(database), tables(database)) == (2, {"one", "two", "three"})
    assert database.execute("SELECT x FROM one").fetchall() == [(3,)]


def test_statements_within_a_trigger_stay_together(database: sqlite3.Connection) -> None:
    migrate(database, [FIRST, TRIGGER])
    assert database.execute("SELECT x FROM two").fetchall() == [(1,), (1,)]


def test_a_migration_that_fails_leaves_the_version_before(database: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(database, [FIRST, BROKEN])
    assert (version(database), tables(database)) == (1, {"one", "two"})
    migrate(database, [FIRST, SECOND])
    assert version(database) == 2


def test_a_newer_database_is_refused(database: sqlite3.Connection) -> None:
    migrate(database, [FIRST, SECOND])
    with pytest.raises(JournalError, match="schema 2; this one knows 1"):
        migrate(database, [FIRST])


def test_shipped_migrations_are_numbered_without_a_gap() -> None:
    shipped = shipped_migrations()
    assert [migration.number for migration in shipped] == [*range(1, len(shipped) + 1)]
    folder = files("trt_agent_tools.store").joinpath("migrations")
    assert len([*folder.iterdir()]) == len(shipped)
