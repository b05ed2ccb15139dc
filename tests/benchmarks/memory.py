"""What a server keeps of the builds that have ended: memory, descriptors, threads, processes."""

from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from statistics import linear_regression
from time import monotonic

import anyio
import psutil

from tests.acceptance.agent import Agent
from tests.benchmarks.harness import Place, Row, print_table, serve, workplace
from trt_agent_tools.model.states import State

BUILDS = 50
WARM = 5
"""After so many builds the server has loaded what it needs."""
REAL_EACH = 3
"""Every third build is a real one."""
QUICK_BLOCKS = 2
FLAT_MIB = 2.0
"""Growth that counts as none: what is kept of 45 builds, and a step of the allocator's."""
SPARE_THREADS = 1
"""The pool of threads keeps an idle one for ten seconds."""
REPLAY = Path(__file__).parents[1] / "data" / "quick.jsonl"


@dataclass(frozen=True)
class Measured:
    """The server at one moment."""

    rss: int
    uss: int
    descriptors: int
    threads: int
    children: int


def measure(process: psutil.Process) -> Measured:
    """Measure the server."""
    memory = process.memory_full_info()
    return Measured(
        memory.rss,
        memory.uss,
        process.num_fds(),
        process.num_threads(),
        len(process.children(recursive=True)),
    )


async def one_build(place: Place, agent: Agent, number: int) -> None:
    """Build as an agent does, with looks at the whole tree in between."""
    real = number % REAL_EACH == 0
    started = await agent.snapshot(
        "start_build",
        model=place.model(QUICK_BLOCKS) if real else "quick.jsonl",
        backend="tensorrt_rtx" if real else "replay",
        output=f"{number}.engine",
    )
    snapshot = started
    while not snapshot.ended:
        snapshot = await agent.snapshot(
            "get_progress",
            build_id=started.build_id,
            detail="tree",
            wait_s=20,
            since_seq=snapshot.seq,
        )
    assert snapshot.state is State.SUCCEEDED, snapshot.error
    await agent.call("get_log", build_id=started.build_id)


async def main() -> None:
    """Print the table."""
    measured: list[Measured] = []
    with workplace() as place:
        copy(REPLAY, place.root)
        began = monotonic()
        async with serve(place) as (agent, process):
            for number in range(BUILDS):
                await one_build(place, agent, number)
                measured.append(measure(process))
        took = monotonic() - began
    early, late = measured[WARM - 1], measured[-1]
    half = measured[BUILDS // 2 :]
    slope = linear_regression(range(len(half)), [float(each.uss) for each in half]).slope
    mib = 1 << 20
    rows = [
        Row(f"resident after {WARM} builds", early.rss / mib, "MiB", None, 1),
        Row(f"resident after {BUILDS} builds", late.rss / mib, "MiB", None, 1),
        Row("growth, resident", (late.rss - early.rss) / mib, "MiB", FLAT_MIB),
        Row("growth, memory of its own (USS)", (late.uss - early.uss) / mib, "MiB", FLAT_MIB),
        Row("slope over the second half, USS", slope / 1024, "KiB a build", None, 1),
        Row("growth, open descriptors", late.descriptors - early.descriptors, "", 0, 0),
        Row("growth, threads", late.threads - early.threads, "", SPARE_THREADS, 0),
        Row("child processes left", late.children, "", 0, 0),
        Row("descriptors at the end", late.descriptors, "", None, 0),
        Row("threads at the end", late.threads, "", None, 0),
    ]
    real = len(range(0, BUILDS, REAL_EACH))
    print_table(
        f"The server over {BUILDS} builds, {real} of them real, the rest replayed ({took:.0f} s)",
        rows,
    )


if __name__ == "__main__":
    anyio.run(main)
