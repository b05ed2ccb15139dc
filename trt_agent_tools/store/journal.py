"""`Journal`: what happened to every build, on disk before it is acknowledged."""

import sqlite3
import time
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
from typing_extensions import Self

from trt_agent_tools.model.states import State
from trt_agent_tools.progress.past import Past, Setting
from trt_agent_tools.store import history, queries
from trt_agent_tools.store.applying import apply
from trt_agent_tools.store.errors import JournalError, NoAnswerError, RecordRefusedError
from trt_agent_tools.store.history import KnownModel
from trt_agent_tools.store.reader import Query, Reader, T
from trt_agent_tools.store.records import Progressed, Record
from trt_agent_tools.store.retention import CHUNK, builds_to_prune, prune_sessions, remove_builds
from trt_agent_tools.store.schema import check_sound
from trt_agent_tools.store.stored import (
    Health,
    StoredBuild,
    StoredEvent,
    StoredSession,
    StoredSummary,
)
from trt_agent_tools.store.writer import Writer

__all__ = ["Journal", "JournalError", "RecordRefusedError"]

FILE_NAME = "journal.sqlite3"

KEEP_BUILDS = 10_000
"""So many builds are kept, the newest; those that have not ended in any case."""

KEEP_DAYS = 90.0
"""So long a build is kept after its end."""

ANSWER_S = 10.0
"""A disk that takes longer for one call counts as one that does not answer."""

OPEN_S = 30.0
"""Likewise for opening, migrations included, and for closing."""

CHECK_S = 5.0
"""How long a check may take to read through the file for damage."""

OPEN_CHECK_S = 0.5
"""Likewise while opening: enough for some 200 MB that are in memory."""


class Journal:
    """Made by `open`, to be closed with `aclose`, all in one event loop of asyncio.

    Every call may raise `JournalError`: at once, or after `ANSWER_S` where the disk hangs. A journal that
    could not be written is tried again with the next write.
    """

    def __init__(self, path: Path, writer: Writer, reader: Reader) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader
        self._health = Health(True, None, str(path), 0, 0, 0, None, False)
        """As last checked."""
        self._is_closed = False

    @classmethod
    async def open(cls, folder: Path) -> Self:
        """Open the journal in `folder`, which has to be there; make or migrate it as needed.

        Raises:
            JournalError: it cannot be opened, is corrupt, or is of a newer version of this program.
        """
        path = folder / FILE_NAME
        writer, reader = Writer(path), Reader(path)
        try:
            writer.start()
            await writer.opened.wait(OPEN_S)
            reader.start()
            journal = cls(path, writer, reader)
            await journal._look(OPEN_CHECK_S)
        except BaseException:  # also a cancel: neither thread may stay
            writer.stop()
            reader.stop()
            raise
        return journal

    async def write(self, *records: Record) -> None:
        """Store all of `records`, or none; they are on the disk when this returns.

        A caller that is cancelled meanwhile leaves them to be stored.

        Raises:
            JournalError: they are not stored; if the disk hangs, they may still be.
            RecordRefusedError: the journal works and one of them contradicts it.
        """
        if self._is_closed:
            raise JournalError(f"the journal {self._path} is closed")
        if records:
            await self._writer.submit(partial(_store, records=records)).wait(ANSWER_S)

    async def probe(self) -> None:
        """Write something that changes nothing, to see whether the disk takes it.

        Raises:
            JournalError: it does not.
        """
        if self._is_closed:
            raise JournalError(f"the journal {self._path} is closed")
        await self._writer.submit(_touch).wait(ANSWER_S)

    def write_soon(self, record: Progressed) -> None:
        """Store `record` within about a second and return at once; a newer one of its build beats it.

        If it cannot be stored, `health` tells.
        """
        self._writer.note_progress(record)

    @property
    def health(self) -> Health:
        """How the last write went and how large the journal is; the rest is as last checked."""
        error = self._writer.error or self._health.error
        size = _bytes_on_disk(self._path)
        return replace(self._health, ok=error is None, error=error, bytes=size)

    async def check(self) -> Health:
        """Read through the file, as far as `CHECK_S` allows, and return how it is; raises nothing."""
        try:
            await self._look(CHECK_S)
        except JournalError as error:
            self._health = replace(self._health, error=str(error), checked=True)
        return self.health

    async def unfinished(self) -> list[StoredBuild]:
        """Return the builds that have not ended, in the order in which they were accepted."""
        return await self._ask(queries.unfinished)

    async def build(self, build_id: str) -> StoredBuild | None:
        """Return a build, if there is one with this id."""
        return await self._ask(partial(queries.one_build, build_id=build_id))

    async def by_key(self, owner: str, idempotency_key: str) -> StoredBuild | None:
        """Return the build that `owner` started with this key, if there is one."""
        return await self._ask(partial(queries.build_by_key, owner=owner, key=idempotency_key))

    async def builds(
        self,
        *,
        owner: str,
        session_id: str | None = None,
        state: State | None = None,
        limit: int,
    ) -> tuple[list[StoredBuild], int]:
        """Return up to `limit` builds of `owner`, newest first, and how many are left out."""
        return await self._ask(
            partial(
                queries.newest_builds,
                owner=owner,
                session_id=session_id,
                state=state,
                limit=limit,
            )
        )

    async def summaries(
        self,
        *,
        owner: str,
        session_id: str | None = None,
        state: State | None = None,
        limit: int,
    ) -> tuple[list[StoredSummary], int]:
        """Return what a list shows of the builds that `builds` would return: nothing large is read."""
        return await self._ask(
            partial(
                queries.newest_summaries,
                owner=owner,
                session_id=session_id,
                state=state,
                limit=limit,
            )
        )

    async def build_ids(self) -> list[str]:
        """Return the ids of all builds, whoever owns them."""
        return await self._ask(queries.build_ids)

    async def sessions(self) -> list[StoredSession]:
        """Return all sessions with their accounts, in the order in which they were opened."""
        return await self._ask(queries.sessions)

    async def session(self, session_id: str) -> StoredSession | None:
        """Return a session with its account, if there is one with this id."""
        found = await self._ask(partial(queries.sessions, session_id=session_id))
        return found[0] if found else None

    async def events(
        self, build_id: str, *, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        """Return up to `limit` events of a build whose `seq` is above `after`, in order."""
        return await self._ask(partial(queries.events, build_id=build_id, after=after, limit=limit))

    async def same(self, setting: Setting, model: str, options: str) -> tuple[Past, ...]:
        """Return the past builds of this model with these options in this setting, newest first."""
        return await self._ask(partial(history.same, setting=setting, model=model, options=options))

    async def others(self, setting: Setting, limit: int) -> tuple[Past, ...]:
        """Return up to `limit` past builds of any model in this setting, newest first, a few of each."""
        return await self._ask(partial(history.others, setting=setting, limit=limit))

    async def by_stamp(self, stamp: str) -> KnownModel | None:
        """Return the model whose file had this stamp when it was last built."""
        return await self._ask(partial(history.by_stamp, stamp=stamp))

    async def latest_version(self, backend: str, device: str) -> str | None:
        """Return the version of the library that last built so on this kind of device."""
        return await self._ask(partial(history.latest_version, backend=backend, device=device))

    async def prune(
        self,
        *,
        keep_builds: int = KEEP_BUILDS,
        keep_days: float = KEEP_DAYS,
        keep_sessions: Collection[str] = (),
    ) -> int:
        """Remove builds that are too many or ended too long ago, and return how many.

        None goes that has not ended, and what a session has spent stays. Sessions opened longer than
        `keep_days` ago go too once they have no builds, but for default ones and `keep_sessions`. What
        past builds tell of later ones outlives them, within bounds of its own (`store.history`).
        """
        now = time.time()
        going = await self._ask(
            partial(builds_to_prune, keep_builds=keep_builds, keep_days=keep_days, now=now)
        )
        for first in range(0, len(going), CHUNK):
            chunk = partial(remove_builds, build_ids=going[first : first + CHUNK])
            await self._writer.submit(chunk).wait(ANSWER_S)
        rest = partial(prune_sessions, keep=keep_sessions, keep_days=keep_days, now=now)
        await self._writer.submit(rest).wait(ANSWER_S)
        await self._writer.submit(history.prune).wait(ANSWER_S)
        return len(going)

    async def aclose(self) -> None:
        """Write what was handed over and close; later writes are refused. Twice does no harm.

        Raises:
            JournalError: the disk hangs.
        """
        if self._is_closed:
            return
        self._is_closed = True
        with anyio.CancelScope(shield=True):
            # The writer last: only it can tidy the write-ahead log away when it closes.
            self._reader.stop()
            try:
                await self._reader.closed.wait(ANSWER_S)
            finally:
                self._writer.stop()
                await self._writer.closed.wait(OPEN_S)

    async def _ask(self, query: Query[T]) -> T:
        if self._is_closed:
            raise JournalError(f"the journal {self._path} is closed")
        return await self._reader.submit(query).wait(ANSWER_S)

    async def _look(self, within_s: float) -> None:
        # On a thread and a connection of its own: lists do not wait for it.
        checker = Reader(self._path)
        checker.start()
        sound = checker.submit(check_sound)
        checker.stop()
        builds, unfinished, oldest = await self._ask(queries.totals)
        checked = True
        try:
            await sound.wait(within_s)
            await checker.closed.wait(within_s)
        except NoAnswerError:
            checked = False
        path = str(self._path)
        self._health = Health(True, None, path, 0, builds, unfinished, oldest, checked)


def _touch(connection: sqlite3.Connection) -> None:
    """Set the schema's version to what it is: a page is written, and nothing else changes."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {int(version)}")


def _store(connection: sqlite3.Connection, records: tuple[Record, ...]) -> None:
    for record in records:
        apply(connection, record)


def _bytes_on_disk(path: Path) -> int:
    total = 0
    for file in (path, path.with_name(f"{path.name}-wal")):
        try:
            total += file.stat().st_size
        except OSError:
            # Gone, or never made: it takes no space.
            continue
    return total
