"""Takes one build through its session's slots, the queue for a device, and its run."""

import logging

import anyio

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.verdict import Action, Rule, Verdict
from trt_agent_tools.policy.policy import TimeRule
from trt_agent_tools.supervisor.artefact import Artefact
from trt_agent_tools.supervisor.build import Build, CancelRequest
from trt_agent_tools.supervisor.chronicle import Chronicle
from trt_agent_tools.supervisor.devices import Device, DevicePool
from trt_agent_tools.supervisor.estimates.history import History
from trt_agent_tools.supervisor.estimates.next_try import next_try
from trt_agent_tools.supervisor.reuse.reuser import BuildReuse, Reuser
from trt_agent_tools.supervisor.run import Run

_log = logging.getLogger(__name__)


async def carry(
    build: Build, pool: DevicePool, chronicle: Chronicle, reuser: Reuser, history: History
) -> None:
    """Carry a build to its end, and keep its engine; a fault here ends this build alone."""
    try:
        with reuser.enter(build) as reuse:
            artefact = await _carry(build, pool, chronicle, reuse, history)
            if reuse is not None:
                await reuse.finish(artefact)
    except Exception:  # noqa: BLE001  (a fault of ours takes no other build along: told, logged)
        _log.exception("build %s", build.facts.build_id)
        if not build.has_ended:
            await build.move(
                State.FAILED,
                Reason.WORKER_CRASH,
                error=ErrorInfo(
                    ErrorCode.INTERNAL_ERROR,
                    "the supervisor failed while it watched this build",
                    "The server's log has the trace; please report it.",
                ),
            )


async def _carry(
    build: Build,
    pool: DevicePool,
    chronicle: Chronicle,
    reuse: BuildReuse | None,
    history: History,
) -> Artefact | None:
    """Return the engine, if one was made."""
    session = build.session
    has_slot = False
    device: Device | None = None
    try:
        with anyio.CancelScope() as queue:

            async def leave_the_queue() -> None:
                await build.cancel_asked.wait()
                queue.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(leave_the_queue)
                if reuse is None or not await reuse.answer():
                    await session.slots.acquire()
                    has_slot = True
                    device = await pool.lease()
                tasks.cancel_scope.cancel()
        if build.has_ended:
            return None
        if device is None or build.cancel_request is not None:
            await _leave(build, history)
            return None
        if session.account.left_s(anyio.current_time()) == 0:
            await _refuse(build, history)
            return None
        artefact = await _run(build, device, pool, chronicle, history)
        device = None
        return artefact
    finally:
        if device is not None:
            pool.give_back(device)
        if has_slot:
            session.slots.release()


async def _run(
    build: Build, device: Device, pool: DevicePool, chronicle: Chronicle, history: History
) -> Artefact | None:
    session, build_id = build.session, build.facts.build_id
    limit = build.policy.rules.gpu_time
    await build.move(State.STARTING, device=device.name)
    # Reserved and settled at the very times of the states: the ledger is the builds' device time.
    started = build.accepted + (build.view.started_at or 0.0)
    session.reserve(build_id, started, limit.limit if isinstance(limit, TimeRule) else None)
    run = Run(build, device, chronicle, history)
    try:
        await run.to_the_end()
        return run.artefact
    finally:
        ended = build.view.ended_at
        session.settle(build_id, anyio.current_time() if ended is None else build.accepted + ended)
        if run.gone:
            pool.give_back(device)


async def _leave(build: Build, history: History) -> None:
    request = build.cancel_request
    reason = request.reason if request else Reason.SERVER_SHUTDOWN
    await build.move(State.CANCELLING, reason)
    proposals = await next_try(build, history, reason)
    await build.move(State.CANCELLED, reason, ended_by=Rung.DEQUEUED, proposals=proposals)


async def _refuse(build: Build, history: History) -> None:
    """End a build whose session's budget was used up by the ones before it in the queue."""
    budget = build.session.account.budget_s or 0.0
    used = build.session.account.used_s(anyio.current_time())
    verdict = Verdict(
        rule=Rule.GPU_BUDGET,
        action=Action.CANCEL,
        threshold=budget,
        observed={Rule.GPU_BUDGET.value: round(used, 3)},
        seq=build.view.seq,
        at_s=build.now(),
        message=f"the session's {budget:.0f} s GPU time were used up while the build waited; "
        "open_session with more GPU time",
    )
    await build.give(verdict)
    build.ask_to_end(CancelRequest(Reason.GPU_BUDGET, build.policy.escalation))
    await _leave(build, history)
