"""What it costs that the supervisor is a process of its own: a call over its socket, and finding it."""

import gc
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import anyio

from tests.benchmarks.harness import Place, Row, middle, percentile, print_table, workplace
from trt_agent_tools.api.attach import ask, attach, stop
from trt_agent_tools.api.client import RemoteService
from trt_agent_tools.model.events import EngineWritten, PhaseStarted, WorkerEvent
from trt_agent_tools.model.request import Backend, FrontEnd, StartRequest
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Detail
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

CALLS = 3000
STARTS = 5
LASTS_S = 600.0
"""How long the build that is asked about would take; it is cancelled before."""

Call = Callable[[], Awaitable[object]]


def configured(place: Place, state: Path) -> SupervisorConfig:
    """Return the configuration of a supervisor in `state`."""
    return SupervisorConfig(state, (place.root,), enable_replay=True)


def allowed(place: Place) -> FrontEnd:
    """Return what the front ends of this benchmark allow."""
    return FrontEnd(roots=[str(place.root)], enable_replay=True)


async def quiet_build(place: Place, service: BuildService, output: str) -> str:
    """Start a build that does nothing for long, and return its id once it builds."""
    events: list[WorkerEvent] = [
        PhaseStarted(0.0, 1, "Building engine", 6),
        EngineWritten(LASTS_S, "e", 1, "0" * 64, "m"),
    ]
    name = place.recording(f"{output}.jsonl", '{"type":"replay"}', events)
    model, output = str(place.root / name), str(place.root / output)
    build = await service.start(StartRequest(model=model, backend=Backend.REPLAY, output=output))
    while build.current is None:
        build = await service.progress(build.build_id, wait_s=5, since_seq=build.seq)
    return build.build_id


async def in_turns(*calls: Call) -> list[list[float]]:
    """Return the milliseconds of each call, made in turns."""
    took: list[list[float]] = [[] for _ in calls]
    gc.collect()
    for number in range(CALLS):
        for offset in range(len(calls)):
            index = (number + offset) % len(calls)
            before = time.perf_counter()
            await calls[index]()
            took[index].append(1000 * (time.perf_counter() - before))
    return took


async def per_call(place: Place, remote: RemoteService) -> list[Row]:
    """Compare the service in this process with the one behind the socket."""
    rows: list[Row] = []
    async with Supervisor(configured(place, place.state / "local")) as local:
        here = await quiet_build(place, local, "here.engine")
        there = await quiet_build(place, remote, "there.engine")
        for detail, most in ((Detail.SUMMARY, 1.2), (Detail.TREE, None)):
            near, far = await in_turns(
                lambda detail=detail: local.progress(here, detail=detail),  # type: ignore[misc]
                lambda detail=detail: remote.progress(there, detail=detail),  # type: ignore[misc]
            )
            name = f"progress, {detail.value}"
            rows += [
                Row(f"{name}, in this process: p50", median(near), "ms", remark=f"n={CALLS}"),
                Row(f"{name}, over the socket: p50", median(far), "ms", remark=f"n={CALLS}"),
                Row(f"{name}, over the socket: p99", percentile(far, 0.99), "ms"),
                Row(f"{name}, added: p50", median(far) - median(near), "ms", most),
            ]
        await remote.cancel(there, at_once=True, wait_s=10)
    return rows


async def ended(state: Path) -> None:
    """Return once nobody answers for the state folder."""
    with anyio.fail_after(10):
        while await ask(state):
            await anyio.sleep(0.02)


async def finding(place: Place) -> list[Row]:
    """Measure how long a front end takes to be attached."""
    state = place.state / "finding"
    config = configured(place, state)
    first: list[float] = []
    found: list[float] = []
    for _ in range(STARTS):
        for took in (first, found):
            before = time.perf_counter()
            async with attach(config, allowed(place)):
                took.append(time.perf_counter() - before)
        await stop(state)
        await ended(state)
    more = [a - b for a, b in zip(first, found, strict=True)]
    return [
        middle("attach to a supervisor that runs", [1000 * t for t in found], "ms"),
        middle("start a supervisor and attach", first, "s"),
        middle("the start alone", more, "s", 1.0),
    ]


async def main() -> None:
    """Print the tables."""
    with workplace() as place:
        place.state.mkdir()
        state = place.state / "remote"
        try:
            async with attach(configured(place, state), allowed(place)) as remote:
                rows = await per_call(place, remote)
        finally:
            await stop(state, force=True)
            await ended(state)
        print_table("A call to the supervisor in a process of its own", rows)
        print_table("Finding the supervisor of a state folder", await finding(place))


if __name__ == "__main__":
    anyio.run(main)
