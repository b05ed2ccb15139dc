"""`Supervisor`: the `BuildService` that owns the queue, the devices and the workers."""

import logging
import math
import secrets
from datetime import datetime, timezone
from types import TracebackType

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup
from typing_extensions import Self

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo, Refusal
from trt_agent_tools.model.events import PROTOCOL, Severity
from trt_agent_tools.model.request import MAX_WAIT_S, BuildOrder, StartRequest
from trt_agent_tools.model.snapshot import BuildList, BuildLog, BuildSummary, Detail, Snapshot
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.policy.files import load_policy
from trt_agent_tools.policy.policy import Escalation, Policy
from trt_agent_tools.progress.view import BuildFacts
from trt_agent_tools.supervisor.admission import Admitted, admit
from trt_agent_tools.supervisor.build import Build, CancelRequest
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.devices import DevicePool, find_devices
from trt_agent_tools.supervisor.ladder import PROOF_S
from trt_agent_tools.supervisor.leftovers import claim_folder, sweep
from trt_agent_tools.supervisor.log_file import read_log
from trt_agent_tools.supervisor.run import Run

MAX_LISTED = 500
MAX_LOG_LINES = 1000
MAX_QUEUED = 1000
"""So many builds may wait; one more is refused."""

SHUTDOWN = Escalation(cancel_grace=0.5, terminate_grace=0.5)
"""MCP clients kill a server that does not end within two seconds of its stdin's end."""

_log = logging.getLogger(__name__)


class Supervisor:
    """Use as ``async with Supervisor(config) as service``.

    Leaving the block cancels every live build and returns when their processes are proven gone, or
    when SIGKILL was given its time to work.
    """

    def __init__(self, config: SupervisorConfig) -> None:
        self._config = config
        self._policy = load_policy(config.policy)
        self._devices = find_devices()
        self._builds: dict[str, Build] = {}
        self._keys: dict[str, Build] = {}
        self._closing = False

    async def __aenter__(self) -> Self:
        """Make the state folder, clear what dead supervisors left, and take builds.

        Raises:
            Refusal: the policy is not valid.
            OSError: the state folder cannot be used.
        """
        state = self._config.state_dir
        for folder in (state, state / "builds", state / "locks"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await anyio.to_thread.run_sync(sweep, state / "builds")
        self._pool = DevicePool(self._devices, state / "locks")
        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every live build, bounded."""
        self._closing = True
        for build in self._builds.values():
            build.ask_to_end(CancelRequest(Reason.SERVER_SHUTDOWN, SHUTDOWN))
            # A ladder that a caller's cancel began earlier may be more patient than there is time.
        patience = SHUTDOWN.cancel_grace + SHUTDOWN.terminate_grace
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(patience):
                await self._all_ended()
            for build in self._builds.values():
                build.ask_to_end(CancelRequest(Reason.SERVER_SHUTDOWN, SHUTDOWN, at_once=True))
            with anyio.move_on_after(PROOF_S):
                await self._all_ended()
        self._tasks.cancel_scope.cancel()
        # What ended the block is the caller's: the group would wrap it.
        await self._tasks.__aexit__(None, None, None)

    async def start(self, request: StartRequest, *, wait_s: float = 0.0) -> Snapshot:
        """See `BuildService.start`."""
        _check_wait(wait_s)
        build = self._repeated(request)
        if build is None:
            policy = self._policy if request.policy is None else load_policy(request.policy)
            admitted = await anyio.to_thread.run_sync(admit, request, self._config, self._devices)
            # Nothing is awaited from here on, so that a caller who is gone cannot leave half of it.
            build = self._repeated(request) or self._accept(request, admitted, policy)
        return await self.progress(
            build.facts.build_id, wait_s=wait_s, since_seq=build.view.seq, detail=Detail.TREE
        )

    async def progress(
        self,
        build_id: str,
        *,
        wait_s: float = 0.0,
        since_seq: int | None = None,
        detail: Detail = Detail.SUMMARY,
    ) -> Snapshot:
        """See `BuildService.progress`."""
        _check_wait(wait_s)
        build = self._find(build_id)
        if wait_s:
            await build.changed_since(build.view.seq if since_seq is None else since_seq, wait_s)
        return build.snapshot(detail)

    async def cancel(
        self,
        build_id: str,
        *,
        reason: str | None = None,
        wait_s: float = 0.0,
        at_once: bool = False,
    ) -> Snapshot:
        """See `BuildService.cancel`."""
        _check_wait(wait_s)
        build = self._find(build_id)
        if reason and not build.has_ended and build.cancel_request is None:
            build.note(f"Cancel asked for: {one_line(reason, 200)}")
        build.ask_to_end(
            CancelRequest(Reason.USER_REQUEST, build.policy.escalation, at_once=at_once)
        )
        if wait_s:
            with anyio.move_on_after(wait_s):
                await build.ended.wait()
        else:
            # The task that carries the cancel out has its turn, so that the answer shows it.
            await anyio.lowlevel.checkpoint()
        return build.snapshot()

    async def list_builds(self, *, state: State | None = None, limit: int = 20) -> BuildList:
        """See `BuildService.list_builds`."""
        _check_count("limit", limit, MAX_LISTED)
        found = [
            build
            for build in reversed(self._builds.values())
            if state is None or build.view.state is state
        ]
        return BuildList(
            builds=[_summary(build) for build in found[:limit]],
            left_out=max(0, len(found) - limit),
        )

    async def log(
        self, build_id: str, *, tail: int = 50, min_severity: Severity | None = None
    ) -> BuildLog:
        """See `BuildService.log`."""
        _check_count("tail", tail, MAX_LOG_LINES)
        build = self._find(build_id)
        return await anyio.to_thread.run_sync(
            lambda: read_log(build.log, build_id, tail=tail, min_severity=min_severity)
        )

    def _find(self, build_id: str) -> Build:
        build = self._builds.get(build_id)
        if build is None:
            raise Refusal(
                ErrorCode.UNKNOWN_BUILD,
                f"there is no build {one_line(build_id, 60)!r}",
                "list_builds shows the builds that this server knows.",
            )
        return build

    def _repeated(self, request: StartRequest) -> Build | None:
        """Return the build that an earlier request with the same idempotency key started."""
        build = self._keys.get(request.idempotency_key) if request.idempotency_key else None
        if build is not None and build.request != request:
            raise Refusal(
                ErrorCode.INVALID_ARGUMENT,
                "this idempotency_key was used for another request",
                "Use a new key for a new request.",
                {"build_id": build.facts.build_id},
            )
        return build

    def _accept(self, request: StartRequest, admitted: Admitted, policy: Policy) -> Build:
        if self._closing:
            raise Refusal(
                ErrorCode.SHUTTING_DOWN, "this server is ending", "Start the build on another one."
            )
        live = [build for build in self._builds.values() if not build.has_ended]
        for other in live:
            if other.order.output == str(admitted.output):
                raise Refusal(
                    ErrorCode.OUTPUT_BUSY,
                    f"build {other.facts.build_id} writes to {one_line(admitted.output.name)}",
                    "Wait for it, cancel it, or give another output.",
                    {"build_id": other.facts.build_id},
                )
        if len(live) >= MAX_QUEUED:
            raise Refusal(
                ErrorCode.QUEUE_FULL,
                f"{len(live)} builds wait already",
                "Wait until some have ended.",
            )
        build = self._make(request, admitted, policy)
        self._builds[build.facts.build_id] = build
        if request.idempotency_key:
            self._keys[request.idempotency_key] = build
        self._tasks.start_soon(self._run, build, name=f"build {build.facts.build_id}")
        return build

    def _make(self, request: StartRequest, admitted: Admitted, policy: Policy) -> Build:
        build_id = f"b_{secrets.token_hex(8)}"
        folder = self._config.state_dir / "builds" / build_id
        output = admitted.output
        hidden = output.with_name(f".{output.name}.{build_id}")
        order = BuildOrder(
            protocol=PROTOCOL,
            build_id=build_id,
            backend=admitted.backend,
            model=str(admitted.model),
            output=str(output),
            partial_engine=f"{hidden}.partial",
            manifest=str(admitted.manifest),
            partial_manifest=f"{hidden}.json.partial",
            roots=[str(root) for root in self._config.roots],
            options=request.options,
            record=str(folder / "events.jsonl"),
            policy=policy.name,
            label=request.label,
        )
        facts = BuildFacts(
            build_id=build_id,
            label=request.label,
            policy=policy.name,
            backend=admitted.backend,
            model=str(admitted.model),
            output=str(output),
            created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        try:
            claim_folder(folder, order)
        except OSError as error:
            raise Refusal(
                ErrorCode.INTERNAL_ERROR,
                f"the state folder {self._config.state_dir} takes no new build: {error.strerror}",
                "Check its disk and permissions, or give another one with --state-dir.",
            ) from error
        return Build(facts=facts, request=request, order=order, policy=policy, folder=folder)

    async def _run(self, build: Build) -> None:
        """Carry one build to its end; a fault here ends this build alone."""
        try:
            device = None
            with anyio.CancelScope() as queue:

                async def leave_the_queue() -> None:
                    await build.cancel_asked.wait()
                    queue.cancel()

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(leave_the_queue)
                    device = await self._pool.lease()
                    tasks.cancel_scope.cancel()
            if device is None:
                request = build.cancel_request
                build.move(State.CANCELLING, request.reason if request else None)
                build.move(
                    State.CANCELLED, request.reason if request else None, ended_by=Rung.DEQUEUED
                )
                return
            run = Run(build, device)
            try:
                await run.to_the_end()
            finally:
                if run.gone:
                    self._pool.give_back(device)
        except Exception:  # noqa: BLE001  (a fault of ours takes no other build along: told, logged)
            _log.exception("build %s", build.facts.build_id)
            if not build.has_ended:
                build.move(
                    State.FAILED,
                    Reason.WORKER_CRASH,
                    error=ErrorInfo(
                        ErrorCode.INTERNAL_ERROR,
                        "the supervisor failed while it watched this build",
                        "The server's log has the trace; please report it.",
                    ),
                )

    async def _all_ended(self) -> None:
        for build in list(self._builds.values()):
            await build.ended.wait()


def _summary(build: Build) -> BuildSummary:
    snapshot = build.snapshot()
    return BuildSummary(
        build_id=snapshot.build_id,
        state=snapshot.state,
        reason=snapshot.reason,
        label=build.facts.label,
        model=build.facts.model,
        elapsed_s=snapshot.elapsed_s,
        created_at=build.facts.created_at,
    )


def _check_wait(wait_s: float) -> None:
    if not math.isfinite(wait_s) or not 0 <= wait_s <= MAX_WAIT_S:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"wait_s is between 0 and {MAX_WAIT_S:.0f} seconds, not {wait_s}",
            "Wait again when a wait is over: that is no error, and the build goes on.",
        )


def _check_count(name: str, value: int, largest: int) -> None:
    if not 1 <= value <= largest:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{name} is between 1 and {largest}, not {value}",
            f"Give a {name} in that range.",
        )
