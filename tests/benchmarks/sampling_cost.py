"""What it costs a supervisor to sample what a build does, once a second, as it does."""

import importlib.util
import time
from collections.abc import Sequence
from statistics import mean

import anyio
import psutil

from tests.acceptance.agent import Agent
from tests.benchmarks.harness import (
    POLL_BOUND_S,
    Place,
    Row,
    print_table,
    serve,
    workplace,
)
from trt_agent_tools.supervisor.activity import SAMPLE_S, usage_of
from trt_agent_tools.supervisor.devices import find_devices
from trt_agent_tools.supervisor.gpu import GpuSample
from trt_agent_tools.supervisor.gpu_thread import GpuThread, gpu_thread
from trt_agent_tools.supervisor.process.process_tree import ProcessTree

SAMPLES = 20
MOST_PERCENT = 0.5
LONG_BLOCKS = 96
ON_GPU = {
    "A replay that computes on the GPU": '{"at":0,"do":"burn_gpu"}',
    "A replay that holds memory on the GPU": (
        '{"at":0,"do":"hold_gpu_memory","bytes":1073741824},{"at":0,"do":"hang_idle"}'
    ),
}
FAMILY = ",".join(['{"at":0,"do":"grandchild"}'] * 4 + ['{"at":0,"do":"hang_idle"}'])


class Cost:
    """The processor time of each sample, all threads of this process together, and how long it took."""

    def __init__(self) -> None:
        self.cpu_s: list[float] = []
        self.wall_s: list[float] = []
        self._began = (0.0, 0.0)

    def begin(self) -> None:
        """Begin a sample."""
        self._began = (time.process_time(), time.perf_counter())

    def end(self) -> None:
        """End it."""
        self.cpu_s.append(time.process_time() - self._began[0])
        self.wall_s.append(time.perf_counter() - self._began[1])

    def row(self, what: str, remark: str) -> Row:
        """Return the mean as a share of one core at one sample a second."""
        spent = (
            f"{1e3 * mean(self.cpu_s):.2f} ms of processor each, "
            f"the longest took {1e3 * max(self.wall_s):.1f} ms"
        )
        share = 100 * mean(self.cpu_s) / SAMPLE_S
        return Row(what, share, "%", MOST_PERCENT, 3, f"{spent}; {remark}")


async def sampled(tree: ProcessTree, gpu: GpuThread) -> tuple[Cost, Cost, list[GpuSample]]:
    """Sample once a second; return what the processes' and the GPU's part cost, and what was seen."""
    processes_cost, gpu_cost = Cost(), Cost()
    seen = []
    for _ in range(SAMPLES):
        # At the supervisor's own pace: what is done back to back finds its memory in the cache.
        await anyio.sleep(SAMPLE_S)
        processes_cost.begin()
        processes = tree.descendants()
        usage_of(processes)
        processes_cost.end()
        gpu_cost.begin()
        sample = await gpu.sample(process.pid for process in processes)
        gpu_cost.end()
        if sample:
            seen.append(sample)
    return processes_cost, gpu_cost, seen


def described(processes: Sequence[psutil.Process]) -> str:
    """Return the size of a tree, and of the host that it is on."""
    threads = sum(process.num_threads() for process in processes)
    return f"{len(processes)} processes, {threads} threads; the host has {len(psutil.pids())} processes"


async def costs(place: Place, agent: Agent, build_id: str, visible: str | None) -> list[Row]:
    """Sample one build from this process, which does nothing else."""
    tree = ProcessTree(place.events(build_id).pid, "no token")
    async with gpu_thread(visible) as gpu:
        on_processes, on_gpu, seen = await sampled(tree, gpu)
    rows = [on_processes.row("- processor and memory", described(tree.descendants()))]
    if seen:
        rows.append(on_gpu.row("- GPU", f"{len(seen)} of {SAMPLES} answered in time"))
        both = 100 * (mean(on_processes.cpu_s) + mean(on_gpu.cpu_s)) / SAMPLE_S
        rows.append(Row("together", both, "%", MOST_PERCENT, 3))
    await agent.snapshot("cancel_build", build_id=build_id, wait_s=20)
    return rows


async def working(place: Place, agent: Agent, build_id: str) -> None:
    """Wait until the server itself has sampled the build, and its worker has said hello."""
    recorded = place.state / "builds" / build_id / "events.jsonl"
    with anyio.fail_after(POLL_BOUND_S):
        while (
            not recorded.exists()
            or (await agent.snapshot("get_progress", build_id=build_id)).activity is None
        ):
            await anyio.sleep(SAMPLE_S / 10)


async def main() -> None:
    """Print a table for each build that can be made here."""
    visible = find_devices()[0].visible
    with workplace() as place:
        asked: dict[str, dict[str, str]] = {
            "A replay with four children": {"backend": "replay", "model": replay(place, FAMILY)}
        }
        if importlib.util.find_spec("tensorrt_rtx"):
            model = place.model(LONG_BLOCKS)
            asked["A real build"] = {"backend": "tensorrt_rtx", "model": model}
        if visible is None:
            print("No GPU is visible here: what sampling one costs is not measured.\n")
        else:
            for what, actions in ON_GPU.items():
                asked[what] = {"backend": "replay", "model": replay(place, actions)}
        async with serve(place) as (agent, _):
            for what, arguments in asked.items():
                started = await agent.snapshot("start_build", **arguments)
                await working(place, agent, started.build_id)
                rows = await costs(place, agent, started.build_id, visible)
                print_table(f"{what}, sampled every {SAMPLE_S:g} s: share of one core", rows)


def replay(place: Place, actions: str) -> str:
    """Make a recording that does nothing but these actions; return its name."""
    settings = f'{{"type":"replay","actions":[{actions}]}}'
    return place.recording(f"replay{len(actions)}.jsonl", settings, [])


if __name__ == "__main__":
    anyio.run(main)
