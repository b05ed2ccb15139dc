"""How long a cancel takes until every process of the build is gone, with the shipped default policy.

The client watches the processes themselves; what the server says of them is measured beside it.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import psutil

from tests.acceptance.agent import Agent
from tests.benchmarks.harness import Place, Row, print_table, serve, workplace
from trt_agent_tools.model.events import PhaseStarted, StepCompleted, WorkerEvent
from trt_agent_tools.model.states import State
from trt_agent_tools.policy.files import load_policy

TIMES = 3
LONG_BLOCKS = 72
SILENT = "Determining refit engines"
QUIET_S = 1.0
ALLOWED_S = 0.2

DEAF = """{"type":"replay","actions":[{"at":0,"do":"ignore_cancel"},{"at":0,"do":"ignore_sigterm"},\
{"at":0.2,"do":"burn_cpu"}]}"""
FAMILY = """{"type":"replay","actions":[{"at":0,"do":"ignore_cancel"},{"at":0,"do":"ignore_sigterm"},\
{"at":0.05,"do":"grandchild","new_session":true,"ignore_sigterm":true},{"at":0.2,"do":"burn_cpu"}]}"""


@dataclass(frozen=True)
class Ended:
    """One cancel: when the last process was gone, when the server said so, and the rung."""

    gone_s: float
    told_s: float
    rung: str
    processes: int


async def cancelled(place: Place, agent: Agent, build_id: str) -> Ended:
    """Cancel a build and watch its processes go."""
    worker = psutil.Process(place.events(build_id).pid)
    family = [worker, *worker.children(recursive=True)]
    descriptors = [os.pidfd_open(process.pid) for process in family]
    asked = time.monotonic()
    gone = told = asked
    rung = ""

    async def watch() -> None:
        nonlocal gone
        for descriptor in descriptors:
            await anyio.wait_readable(descriptor)
        gone = time.monotonic()

    async def cancel() -> None:
        nonlocal told, rung
        snapshot = await agent.snapshot("cancel_build", build_id=build_id, wait_s=45)
        told = time.monotonic()
        assert snapshot.state is State.CANCELLED
        assert snapshot.ended_by
        rung = snapshot.ended_by.value

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        tasks.start_soon(cancel)
    for descriptor in descriptors:
        os.close(descriptor)
    return Ended(gone - asked, told - asked, rung, len(family))


async def in_the_silent_step(place: Place, agent: Agent) -> Ended:
    """Cancel a real build that makes no callback."""
    model = place.model(LONG_BLOCKS)
    build_id = (await agent.snapshot("start_build", model=model)).build_id
    snapshot = await agent.until(build_id, SILENT)
    while (snapshot.quiet_s or 0) < QUIET_S:
        assert not snapshot.ended
        snapshot = await agent.snapshot("get_progress", build_id=build_id, wait_s=0.5)
    return await cancelled(place, agent, build_id)


async def replayed(place: Place, agent: Agent, name: str, settings: str, processes: int) -> Ended:
    """Cancel a replay that was told to resist."""
    events: list[WorkerEvent] = [
        PhaseStarted(0.1, 1, "Building engine", 2),
        # Never reached: a burn lasts until the next event.
        StepCompleted(600, 1, 0),
    ]
    model = place.recording(name, settings, events)
    build_id = (await agent.snapshot("start_build", model=model, backend="replay")).build_id
    await agent.until(build_id, "Building engine")
    worker = psutil.Process(place.events(build_id).pid)
    with anyio.fail_after(10):
        while 1 + len(worker.children(recursive=True)) < processes:
            await agent.call("get_progress", build_id=build_id, wait_s=0.1)
        # What the recording does within its first 0.2 s is done.
        await anyio.sleep(0.5)
    return await cancelled(place, agent, build_id)


def rows(what: str, bound_s: float, ended: Sequence[Ended]) -> list[Row]:
    """Return the rows of one kind; the slowest counts."""
    rungs = "/".join(sorted({each.rung for each in ended}))
    processes = max(each.processes for each in ended)
    remark = f"n={len(ended)}, by {rungs}, {processes} process" + ("es" if processes > 1 else "")
    gone = max(each.gone_s for each in ended)
    return [
        Row(f"{what}: gone after", gone, "s", None, 3, remark),
        Row(f"{what}: that is beyond the graces", gone - bound_s, "s", ALLOWED_S, 3),
        Row(f"{what}: told so after", max(each.told_s for each in ended), "s", None, 3),
    ]


async def main() -> None:
    """Print the table."""
    patience = load_policy("default").escalation
    bound = patience.cancel_grace + patience.terminate_grace
    with workplace() as place:
        async with serve(place) as (agent, _):
            silent = [await in_the_silent_step(place, agent) for _ in range(TIMES)]
            deaf = [await replayed(place, agent, "deaf.jsonl", DEAF, 1) for _ in range(TIMES)]
            family = [await replayed(place, agent, "family.jsonl", FAMILY, 2) for _ in range(TIMES)]
    print_table(
        f"Cancel under the default policy (cancel_grace {patience.cancel_grace:g} s, "
        f"terminate_grace {patience.terminate_grace:g} s), slowest",
        [
            *rows(f"silent step of a real build, {LONG_BLOCKS} blocks", bound, silent),
            *rows("replay deaf to cancel and SIGTERM, one core busy", bound, deaf),
            *rows("the same with a child out of its session", bound, family),
        ],
    )


if __name__ == "__main__":
    anyio.run(main)
