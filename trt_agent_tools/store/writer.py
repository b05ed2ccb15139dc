"""The one thread that writes: it gathers what is asked for while a commit runs into the next one."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from trt_agent_tools.store.answer import Answer, start_thread
from trt_agent_tools.store.applying import apply
from trt_agent_tools.store.errors import JournalError, RecordRefusedError, unusable
from trt_agent_tools.store.records import Progressed
from trt_agent_tools.store.schema import (
    connect,
    create_private,
    migrate,
    shipped_migrations,
)

MAX_BATCH = 500
"""So many pieces of work share one commit at most."""

PROGRESS_EVERY_S = 0.25
"""Progress alone is committed no more often, all builds together; it rides along with other commits."""

CHECKPOINT_AFTER = 1000
"""So many changed rows are in the write-ahead log, about, before it is copied into the database."""

_log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Done inside a transaction, which it neither ends nor leaves."""


@dataclass(frozen=True, slots=True)
class _Entry:
    work: Work[Any]  # of the answer's type, as `submit` has it
    answer: Answer[Any]


class Writer:
    """Owns the connection that writes. Made and used by `Journal`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wake = threading.Condition()
        self._entries: list[_Entry] = []
        self._progress: dict[str, Progressed] = {}
        self._closing = False
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._copied = 0
        self._progress_due = 0.0
        self.error: str | None = None
        """Why the last write failed; None once one succeeds."""
        self.opened: Answer[None] = Answer()
        """Fails if the file cannot be used."""
        self.closed: Answer[None] = Answer()

    def start(self) -> None:
        """Start the thread; `opened` tells how opening went.

        Raises:
            JournalError: the system gives none.
        """
        start_thread(self._run, "journal writer")

    def submit(self, work: Work[T]) -> Answer[T]:
        """Do `work` in a transaction and answer once it is on the disk.

        If it raises `RecordRefusedError`, nothing of it is stored, and others are not touched.
        """
        answer: Answer[T] = Answer()
        with self._wake:
            if self._closing:
                answer.fail(JournalError(f"the journal {self._path} is closed"))
            else:
                self._entries.append(_Entry(work, answer))
                self._wake.notify()
        return answer

    def note_progress(self, record: Progressed) -> None:
        """Store `record` soon, unless a newer one of its build comes first."""
        with self._wake:
            if not self._closing:
                self._progress[record.build_id] = record
                self._wake.notify()

    def stop(self) -> None:
        """Take no more; `closed` tells when what was taken is written."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def _run(self) -> None:
        try:
            self._open()
        except (sqlite3.Error, OSError, JournalError) as error:
            self._disconnect()
            self.opened.fail(self._told(error, "opened"))
            return
        self.opened.give(None)
        while (batch := self._next_batch()) is not None:
            self._write(*batch)
            self._checkpoint()
        self._disconnect()
        self.closed.give(None)

    def _open(self) -> None:
        create_private(self._path)
        self._connection = connect(self._path)
        migrate(self._connection, shipped_migrations())
        found = self._path.stat()
        self._file = (found.st_dev, found.st_ino)

    def _next_batch(self) -> tuple[list[_Entry], list[Progressed]] | None:
        """Wait for work; None when there is none left and there will be none."""
        with self._wake:
            while not (self._entries or self._closing):
                if not self._progress:
                    self._wake.wait()
                elif (wait_s := self._progress_due - time.monotonic()) > 0:
                    self._wake.wait(wait_s)
                else:
                    break
            entries, self._entries = self._entries[:MAX_BATCH], self._entries[MAX_BATCH:]
            progress, self._progress = list(self._progress.values()), {}
            if not (entries or progress):
                return None
        if progress:
            self._progress_due = time.monotonic() + PROGRESS_EVERY_S
        return [entry for entry in entries if not entry.answer.is_unwanted], progress

    def _write(self, entries: Sequence[_Entry], progress: Sequence[Progressed]) -> None:
        try:
            outcomes = self._commit([*map(_storing, progress), *(entry.work for entry in entries)])
        except Exception as error:  # noqa: BLE001  (whatever it is: callers are told, the thread lives on)
            told = str(self._told(error, "written"))
            self._disconnect()
            self.error = told
            for entry in entries:
                entry.answer.fail(JournalError(told))
            return
        self.error = None
        for outcome in outcomes[: len(progress)]:
            if isinstance(outcome, RecordRefusedError):
                # Nobody waits for it.
                _log.error("%s", outcome)
        for entry, outcome in zip(entries, outcomes[len(progress) :], strict=True):
            if isinstance(outcome, RecordRefusedError):
                entry.answer.fail(outcome)
            else:
                entry.answer.give(outcome)

    def _commit(self, works: Sequence[Work[Any]]) -> list[object]:
        """Commit what can be stored; return what each returned, or the refusal of those that cannot."""
        self._check_in_place()
        if self._connection is None:
            self._connection = connect(self._path)
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        outcomes = [_apart(connection, work) for work in works]
        connection.execute("COMMIT")
        self._check_in_place()
        return outcomes

    def _checkpoint(self) -> None:
        """Copy the write-ahead log into the database now and then, while nobody waits for it."""
        connection = self._connection
        if connection is None or connection.total_changes - self._copied < CHECKPOINT_AFTER:
            return
        self._copied = connection.total_changes
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            # What was acknowledged is safe in the log, which goes on growing.
            self.error = str(self._told(error, "tidied"))
            self._disconnect()

    def _check_in_place(self) -> None:
        """Raise where the file is gone or another: SQLite would go on writing to nowhere."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            raise JournalError(f"the journal {self._path} was removed") from None
        if (found.st_dev, found.st_ino) != self._file:
            raise JournalError(f"the journal {self._path} was replaced by another file")

    def _disconnect(self) -> None:
        connection, self._connection, self._copied = self._connection, None, 0
        if connection is None:
            return
        try:
            connection.close()
        except sqlite3.Error as error:
            self.error = str(self._told(error, "closed"))

    def _told(self, error: Exception, verb: str) -> JournalError:
        return error if isinstance(error, JournalError) else unusable(self._path, verb, error)


def _apart(connection: sqlite3.Connection, work: Work[Any]) -> object:
    """Do `work`; if the journal refuses it, return why, with the rest of the transaction kept."""
    connection.execute("SAVEPOINT work")
    try:
        done: object = work(connection)
    except RecordRefusedError as error:
        connection.execute("ROLLBACK TO work")
        done = error
    connection.execute("RELEASE work")
    return done


def _storing(record: Progressed) -> Work[None]:
    return partial(apply, record=record)
