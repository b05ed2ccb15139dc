"""What supervision costs a build: against the bare library, and before TensorRT's first phase.

The two builds of a pair run side by side, each on a core of its own: a builder without a GPU uses one,
and a machine whose speed drifts by a tenth from one build to the next slows both alike.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import geometric_mean, median, stdev

import anyio

from tests.acceptance.agent import Agent
from tests.benchmarks.harness import Place, Row, middle, print_table, serve, spread, workplace
from trt_agent_tools.model.events import Heartbeat
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.states import State

LONG_BLOCKS = 40
PAIRS = 12
FEWEST_PAIRS = 4
PAIRS_S = 120.0
"""No new pair is begun after so long: another one's work on the machine can triple a build's time."""
QUICK_BLOCKS = 2
STARTS = 15
IMPORTS = 7


@dataclass(frozen=True)
class Timed:
    """One build: the library's own call, and all of it from asking to a complete engine."""

    build_s: float
    whole_s: float


async def bare(place: Place, model: str) -> Timed:
    """Build in a process of its own, without this package."""
    engine = place.root / "bare.engine"
    asked = time.monotonic()
    done = await anyio.run_process(
        [sys.executable, "-m", "tests.benchmarks.bare_build", str(place.root / model), str(engine)],
        stderr=subprocess.DEVNULL,
    )
    engine.unlink()
    moments = json.loads(done.stdout)
    return Timed(moments["built"] - moments["parsed"], moments["written"] - asked)


async def supervised(place: Place, agent: Agent, model: str) -> tuple[Timed, dict[str, float]]:
    """Build through the server; return the times and where they went, in seconds."""
    asked = time.monotonic()
    build_id = (await agent.snapshot("start_build", model=model)).build_id
    answered = time.monotonic()
    snapshot = await agent.snapshot("get_progress", build_id=build_id)
    while not snapshot.ended:
        snapshot = await agent.snapshot(
            "get_progress", build_id=build_id, wait_s=45, since_seq=snapshot.seq
        )
    seen = time.monotonic()
    assert snapshot.state is State.SUCCEEDED, snapshot.error
    engine = (place.root / model).with_suffix(".engine")
    beside = engine.with_name(engine.name + ".json")
    manifest = Manifest.model_validate_json(beside.read_bytes())
    (build_s,) = (phase.elapsed_s for phase in manifest.phases if phase.name == "Building")
    engine.unlink()
    beside.unlink()
    events = place.events(build_id)
    moments = {
        "": asked,
        "request to the worker's first line (exec, Python, its imports)": events.origin,
        "to the import (the order is read, the rest is imported)": events.started(
            "Importing TensorRT"
        ),
        "Importing TensorRT": events.finished("Importing TensorRT"),
        "to the parse (options checked, Builder made)": events.started("Parsing the model"),
        "Parsing the model": events.finished("Parsing the model"),
        "to the build (options set)": events.started("Building"),
        "to TensorRT's first phase": events.first_tensorrt_phase(),
        "TensorRT builds": events.finished("Building"),
        "to writing": events.started("Writing the engine"),
        "Writing the engine (hash, fsync, rename)": events.finished("Writing the engine"),
        "to goodbye": events.end(),
        "to `succeeded` seen by the client (exit, proof, hash)": seen,
    }
    parts = {name: after - before for (_, before), (name, after) in pairwise(moments.items())}
    parts["answer of start_build"] = answered - asked
    parts["fixed"] = events.first_tensorrt_phase() - asked
    return Timed(build_s, seen - asked), parts


async def long_builds(place: Place) -> None:
    """Compare with the bare library."""
    model = place.model(LONG_BLOCKS)
    plain: list[Timed] = []
    ours: list[Timed] = []
    parts: list[dict[str, float]] = []
    callbacks = 0
    async with serve(place) as (agent, _):

        async def build_bare() -> None:
            plain.append(await bare(place, model))

        async def build_supervised() -> None:
            timed, where = await supervised(place, agent, model)
            ours.append(timed)
            parts.append(where)

        until = time.monotonic() + PAIRS_S
        for number in range(PAIRS):
            if number >= FEWEST_PAIRS and time.monotonic() > until:
                break
            both = [build_bare, build_supervised]
            async with anyio.create_task_group() as tasks:
                # The order alternates: whoever starts first may get the better core.
                for build in both if number % 2 else reversed(both):
                    tasks.start_soon(build)
        newest = (await agent.call("list_builds", limit=1)).structured_content
        assert newest
        events = place.events(newest["builds"][0]["build_id"])
        callbacks = max(beat.callbacks for beat in events.all if isinstance(beat, Heartbeat))
    builds = [a.build_s / b.build_s for a, b in zip(ours, plain, strict=True)]
    wholes = [a.whole_s / b.whole_s for a, b in zip(ours, plain, strict=True)]
    extra = [a.whole_s - b.whole_s for a, b in zip(ours, plain, strict=True)]
    rows = [
        middle("build call, bare", [timed.build_s for timed in plain], "s"),
        middle("build call, supervised", [timed.build_s for timed in ours], "s"),
        Row("ratio, mean of pairs", geometric_mean(builds), "", 1.02, 3, error(builds)),
        Row("ratio, median of pairs", median(builds), "", 1.02, 3, spread(builds)),
        Row("callbacks in it", callbacks, "", None, 0),
        middle("whole, bare: process start to file written", [t.whole_s for t in plain], "s"),
        middle("whole, supervised: request to succeeded", [t.whole_s for t in ours], "s"),
        Row("ratio, mean of pairs", geometric_mean(wholes), "", None, 3, error(wholes)),
        Row("ratio, median of pairs", median(wholes), "", None, 3, spread(wholes)),
        middle("difference, median of pairs", extra, "s"),
    ]
    print_table(f"A long build (transformer, {LONG_BLOCKS} blocks), {len(ours)} pairs", rows)
    print_table("Where a long supervised build's time goes, medians", broken_down(parts))


def error(ratios: list[float]) -> str:
    """Return the standard error of the mean, as a remark."""
    return f"standard error {stdev(ratios) / len(ratios) ** 0.5:.3f}"


async def quick_builds(place: Place) -> None:
    """Measure what comes before TensorRT's first phase."""
    model = place.model(QUICK_BLOCKS)
    async with serve(place) as (agent, _):
        # The first build reads the library from the disk.
        await supervised(place, agent, model)
        parts = [(await supervised(place, agent, model))[1] for _ in range(STARTS)]
    fixed = [each["fixed"] for each in parts]
    rows = [
        Row("request to TensorRT's first phase, median", median(fixed), "s", 0.6, 3),
        Row("the same, slowest", max(fixed), "s", 0.6, 3, f"n={STARTS}"),
        *broken_down(parts),
        *(
            Row(f"for comparison: python {what}", run_s(*arguments), "s", None, 3)
            for what, arguments in {
                "-c pass": ("-c", "pass"),
                "-c 'import pydantic'": ("-c", "import pydantic"),
                "-c 'import trt_agent_tools.worker.__main__'": (
                    "-c",
                    "import trt_agent_tools.worker.__main__",
                ),
                "-c 'import trt_agent_tools.worker.build'": (
                    "-c",
                    "import trt_agent_tools.worker.build",
                ),
            }.items()
        ),
    ]
    print_table(f"The fixed cost (transformer, {QUICK_BLOCKS} blocks)", rows)


def run_s(*arguments: str) -> float:
    """Return how long Python takes to start, run and end, the median of some runs."""
    seconds = []
    for _ in range(IMPORTS):
        began = time.monotonic()
        subprocess.run([sys.executable, *arguments], check=True)
        seconds.append(time.monotonic() - began)
    return median(seconds)


def broken_down(parts: list[dict[str, float]]) -> list[Row]:
    """Return a row for each part, medians."""
    return [
        Row(f"- {name}", median(values), "s", None, 3, f"slowest {max(values):.3f}")
        for name in parts[0]
        if name != "fixed"
        for values in [[each[name] for each in parts]]
    ]


async def main() -> None:
    """Print the tables."""
    with workplace() as place:
        await quick_builds(place)
        await long_builds(place)


if __name__ == "__main__":
    anyio.run(main)
