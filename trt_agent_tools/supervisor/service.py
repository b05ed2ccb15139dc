"""`Supervisor`: the `BuildService` that owns the queue, the devices and the workers."""

import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from typing_extensions import Self

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.inspection import Inspection, InspectRequest
from trt_agent_tools.model.request import FrontEnd, StartRequest
from trt_agent_tools.model.session import Session, SessionRequest
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.states import Reason
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.model.verdict import Rule
from trt_agent_tools.policy.files import load_named_policy, load_policy
from trt_agent_tools.policy.limits import extend, parse_extension, tighten
from trt_agent_tools.policy.policy import Escalation, Policy
from trt_agent_tools.store.journal import Journal, JournalError
from trt_agent_tools.supervisor.admission import Admitted, admit
from trt_agent_tools.supervisor.archive import Archive
from trt_agent_tools.supervisor.build import Build, CancelRequest
from trt_agent_tools.supervisor.chronicle import Chronicle
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.devices import DevicePool, find_devices
from trt_agent_tools.supervisor.estimates.fit import check_fit
from trt_agent_tools.supervisor.estimates.history import History
from trt_agent_tools.supervisor.estimates.outlook import Outlook
from trt_agent_tools.supervisor.inspection import Inspector
from trt_agent_tools.supervisor.intake import make_build
from trt_agent_tools.supervisor.lifecycle import carry
from trt_agent_tools.supervisor.observer import Condition, Observer, Observers
from trt_agent_tools.supervisor.process.ladder import PROOF_S
from trt_agent_tools.supervisor.reading import Reading
from trt_agent_tools.supervisor.recovery import recover, remove_folders
from trt_agent_tools.supervisor.refusals import check_wait, ending, too_late
from trt_agent_tools.supervisor.reuse.reuser import Reuser
from trt_agent_tools.supervisor.sessions import OpenSession
from trt_agent_tools.supervisor.shares import LOCAL
from trt_agent_tools.supervisor.watch import Watch

CANCEL_SHOWN_S = 1.0
"""How long a cancel that waits for nothing may wait for its own first change to be written."""

KEEP_S = 1.0
"""How long an end waits for the engines of the builds before it to be kept for reuse."""

SHUTDOWN = Escalation(cancel_grace=0.5, terminate_grace=0.5)
"""MCP clients kill a server that does not end within two seconds of its stdin's end."""


class Supervisor(Reading):
    """Use as ``async with Supervisor(config) as service``.

    Leaving the block cancels every live build and returns when their processes are proven gone, or
    when SIGKILL was given its time to work. `observers` are told of every build that it accepts.
    """

    def __init__(self, config: SupervisorConfig, observers: Iterable[Observer] = ()) -> None:
        super().__init__(config, load_policy(config.policy))
        self._observers = Observers(observers)
        self._devices = find_devices()
        self._inspector = Inspector(self._devices)
        self._reuser = Reuser(config.engine_cache, self._devices)
        self._watch = Watch(self._builds.live)
        self._closing = False

    async def __aenter__(self) -> Self:
        """Make the state folder, bring what dead supervisors left to its end, and take builds.

        Raises:
            Refusal: the state folder cannot be used, or its journal cannot.
        """
        state = self._config.state_dir
        try:
            for folder in (state, state / "builds", state / "locks"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._journal = await Journal.open(state)
            self._recovered = await recover(self._journal)
            await self._journal.prune()
        except (OSError, JournalError) as error:
            raise Refusal(
                ErrorCode.JOURNAL_UNAVAILABLE,
                f"the state folder {state} cannot be used: {error}",
                "Check its disk and permissions, or give another one with --state-dir.",
            ) from error
        self._chronicle = Chronicle(self._journal)
        self._archive = Archive(self._journal)
        self._history = History(self._journal, self._devices)
        kept = await self._archive.ids()
        await anyio.to_thread.run_sync(remove_folders, state / "builds", kept)
        self._pool = DevicePool(self._devices, state / "locks")
        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._watch.run, name="policy watch")
        self._tasks.start_soon(self._chronicle.keep_up, name="journal catch-up")
        self._tasks.start_soon(self._reuser.sweep, name="engine cache sweep")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every live build, bounded."""
        self._closing = True
        for build in self._builds:
            build.ask_to_end(CancelRequest(Reason.SERVER_SHUTDOWN, SHUTDOWN))
            # A ladder that a caller's cancel began earlier may be more patient than there is time.
        patience = SHUTDOWN.cancel_grace + SHUTDOWN.terminate_grace
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(patience):
                await self._all_ended()
            for build in self._builds:
                build.ask_to_end(CancelRequest(Reason.SERVER_SHUTDOWN, SHUTDOWN, at_once=True))
            with anyio.move_on_after(PROOF_S):
                await self._all_ended()
            with anyio.move_on_after(KEEP_S):
                await self._reuser.landed()
        self._tasks.cancel_scope.cancel()
        # What ended the block is the caller's: the group would wrap it.
        await self._tasks.__aexit__(None, None, None)
        with anyio.CancelScope(shield=True):
            await self._chronicle.catch_up()
        with suppress(JournalError):
            # The disk hangs; what was acknowledged is on it.
            await self._journal.aclose()

    async def start(
        self,
        request: StartRequest,
        *,
        wait_s: float = 0.0,
        principal: str = LOCAL,
        default_policy: str | None = None,
        front_end: FrontEnd | None = None,
    ) -> Snapshot:
        """See `BuildService.start`. `front_end` says what is allowed instead of this supervisor's config.

        `default_policy` names the policy of the principal's default session, if not this supervisor's.
        """
        check_wait(wait_s)
        config = self._config if front_end is None else _config_of(self._config, front_end)
        build = self._builds.repeated(request, principal)
        if build is None:
            earlier = await self._archive.repeated(request, principal)
            if earlier is not None:
                return earlier
            session = await self._session(request.session_id, principal, default_policy)
            base = session.policy
            if request.policy is not None:
                base = load_named_policy(request.policy)
            elif session.is_default and front_end is not None and front_end.policy:
                base = load_policy(front_end.policy)
            policy = tighten(base, request.limits)
            asked = policy.rules.gpu_time if "gpu_time" in request.limits else None
            session.check_room(asked.limit if asked else None, anyio.current_time())
            admitted = await anyio.to_thread.run_sync(admit, request, config, self._devices)
            outlook = await self._history.outlook(admitted)
            build = self._builds.repeated(request, principal) or await self._accept(
                request, admitted, policy, base, session, config, outlook
            )
        return await self.progress(
            build.facts.build_id,
            wait_s=wait_s,
            since_seq=build.view.seq,
            detail=Detail.TREE,
            principal=principal,
        )

    async def cancel(
        self,
        build_id: str,
        *,
        reason: str | None = None,
        wait_s: float = 0.0,
        at_once: bool = False,
        principal: str = LOCAL,
    ) -> Snapshot:
        """See `BuildService.cancel`."""
        check_wait(wait_s)
        build = self._attended(build_id, principal)
        if build is None:
            return await self._archive.snapshot(build_id, principal, Detail.SUMMARY)
        if reason and not build.has_ended and build.cancel_request is None:
            self._tasks.start_soon(build.note, f"Cancel asked for: {one_line(reason, 200)}")
        build.ask_to_end(
            CancelRequest(Reason.USER_REQUEST, build.policy.escalation, at_once=at_once)
        )
        if wait_s:
            with anyio.move_on_after(wait_s):
                await build.ended.wait()
        else:
            # So that the answer shows it; a slow disk does not hold the answer up.
            with anyio.move_on_after(CANCEL_SHOWN_S):
                await build.cancelling.wait()
        return build.snapshot()

    async def extend(
        self,
        build_id: str,
        *,
        limit: str,
        by: float | str,
        reason: str,
        principal: str = LOCAL,
    ) -> Snapshot:
        """See `BuildService.extend`."""
        build = self._attended(build_id, principal)
        by_s = parse_extension(by)
        if build is None:
            ended = await self._archive.snapshot(build_id, principal, Detail.SUMMARY)
            raise too_late(build_id, ended.state)
        if build.has_ended or build.cancel_request is not None:
            raise too_late(build_id, build.view.state)
        build.policy = extend(build.policy, limit, by_s, left_s=build.session.extension_left_s)
        build.session.extension_left_s -= by_s
        build.forget_warnings(Rule(limit))
        await self._chronicle.extend(build)
        await build.note(f"{limit} extended by {format_duration(by_s)}: {one_line(reason, 200)}")
        self._watch.judge(build)
        return build.snapshot(Detail.TREE)

    async def open_session(
        self,
        request: SessionRequest,
        *,
        principal: str = LOCAL,
        front_end: FrontEnd | None = None,
    ) -> Session:
        """See `BuildService.open_session`; `front_end` says which policy holds without one."""
        if request.policy is not None:
            policy = load_named_policy(request.policy)
        elif front_end is not None and front_end.policy is not None:
            # The operator's, not the caller's: it may be any file.
            policy = load_policy(front_end.policy)
        else:
            policy = self._policy
        session = self._sessions.open(request, policy, principal)
        try:
            await self._chronicle.open_session(session)
        except Refusal:
            self._sessions.discard(session)
            raise
        return session.snapshot([], 0, anyio.current_time())

    async def inspect(
        self,
        request: InspectRequest,
        *,
        principal: str = LOCAL,
        front_end: FrontEnd | None = None,
    ) -> Inspection:
        """See `BuildService.inspect`; for `front_end` see `start`."""
        if self._closing:
            raise ending()
        config = self._config if front_end is None else _config_of(self._config, front_end)
        return await self._inspector.inspect(request, config, self._history, principal=principal)

    def live_builds(self) -> list[str]:
        """Return the ids of the builds that wait or run, of every principal."""
        return [build.facts.build_id for build in self._builds.live()]

    def check_ready(self) -> None:
        """Judge, without waiting, whether a build could be accepted now.

        Raises:
            Refusal: this supervisor is ending (`SHUTTING_DOWN`), or its journal could not be written
                when that was last tried (`JOURNAL_UNAVAILABLE`).
        """
        if self._closing:
            raise ending()
        if self._chronicle.is_failing:
            raise Refusal(
                ErrorCode.JOURNAL_UNAVAILABLE,
                "the journal cannot be written, so nothing new is started",
                "Free space, or mend the state folder; builds that run go on.",
            )

    def condition(self) -> Condition:
        """Return how this supervisor stands, its builds aside."""
        stuck = sum(build.outlives_kill for build in self._builds.live())
        free = self._pool.free
        return Condition(
            devices_free=free,
            devices_leased=len(self._devices) - free - stuck,
            devices_out_of_service=stuck,
            journal_failing=self._chronicle.is_failing,
            records_owed=self._chronicle.records_owed,
            builds_recovered=self._recovered,
        )

    async def _accept(
        self,
        request: StartRequest,
        admitted: Admitted,
        policy: Policy,
        base: Policy,
        session: OpenSession,
        config: SupervisorConfig,
        outlook: Outlook,
    ) -> Build:
        if self._closing:
            raise ending()
        self._builds.check_room(admitted, session)
        unsure = check_fit(session, outlook.estimate, self._builds.live(), anyio.current_time())
        build = make_build(
            request, admitted, policy, session, config, self._chronicle, self._observers
        )
        build.base_policy = base
        build.expect(outlook)
        self._builds.add(build)
        try:
            # Done as one, so that a caller who is gone cannot leave half of it.
            with anyio.CancelScope(shield=True):
                await self._chronicle.accept(build)
                self._observers.accepted(build)
                if unsure:
                    await build.note(unsure)
                self._tasks.start_soon(
                    carry,
                    build,
                    self._pool,
                    self._chronicle,
                    self._reuser,
                    self._history,
                    name=f"build {build.facts.build_id}",
                )
        except Refusal:
            self._builds.remove(build)
            await anyio.to_thread.run_sync(shutil.rmtree, build.folder)
            raise
        self._builds.forget_oldest()
        return build

    async def _all_ended(self) -> None:
        for build in self._builds:
            await build.ended.wait()


def _config_of(config: SupervisorConfig, front_end: FrontEnd) -> SupervisorConfig:
    return replace(
        config,
        roots=tuple(Path(root).resolve() for root in front_end.roots),
        enable_replay=front_end.enable_replay,
        allowed_plugins=tuple(Path(plugin) for plugin in front_end.allowed_plugins),
    )
