"""What supervision costs a build: against the bare library, and before TensorRT's first phase."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import anyio

from tests.acceptance.conftest import Agent
from tests.benchmarks.harness import Place, Row, middle, print_table, serve, spread, workplace
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.states import State

LONG_BLOCKS = 40
PAIRS = 7
QUICK_BLOCKS = 2
STARTS = 15
IMPORTS = 7


@dataclass(frozen=True)
class Timed:
    """One build: the library's own call, and all of it from asking to a complete engine."""

    build_s: float
    whole_s: float


def bare(place: Place, model: str) -> Timed:
    """Build in a process of its own, without this package."""
    engine = place.root / "bare.engine"
    asked = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.bare_build", str(place.root / model), str(engine)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
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
    """Compare with the bare library, in turns."""
    model = place.model(LONG_BLOCKS)
    plain: list[Timed] = []
    ours: list[Timed] = []
    parts: list[dict[str, float]] = []
    async with serve(place) as (agent, _):
        for number in range(PAIRS):
            # The order alternates, so that a trend of the machine's favours neither.
            if number % 2 == 0:
                plain.append(bare(place, model))
            timed, where = await supervised(place, agent, model)
            ours.append(timed)
            parts.append(where)
            if number % 2 == 1:
                plain.append(bare(place, model))
    builds = [a.build_s / b.build_s for a, b in zip(ours, plain, strict=True)]
    wholes = [a.whole_s / b.whole_s for a, b in zip(ours, plain, strict=True)]
    extra = [a.whole_s - b.whole_s for a, b in zip(ours, plain, strict=True)]
    least = min(a.build_s for a in ours) / min(b.build_s for b in plain)
    least_whole = min(a.whole_s for a in ours) / min(b.whole_s for b in plain)
    rows = [
        middle("build call, bare", [timed.build_s for timed in plain], "s"),
        middle("build call, supervised", [timed.build_s for timed in ours], "s"),
        Row("ratio, median of pairs", median(builds), "", 1.02, 3, spread(builds)),
        Row("ratio of the quickest", least, "", 1.02, 3),
        middle("whole, bare: process start to file written", [t.whole_s for t in plain], "s"),
        middle("whole, supervised: request to succeeded", [t.whole_s for t in ours], "s"),
        Row("ratio, median of pairs", median(wholes), "", None, 3, spread(wholes)),
        Row("ratio of the quickest", least_whole, "", None, 3),
        middle("difference, median of pairs", extra, "s"),
    ]
    print_table(f"A long build (transformer, {LONG_BLOCKS} blocks), {PAIRS} pairs in turns", rows)
    print_table("Where a long supervised build's time goes, medians", broken_down(parts))


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
