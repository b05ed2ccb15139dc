"""What can be asked of a supervisor without changing anything but that somebody asked."""

import anyio
import anyio.to_thread

from trt_agent_tools.model.documents import PolicyList, Recording
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.session import Session
from trt_agent_tools.model.snapshot import BuildList, BuildLog, BuildSummary, Detail, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.policy.policy import Policy
from trt_agent_tools.progress.cleaning import MAX_PATH, clean_label
from trt_agent_tools.supervisor.archive import Archive
from trt_agent_tools.supervisor.build import LOG_NAME, Build
from trt_agent_tools.supervisor.builds import Builds
from trt_agent_tools.supervisor.chronicle import Chronicle
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.documents import (
    MAX_EVENTS,
    RECORD_NAME,
    manifest_of_build,
    read_recording,
    readable_policies,
)
from trt_agent_tools.supervisor.log_file import read_log
from trt_agent_tools.supervisor.refusals import check_count, check_wait
from trt_agent_tools.supervisor.sessions import OpenSession, Sessions
from trt_agent_tools.supervisor.shares import LOCAL

MAX_LISTED = 500
MAX_LOG_LINES = 1000
MAX_IN_SESSION = 20
"""So many of a session's builds are listed with it, the newest."""


class Reading:
    """The half of a supervisor that answers about builds and sessions, from memory or from the journal.

    Every call is on behalf of a principal, who has its own builds and sessions and knows of no others.
    """

    _archive: Archive
    _chronicle: Chronicle

    def __init__(self, config: SupervisorConfig, policy: Policy) -> None:
        self._config = config
        self._policy = policy
        self._builds = Builds()
        self._sessions = Sessions(policy, lambda: not self._chronicle.records_owed)

    async def progress(
        self,
        build_id: str,
        *,
        wait_s: float = 0.0,
        since_seq: int | None = None,
        detail: Detail = Detail.SUMMARY,
        principal: str = LOCAL,
    ) -> Snapshot:
        """See `BuildService.progress`."""
        check_wait(wait_s)
        build = self._attended(build_id, principal)
        if build is None:
            return await self._archive.snapshot(build_id, principal, detail)
        if wait_s:
            await build.changed_since(build.view.seq if since_seq is None else since_seq, wait_s)
        return build.snapshot(detail)

    async def list_builds(
        self,
        *,
        session_id: str | None = None,
        state: State | None = None,
        limit: int = 20,
        principal: str = LOCAL,
    ) -> BuildList:
        """See `BuildService.list_builds`."""
        check_count("limit", limit, MAX_LISTED)
        session = None if session_id is None else await self._session(session_id, principal)
        return await self._listed(principal, session=session, state=state, limit=limit)

    async def session(
        self,
        session_id: str | None = None,
        *,
        principal: str = LOCAL,
        default_policy: str | None = None,
    ) -> Session:
        """See `BuildService.session`; for `default_policy` see `start`."""
        session = await self._session(session_id, principal, default_policy)
        listed = await self._listed(principal, session=session, state=None, limit=MAX_IN_SESSION)
        return session.snapshot(listed.builds, listed.left_out, anyio.current_time())

    async def log(
        self,
        build_id: str,
        *,
        tail: int = 50,
        min_severity: Severity | None = None,
        principal: str = LOCAL,
    ) -> BuildLog:
        """See `BuildService.log`."""
        check_count("tail", tail, MAX_LOG_LINES)
        if self._attended(build_id, principal) is None:
            await self._archive.snapshot(build_id, principal, Detail.SUMMARY)
        path = self._config.state_dir / "builds" / build_id / LOG_NAME
        return await anyio.to_thread.run_sync(
            lambda: read_log(path, build_id, tail=tail, min_severity=min_severity)
        )

    async def manifest(self, build_id: str, *, principal: str = LOCAL) -> Manifest:
        """See `BuildService.manifest`."""
        snapshot = await self.progress(build_id, principal=principal)
        return await anyio.to_thread.run_sync(manifest_of_build, snapshot)

    async def recording(
        self, build_id: str, *, tail: int = 200, principal: str = LOCAL
    ) -> Recording:
        """See `BuildService.recording`."""
        check_count("tail", tail, MAX_EVENTS)
        await self.progress(build_id, principal=principal)
        path = self._config.state_dir / "builds" / build_id / RECORD_NAME
        return await anyio.to_thread.run_sync(lambda: read_recording(path, build_id, tail=tail))

    async def policy_of(self, session_id: str, principal: str) -> str:
        """Return the name of a session's policy.

        Raises:
            Refusal: this principal has no such session, or the journal cannot be read.
        """
        return (await self._session(session_id, principal)).policy.name

    @property
    def own_policy(self) -> str:
        """The name of the policy that holds where nobody names one."""
        return self._policy.name

    async def policies(self) -> PolicyList:
        """See `BuildService.policies`."""
        return await anyio.to_thread.run_sync(readable_policies, self._config.policy)

    async def _listed(
        self, principal: str, *, session: OpenSession | None, state: State | None, limit: int
    ) -> BuildList:
        listed = await self._archive.listed(
            principal, session.session_id if session else None, state, limit
        )
        now = [
            b if (known := self._builds.get(b.build_id)) is None else _summary(known)
            for b in listed.builds
        ]
        return BuildList(builds=now, left_out=listed.left_out)

    async def _session(
        self, session_id: str | None, principal: str, default_policy: str | None = None
    ) -> OpenSession:
        if not self._sessions.knows(session_id) and session_id is not None:
            stored = await self._archive.session(session_id)
            # Asked again, as another call may have brought it back meanwhile.
            if stored is not None and not self._sessions.knows(session_id):
                self._sessions.restore(stored)
        return self._sessions.find(session_id, principal, default_policy)

    def _attended(self, build_id: str, principal: str) -> Build | None:
        """Return a build of this supervisor's and note that somebody asked about it."""
        build = self._builds.of(build_id, principal)
        if build is not None:
            build.attend()
        return build


def _summary(build: Build) -> BuildSummary:
    snapshot = build.snapshot()
    return BuildSummary(
        build_id=snapshot.build_id,
        state=snapshot.state,
        reason=snapshot.reason,
        label=clean_label(build.facts.label),
        model=one_line(build.facts.model, MAX_PATH),
        elapsed_s=snapshot.elapsed_s,
        gpu_s=snapshot.gpu_s,
        created_at=build.facts.created_at,
    )
