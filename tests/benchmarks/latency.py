"""How soon an event is seen by a client, and what `get_progress` costs beside a tool that does nothing.

All of it over stdio, with a real client that asks without pause. An event's time is the worker's own, on
the clock that all processes of the host share.
"""

import time
from collections.abc import Awaitable, Callable
from statistics import median

import anyio

from tests.acceptance.agent import Agent
from tests.benchmarks.harness import (
    Place,
    Row,
    percentile,
    print_table,
    serve,
    stdio_server,
    workplace,
)
from trt_agent_tools.model.events import (
    EngineWritten,
    Origin,
    PhaseFinished,
    PhaseStarted,
    WorkerEvent,
)

EVERY_S = 0.02
EVENTS = 500
CALLS = 2000
LONG_BLOCKS = 96
SILENT = "Determining refit engines"
OUTER = 1

Call = Callable[[], Awaitable[None]]


def replay(place: Place, *, busy: bool) -> str:
    """Write a replay whose phases come and go every 20 ms, with a core kept busy or idle between."""
    events: list[WorkerEvent] = [PhaseStarted(0.1, OUTER, "Building engine", EVENTS)]
    for number in range(EVENTS):
        at = 0.5 + number * EVERY_S
        instance = number + OUTER + 1
        events.append(PhaseStarted(at, instance, f"n{number}", 1, OUTER))
        events.append(PhaseFinished(at + 0.9 * EVERY_S, instance))
    end = 0.5 + EVENTS * EVERY_S
    events += [PhaseFinished(end, OUTER), EngineWritten(end, "e", 1, "0" * 64, "m")]
    burns = [f'{{"at":{0.5 + n * EVERY_S + 0.0001},"do":"burn_cpu"}}' for n in range(EVENTS)]
    settings = f'{{"type":"replay","actions":[{",".join(burns) if busy else ""}]}}'
    return place.recording("busy.jsonl" if busy else "idle.jsonl", settings, events)


async def seen(place: Place, agent: Agent, *, busy: bool) -> list[float]:
    """Return, for each phase, the seconds from its start to an answer that shows it or a later one."""
    model = replay(place, busy=busy)
    build_id = (await agent.snapshot("start_build", model=model, backend="replay")).build_id
    shown: dict[int, float] = {}
    while True:
        content = (await agent.call("get_progress", build_id=build_id)).structured_content
        now = time.monotonic()
        assert content
        name = content.get("current", "").rpartition(" > ")[2]
        if name.startswith("n"):
            shown.setdefault(int(name[1:]), now)
        if content["state"] in {"succeeded", "failed", "cancelled"}:
            assert content["state"] == "succeeded", content
            break
    events = place.events(build_id)
    took = []
    for event in events.all:
        if isinstance(event, PhaseStarted) and event.name.startswith("n"):
            number = int(event.name[1:])
            # One that no answer showed was over before its turn came: the next one counts for it.
            later = [shown[n] for n in range(number, EVENTS) if n in shown][:1]
            took += [at - (events.origin + event.at) for at in later]
        assert not isinstance(event, PhaseStarted) or event.origin is Origin.TENSORRT
    return took


def visible(what: str, took: list[float]) -> list[Row]:
    """Return the rows of one kind."""
    return [
        Row(f"{what}: p50", 1000 * median(took), "ms", None, 1, f"n={len(took)}"),
        Row(f"{what}: p99", 1000 * percentile(took, 0.99), "ms", 20, 1),
        Row(f"{what}: worst", 1000 * max(took), "ms", None, 1),
    ]


async def clocked(call: Call) -> float:
    """Return the milliseconds of one call."""
    before = time.perf_counter()
    await call()
    return 1000 * (time.perf_counter() - before)


async def in_turns(one: Call, other: Call) -> tuple[list[float], list[float]]:
    """Return the milliseconds of two calls, made in turns; which is first alternates."""
    took: dict[Call, list[float]] = {one: [], other: []}
    for number in range(CALLS):
        for call in (one, other) if number % 2 else (other, one):
            took[call].append(await clocked(call))
    return took[one], took[other]


async def compared(
    place: Place, agent: Agent, trivial: Call, *, most_p50: float, output: str
) -> list[Row]:
    """Measure calls in the silent step of a real build."""
    model = place.model(LONG_BLOCKS)
    build_id = (await agent.snapshot("start_build", model=model, output=output)).build_id
    await agent.until(build_id, SILENT)

    async def summary() -> None:
        await agent.call("get_progress", build_id=build_id)

    async def tree() -> None:
        await agent.call("get_progress", build_id=build_id, detail="tree")

    rows: list[Row] = []
    for name, call, most in (("", summary, (most_p50, 5)), (", tree", tree, (None, None))):
        ours, floor = await in_turns(call, trivial)
        for what, took in (("trivial tool beside it", floor), (f"get_progress{name}", ours)):
            rows += [
                Row(f"{what}: p50", median(took), "ms", remark=f"n={len(took)}"),
                Row(f"{what}: p99", percentile(took, 0.99), "ms"),
            ]
        p99 = percentile(ours, 0.99) / percentile(floor, 0.99)
        rows += [
            Row(f"ratio of p50{name}", median(ours) / median(floor), "", most[0]),
            Row(f"ratio of p99{name}", p99, "", most[1]),
        ]
    snapshot = await agent.snapshot("get_progress", build_id=build_id)
    assert SILENT in (snapshot.current or ""), "the step is to be longer than the measurement"
    await agent.snapshot("cancel_build", build_id=build_id, wait_s=30)
    return rows


async def main() -> None:
    """Print the tables."""
    with workplace() as place:
        async with serve(place) as (agent, _):
            idle = await seen(place, agent, busy=False)
            busy = await seen(place, agent, busy=True)
            print_table(
                f"Event to visible in get_progress, over stdio, an event each {EVERY_S * 1000:g} ms",
                [
                    *visible("worker idle between events", idle),
                    *visible("worker busy between events", busy),
                ],
            )
            async with stdio_server("-m", "tests.benchmarks.trivial_server") as (client, _):

                async def ping() -> None:
                    await client.call_tool("ping", {})

                rows = await compared(place, agent, ping, most_p50=2, output="a.engine")
        title = f"get_progress over stdio in the silent step of a real build ({LONG_BLOCKS} blocks)"
        print_table(f"{title}, --embedded", rows)
        async with (
            serve(place, embedded=False) as (agent, _),
            stdio_server("-m", "tests.benchmarks.trivial_server") as (client, _),
        ):

            async def ping_again() -> None:
                await client.call_tool("ping", {})

            rows = await compared(place, agent, ping_again, most_p50=2.5, output="b.engine")
        print_table(f"{title}, through the supervisor", rows)


if __name__ == "__main__":
    anyio.run(main)
