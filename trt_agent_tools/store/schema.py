"""Opens the database file: private, as this version of the program knows it, and not corrupt."""

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from trt_agent_tools.store.errors import JournalError

BUSY_S = 2.0
"""How long a lock of another process (a shell, a backup) is waited for."""

WAL_LIMIT_BYTES = 16 * 1024 * 1024
"""A write-ahead log that once grew larger is cut to this size."""

_FILE_NAME = re.compile(r"(\d{4})_\w+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """What brings a database of version `number - 1` to version `number`."""

    number: int
    sql: str


def shipped_migrations() -> tuple[Migration, ...]:
    """Return the migrations of this program, in order."""
    found = [
        Migration(int(named[1]), file.read_text(encoding="utf-8"))
        for file in files("trt_agent_tools.store").joinpath("migrations").iterdir()
        if (named := _FILE_NAME.fullmatch(file.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.number))


def create_private(path: Path) -> None:
    """Make the file where there is none, for its owner alone; take others' rights from one there.

    Raises:
        OSError: it cannot be made.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # Never opened here: closing it would drop the locks that SQLite holds on it in this process.
        path.chmod(0o600)


def connect(path: Path) -> sqlite3.Connection:
    """Open the database for writing: a commit returns when it is on the disk.

    Raises:
        sqlite3.Error: it cannot be opened, or is no database.
    """
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", timeout=BUSY_S, isolation_level=None, uri=True
    )
    try:
        if connection.execute("PRAGMA page_count").fetchone() == (0,):
            # Lets `prune` give space back; a file with anything in it takes this no more.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        # Checkpoints are made by the writer, after it has answered.
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}").fetchall()
    except BaseException:  # also an interrupt: nobody else has the connection to close
        connection.close()
        raise
    return connection


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Open the database for reading alone.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY_S, isolation_level=None, uri=True
    )


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration]) -> None:
    """Bring the database to the last of `migrations`, each in a transaction of its own.

    Raises:
        JournalError: the database is newer than they are.
        sqlite3.Error: one fails; the database is then as the one before left it.
    """
    newest = migrations[-1].number if migrations else 0
    if (found := _version(connection)) > newest:
        raise JournalError(
            f"a newer version of this program wrote the journal (schema {found}; this one knows "
            f"{newest}): use that version, or another state folder"
        )
    for migration in migrations:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Asked inside: another process may have done it meanwhile.
            if _version(connection) < migration.number:
                for statement in _statements(migration.sql):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {migration.number}")
            connection.execute("COMMIT")
        except BaseException:  # also an interrupt: no migration by half
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def check_sound(connection: sqlite3.Connection) -> None:
    """Read through the whole file, which takes about as long as copying it.

    Raises:
        sqlite3.DatabaseError: it is corrupt.
    """
    found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise sqlite3.DatabaseError(f"malformed: {' '.join(found)[:200]}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(sql: str) -> Iterator[str]:
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
