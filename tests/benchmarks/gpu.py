"""What the server tells of builds on a real GPU: use, memory, energy, time, and a cancel's end there.

Needs an NVIDIA GPU and the extra `gpu`; says so and ends where they are not.
"""

import sys
import time
from dataclasses import dataclass, field

import anyio

from tests.acceptance.agent import Agent
from tests.benchmarks.harness import (
    POLL_BOUND_S,
    Place,
    Row,
    middle,
    print_table,
    serve,
    workplace,
)
from trt_agent_tools.model.session import Session
from trt_agent_tools.model.snapshot import Activity, Snapshot
from trt_agent_tools.supervisor.devices import find_devices
from trt_agent_tools.supervisor.gpu import (
    ENERGY_EVERY,
    GpuSample,
    GpuSampler,
    NoGpuSampler,
    open_gpu_sampler,
)
from trt_agent_tools.supervisor.nvml import find_device, load_nvml

WORK_S = 10
HELD_GIB = 4
GIB = 1 << 30
CANCELS = 3
LOOK_S = 0.2
EDGE_LOOKS = 6
BURST = '{"at":0.005,"do":"burn_gpu","for_s":0.1},{"at":0.005,"do":"hang_idle","for_s":0.9}'
COMPUTE = """
import sys, time
from trt_agent_tools.worker.cuda import Gpu
Gpu().compute(time.monotonic() + float(sys.argv[1]))
"""
SILENT = (
    '{"at":0.0,"instance":1,"name":"Timing","steps":1,"parent":null,"origin":"tensorrt",'
    '"type":"phase_started"}\n'
    '{"at":0.01,"instance":1,"type":"phase_finished"}\n'
    '{"at":0.02,"path":"e","bytes":1,"sha256":"0","manifest":"m","type":"engine_written"}\n'
)


@dataclass
class Told:
    """What the server said of one build at each look, with when that was, and the end."""

    took_s: float = 0.0
    charged_s: float = 0.0
    looks: list[tuple[float, Activity]] = field(default_factory=list)
    end: Snapshot | None = None

    def rows(self) -> list[Row]:
        """Return what was told; the first and the last samples also cover time without work."""
        inner = [activity for _, activity in self.looks[EDGE_LOOKS:-EDGE_LOOKS]]
        busy = sum(activity.busy for activity in inner)
        rows = [
            Row("busy", busy, "", None, 0, f"of {len(inner)} looks, five a sample"),
            middle("processor", [a.cpu_percent for a in inner], "%"),
        ]
        percents = [a.gpu_percent for a in inner if a.gpu_percent is not None]
        sizes = [a.gpu_memory_bytes / GIB for a in inner if a.gpu_memory_bytes is not None]
        if percents:
            rows.append(middle("GPU", percents, "%"))
        if sizes:
            rows.append(middle("memory of the build on it", sizes, "GiB"))
        # It is read with every fifth sample; the others repeat it.
        energies: list[tuple[float, float]] = []
        for at, activity in self.looks:
            joules = activity.gpu_energy_j
            if joules is not None and (not energies or energies[-1][1] != joules):
                energies.append((at, joules))
        if len(energies) > 1:
            (first_at, first), (last_at, last) = energies[0], energies[-1]
            rows.append(Row("energy of the device, last told", last, "J", None, 1))
            rows.append(Row("mean power", (last - first) / (last_at - first_at), "W", None, 1))
        if self.end and self.end.gpu_s is not None:
            rows.append(Row("GPU time by the snapshot", self.end.gpu_s, "s", None, 1))
            rows.append(Row("- by the session's ledger", self.charged_s, "s", None, 3))
            rows.append(Row("- request to end, by the client's clock", self.took_s, "s", None, 3))
        return rows


async def start(place: Place, agent: Agent, name: str, actions: str) -> str:
    """Start a replay that does these actions in a step without a callback."""
    settings = f'{{"type":"replay","actions":[{actions}]}}\n'
    (place.root / name).write_text(settings + SILENT)
    return (await agent.snapshot("start_build", model=name, backend="replay")).build_id


async def told(place: Place, agent: Agent, name: str, actions: str) -> Told:
    """Play a build and look at it all the time."""
    result = Told()
    before = await spent_s(agent)
    began = time.monotonic()
    build_id = await start(place, agent, name, actions)
    with anyio.fail_after(POLL_BOUND_S):
        while not (snapshot := await agent.snapshot("get_progress", build_id=build_id)).ended:
            if snapshot.activity:
                result.looks.append((time.monotonic(), snapshot.activity))
            await anyio.sleep(LOOK_S)
    result.end = snapshot
    result.took_s = time.monotonic() - began
    result.charged_s = await spent_s(agent) - before
    return result


async def spent_s(agent: Agent) -> float:
    """Return the GPU time that the default session has been charged."""
    result = await agent.call("get_session")
    return Session.model_validate(result.structured_content).spent_s


async def cancels(place: Place, agent: Agent, visible: str) -> list[Row]:
    """Cancel builds that compute, and look with NVML for what they leave."""
    nvml = load_nvml()
    handle = find_device(nvml, visible)

    def pids() -> set[int]:
        return {each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}

    before = pids()
    seconds, left = [], 0
    for number in range(CANCELS):
        build = await start(place, agent, f"cancel{number}.jsonl", '{"at":0.005,"do":"burn_gpu"}')
        with anyio.fail_after(POLL_BOUND_S):
            while not pids() - before:
                await anyio.sleep(LOOK_S)
        began = time.monotonic()
        snapshot = await agent.snapshot("cancel_build", build_id=build, wait_s=45)
        assert snapshot.ended
        seconds.append(time.monotonic() - began)
        left += len(pids() - before)
    nvml.nvmlShutdown()
    return [
        middle("cancel to `cancelled`, the default policy", seconds, "s"),
        Row("processes of ours on the GPU then", left, "", 0, 0, f"after {CANCELS} cancels"),
    ]


def idle(sampler: GpuSampler) -> list[Row]:
    """Return what the device does before any build."""
    told: list[tuple[float, GpuSample]] = []
    for _ in range(ENERGY_EVERY + 1):
        time.sleep(1)
        told.append((time.monotonic(), sampler.sample([])))
    (first_at, first), (last_at, last) = told[0], told[-1]
    rows = [
        Row("use", last.device_percent or 0, "%", None, 0),
        Row("memory in use", (last.device_memory_bytes or 0) / GIB, "GiB"),
    ]
    if first.energy_j is not None and last.energy_j is not None:
        watts = (last.energy_j - first.energy_j) / (last_at - first_at)
        rows.append(Row("mean power", watts, "W", None, 1))
    return rows


async def main() -> None:
    """Print the tables."""
    visible = find_devices()[0].visible
    began = time.monotonic()
    sampler = open_gpu_sampler(visible)
    opened_s = time.monotonic() - began
    if isinstance(sampler, NoGpuSampler) or visible is None:
        reason = sampler.reason if isinstance(sampler, NoGpuSampler) else "no GPU"
        sys.exit(f"nothing to measure here: {reason}")
    nvml = load_nvml()
    name = nvml.nvmlDeviceGetName(find_device(nvml, visible))
    nvml.nvmlShutdown()
    rows = [Row("opening the sampler", opened_s, "s", None, 3), *idle(sampler)]
    sampler.close()
    print_table(f"{name}, before any build", rows)
    with workplace() as place:
        async with serve(place) as (agent, _):
            burn = f'{{"at":0.005,"do":"burn_gpu","for_s":{WORK_S}}}'
            computing = await told(place, agent, "burn.jsonl", burn)
            print_table(f"A build that computes there for {WORK_S} s", computing.rows())
            hold = f'{{"at":0.005,"do":"hold_gpu_memory","bytes":{HELD_GIB * GIB}}}'
            hang = f'{{"at":0.005,"do":"hang_idle","for_s":{WORK_S}}}'
            holding = await told(place, agent, "hold.jsonl", f"{hold},{hang}")
            print_table(f"A build that holds {HELD_GIB} GiB there and does nothing", holding.rows())
            bursts = await told(place, agent, "bursts.jsonl", ",".join([BURST] * WORK_S))
            print_table("A build that computes there for 0.1 s of each second", bursts.rows())
            command = [sys.executable, "-c", COMPUTE, str(2 * WORK_S)]
            async with await anyio.open_process(command, stdout=None, stderr=None) as other:
                beside = await told(place, agent, "beside.jsonl", f"{hold},{hang}")
                other.kill()
            print_table("One that holds memory while another process computes there", beside.rows())
            print_table("Cancels", await cancels(place, agent, visible))


if __name__ == "__main__":
    anyio.run(main)
