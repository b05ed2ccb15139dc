"""What of a build's story is durable, and how it is told to the journal."""

import json
import logging
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict

import anyio

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.snapshot import Detail
from trt_agent_tools.model.states import TERMINAL, State
from trt_agent_tools.model.supervisor_events import Noted, StateChanged, VerdictGiven
from trt_agent_tools.policy.policy import TimeRule
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.store.journal import Journal, JournalError, RecordRefusedError
from trt_agent_tools.store.records import (
    BuildAccepted,
    BuildEnded,
    BuildStarted,
    Happened,
    LimitExtended,
    Progressed,
    Record,
    SessionOpened,
    VerdictRecorded,
)
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.estimates.outlook import learned
from trt_agent_tools.supervisor.process.identity import this_process
from trt_agent_tools.supervisor.sessions import OpenSession

Durable = StateChanged | Noted | VerdictGiven
"""Events that are on disk before anybody is told of them."""

CATCH_UP_S = 1.0
"""How often it is tried again to write what could not be written."""

MAX_OWED = 5000
"""So many records that could not be written are kept; the oldest go first."""

_log = logging.getLogger(__name__)


class Chronicle:
    """Writes builds and sessions to the journal.

    A journal that cannot be written refuses new builds and sessions. A build that runs goes on: what
    cannot be written of it is logged, noted in its snapshot, and written as soon as that is possible.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._owner = this_process().model_dump_json()
        self._owed: deque[Record] = deque(maxlen=MAX_OWED)
        self._problem = ""
        self._failing = False

    @property
    def is_failing(self) -> bool:
        """Whether the journal could not be written when that was last tried."""
        return self._failing

    @property
    def records_owed(self) -> int:
        """How many records wait for the journal to be written again."""
        return len(self._owed)

    async def accept(self, build: Build) -> None:
        """Write that a build is accepted.

        Raises:
            Refusal: it cannot be written; the build must not be started.
        """
        full = build.snapshot(Detail.FULL)
        await self._or_refuse(
            _opened(build.session),
            BuildAccepted(
                build_id=build.facts.build_id,
                session_id=build.session.session_id,
                owner=build.session.owner,
                idempotency_key=build.request.idempotency_key,
                created_at=build.facts.created_at,
                wall=time.time(),
                supervisor=self._owner,
                request=build.request.model_dump_json(),
                order=build.order.model_dump_json(),
                facts=json.dumps(asdict(build.facts)),
                policy=build.policy.model_dump_json(),
                snapshot=full.model_dump_json(exclude_none=True),
            ),
        )

    async def open_session(self, session: OpenSession) -> None:
        """Write that a session is open.

        Raises:
            Refusal: it cannot be written.
        """
        await self._or_refuse(_opened(session))

    async def extend(self, build: Build) -> None:
        """Write the limits of a build as they are now.

        Raises:
            Refusal: they cannot be written.
        """
        await self._or_refuse(
            LimitExtended(
                build_id=build.facts.build_id,
                session_id=build.session.session_id,
                extension_left_s=build.session.extension_left_s,
                policy=build.policy.model_dump_json(),
                at=build.now(),
            )
        )

    async def tell(self, build: Build, event: Durable) -> str | None:
        """Write an event of a build before it is shown; return what is wrong if that fails."""
        return await self._write_or_owe(build, _record(build, event))

    async def started(self, build: Build, worker_pid: int) -> None:
        """Write which process works on a build."""
        await self._write_or_owe(build, _started(build, None, worker_pid))

    async def keep_up(self) -> None:
        """Write what is owed as soon as the journal takes it, until cancelled."""
        while True:
            await anyio.sleep(CATCH_UP_S)
            await self.catch_up()
            if self._failing and not self._owed:
                # A server that is not ready is sent nothing to write: it finds out by itself when it is.
                with suppress(JournalError):
                    await self._write()

    async def catch_up(self) -> None:
        """Write what is owed, in its order, until the journal fails again."""
        while self._owed:
            record = self._owed[0]
            try:
                await self._write(record)
            except RecordRefusedError as error:
                _log.error("%s", error)
            except JournalError as error:
                self._problem = str(error)
                return
            # Only now: whoever is cancelled meanwhile leaves it to be written again.
            if self._owed and self._owed[0] is record:
                self._owed.popleft()

    def progress(self, build: Build) -> None:
        """Write how far a build is, when there is time; the newest counts."""
        full = build.snapshot(Detail.FULL)
        started = build.view.started_at
        self._journal.write_soon(
            Progressed(
                build_id=build.facts.build_id,
                wall=time.time(),
                gpu_s=None if started is None else build.now() - started,
                snapshot=full.model_dump_json(exclude_none=True),
            )
        )

    async def _write(self, *records: Record) -> None:
        """Write records; without any only see whether that is possible.

        Raises:
            JournalError: they cannot be written; a `RecordRefusedError` says nothing of the journal.
        """
        try:
            await (self._journal.write(*records) if records else self._journal.probe())
        except JournalError as error:
            self._failing = not isinstance(error, RecordRefusedError)
            raise
        self._failing = False

    async def _write_or_owe(self, build: Build, record: Record) -> str | None:
        """Return what is wrong if the record is not written yet."""
        # While something is owed the rest queues behind it: a journal that hangs is waited for once, and
        # keeps the order in which things happened.
        if not self._owed:
            try:
                await self._write(record)
            except RecordRefusedError as error:
                _log.error("build %s: %s", build.facts.build_id, error)
                return str(error)
            except JournalError as error:
                self._problem = str(error)
            else:
                return None
        _log.error("build %s: %s", build.facts.build_id, self._problem)
        self._owed.append(record)
        return self._problem

    async def _or_refuse(self, *records: Record) -> None:
        try:
            await self._write(*records)
        except JournalError as error:
            raise Refusal(
                ErrorCode.JOURNAL_UNAVAILABLE,
                f"the journal cannot be written, so nothing new is started: {error}",
                "Free space, or mend the state folder; builds that run go on.",
            ) from error


def _record(build: Build, event: Durable) -> Record:
    build_id = build.facts.build_id
    if isinstance(event, Noted):
        return Happened(build_id, event.at, "note", json.dumps({"text": event.text}))
    if isinstance(event, VerdictGiven):
        verdict = event.verdict
        return VerdictRecorded(
            build_id,
            event.at,
            verdict.rule.value,
            verdict.action.value,
            json.dumps(asdict(verdict)),
        )
    if event.state in TERMINAL:
        return _ended(build, event)
    if event.state is State.STARTING:
        return _started(build, event, None)
    body = {"state": event.state.value, "reason": event.reason.value if event.reason else None}
    return Happened(build_id, event.at, "state", json.dumps(body), event.state, event.reason)


def _started(build: Build, event: StateChanged | None, worker_pid: int | None) -> BuildStarted:
    limit = build.policy.rules.gpu_time
    device = event.device if event else build.view.device
    return BuildStarted(
        build_id=build.facts.build_id,
        wall=time.time(),
        device=device or "",
        worker_pid=worker_pid,
        token=build.token,
        at_most_s=limit.limit if isinstance(limit, TimeRule) else None,
    )


def _ended(build: Build, event: StateChanged) -> BuildEnded:
    view = fold(build.view, event)
    full = build.shown(view, event.at, Detail.FULL)
    held = None
    if view.started_at is not None and view.ended_at is not None:
        held = view.ended_at - view.started_at
    return BuildEnded(
        build_id=build.facts.build_id,
        at=view.ended_at if view.ended_at is not None else event.at,
        wall=time.time(),
        state=event.state,
        reason=view.reason,
        gpu_s=held,
        snapshot=full.model_dump_json(exclude_none=True),
        learned=learned(build.outlook, view, build.sidecars)
        if build.outlook is not None and view.state is State.SUCCEEDED
        else None,
    )


def _opened(session: OpenSession) -> SessionOpened:
    return SessionOpened(
        session_id=session.session_id,
        owner=session.owner,
        label=session.label,
        policy=session.policy.model_dump_json(),
        budget_s=session.account.budget_s,
        concurrent_builds=session.concurrent_builds,
        queued_builds=session.queued_builds,
        extension_left_s=session.extension_left_s,
        created_at=session.created_at,
        # A default session is a supervisor's, for its life; a journal outlives many.
        is_default=False,
    )
