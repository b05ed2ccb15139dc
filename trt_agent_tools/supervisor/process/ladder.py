"""The cancel ladder: ask, SIGTERM, SIGKILL, each with its own deadline, and the proof of the end."""

import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

import anyio

from trt_agent_tools.model.request import CancelOrder
from trt_agent_tools.model.states import Rung
from trt_agent_tools.supervisor.build import CancelRequest
from trt_agent_tools.supervisor.process.launch import Worker, tell

PROOF_S = 10.0
"""How long after SIGKILL every process must be gone; longer means that one is stuck in the kernel."""

_AGAIN_S = 1.0
"""SIGKILL is sent again this often, to what was started meanwhile."""


@dataclass(frozen=True, slots=True)
class Climb:
    """How the ladder ended: by which rung, and whether every process is proven gone."""

    rung: Rung
    proven: bool


async def climb(
    worker: Worker, request: CancelRequest, *, can_ask: bool, hurried: anyio.Event
) -> Climb:
    """End a worker and every process of its build.

    `can_ask` tells whether the worker's library lets a build be cancelled between steps. `hurried` ends
    the patience of the first two rungs. A rung that cannot help is skipped.
    """
    patience = request.escalation
    asked = terminated = False
    can_ask = can_ask and patience.cancel_grace > 0
    if can_ask and not hurried.is_set() and not worker.tree.stopped():
        with anyio.move_on_after(patience.cancel_grace):
            await tell(worker, CancelOrder(reason=request.reason.value))
            if await _before(hurried, worker.tree.worker_exit):
                asked = True
    if asked:
        # The worker is gone; what it started and left behind goes too.
        return Climb(Rung.ASK, proven=await kill(worker))
    if not hurried.is_set() and not worker.tree.stopped():
        worker.tree.send(signal.SIGTERM)
        with anyio.move_on_after(patience.terminate_grace):
            terminated = await _before(hurried, worker.tree.all_exits)
    if terminated:
        return Climb(Rung.TERMINATE, proven=True)
    return Climb(Rung.KILL, proven=await kill(worker))


async def kill(worker: Worker) -> bool:
    """SIGKILL every process of the build until none is left; return whether that was seen."""
    with anyio.move_on_after(PROOF_S):
        while worker.tree.members():
            worker.tree.send(signal.SIGKILL)
            with anyio.move_on_after(_AGAIN_S):
                await worker.tree.all_exits()
    return not worker.tree.members()


async def _before(
    hurried: anyio.Event, condition: Callable[[], Coroutine[None, None, object]]
) -> bool:
    """Wait for `condition`; return False when hurried first."""
    met = False
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            nonlocal met
            await condition()
            met = True
            tasks.cancel_scope.cancel()

        tasks.start_soon(wait)
        await hurried.wait()
        tasks.cancel_scope.cancel()
    return met
