"""Builds and sessions that are read from the journal: those of earlier supervisors, and old ones."""

import json

from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.snapshot import BuildList, BuildSummary, Detail, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.progress.cleaning import MAX_PATH, clean_label
from trt_agent_tools.progress.render import at_detail
from trt_agent_tools.store.journal import Journal, JournalError
from trt_agent_tools.store.stored import StoredBuild, StoredSession, StoredSummary


class Archive:
    """Answers from the journal, with refusals that a caller can read."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def snapshot(self, build_id: str, owner: str, detail: Detail) -> Snapshot:
        """Return the last snapshot of a build.

        Raises:
            Refusal: this owner has no such build, or the journal cannot be read.
        """
        try:
            stored = await self._journal.build(build_id)
        except JournalError as error:
            raise _unreadable(error) from error
        if stored is None or stored.owner != owner:
            raise Refusal(
                ErrorCode.UNKNOWN_BUILD,
                f"there is no build {one_line(build_id, 60)!r}",
                "list_builds shows the builds that this server knows.",
            )
        return _shown(stored, detail)

    async def repeated(self, request: StartRequest, owner: str) -> Snapshot | None:
        """Return the build that an earlier supervisor started for the same idempotency key.

        Raises:
            Refusal: the key was used for another request, or the journal cannot be read.
        """
        if request.idempotency_key is None:
            return None
        try:
            stored = await self._journal.by_key(owner, request.idempotency_key)
        except JournalError as error:
            raise _unreadable(error) from error
        if stored is None:
            return None
        if not StartRequest.model_validate_json(stored.request).asks_the_same(request):
            raise other_request(stored.build_id)
        return _shown(stored, Detail.TREE)

    async def listed(
        self, owner: str, session_id: str | None, state: State | None, limit: int
    ) -> BuildList:
        """Return the newest builds of an owner.

        Raises:
            Refusal: the journal cannot be read.
        """
        try:
            found, left_out = await self._journal.summaries(
                owner=owner, session_id=session_id, state=state, limit=limit
            )
        except JournalError as error:
            raise _unreadable(error) from error
        return BuildList(builds=[_summary(stored) for stored in found], left_out=left_out)

    async def session(self, session_id: str) -> StoredSession | None:
        """Return a session that an earlier supervisor opened.

        Raises:
            Refusal: the journal cannot be read.
        """
        try:
            return await self._journal.session(session_id)
        except JournalError as error:
            raise _unreadable(error) from error

    async def ids(self) -> set[str]:
        """Return the ids of all builds of every owner."""
        return set(await self._journal.build_ids())


def other_request(build_id: str) -> Refusal:
    """Return the refusal of a key that was used for another request."""
    return Refusal(
        ErrorCode.INVALID_ARGUMENT,
        "this idempotency_key was used for another request",
        "Use a new key for a new request.",
        {"build_id": build_id},
    )


def _shown(stored: StoredBuild, detail: Detail) -> Snapshot:
    return at_detail(Snapshot.model_validate_json(stored.snapshot), detail)


def _summary(stored: StoredSummary) -> BuildSummary:
    facts = json.loads(stored.facts)
    return BuildSummary(
        build_id=stored.build_id,
        state=stored.state,
        reason=stored.reason,
        label=clean_label(facts["label"]),
        model=one_line(facts["model"], MAX_PATH),
        elapsed_s=round(stored.ended_at or 0.0, 1),
        gpu_s=None if stored.gpu_s is None else round(stored.gpu_s, 1),
        created_at=stored.created_at,
    )


def _unreadable(error: JournalError) -> Refusal:
    return Refusal(
        ErrorCode.JOURNAL_UNAVAILABLE,
        f"the journal cannot be read: {error}",
        "Builds that run go on; mend the state folder.",
    )
