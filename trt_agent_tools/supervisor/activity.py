"""What a build's processes do: processor time, resident memory and GPU, sampled at a steady rate."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import anyio
import psutil

from trt_agent_tools.model.supervisor_events import BUSY_PERCENT, ActivitySampled
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.devices import Device
from trt_agent_tools.supervisor.gpu import GpuSample
from trt_agent_tools.supervisor.gpu_thread import gpu_thread
from trt_agent_tools.supervisor.process.process_tree import ProcessTree

SAMPLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processor time and bytes of resident memory of some processes together."""

    cpu_s: float
    rss_bytes: int


async def sample_activity(
    build: Build, tree: ProcessTree, device: Device, sampled: Callable[[Build], None]
) -> None:
    """Record a sample about once a second, until cancelled; call `sampled` after each."""
    async with gpu_thread(device.visible) as gpu:
        before, before_at = usage_of(tree.descendants()), anyio.current_time()
        while True:
            await anyio.sleep(SAMPLE_S)
            processes = tree.descendants()
            usage, at = usage_of(processes), anyio.current_time()
            # A process that ended took its time along, so the sum can fall: that is no use of time.
            percent = max(0.0, 100.0 * (usage.cpu_s - before.cpu_s) / (at - before_at))
            on_gpu = await gpu.sample(process.pid for process in processes)
            build.record(_event(build.now(), percent, usage.rss_bytes, on_gpu or GpuSample()))
            sampled(build)
            before, before_at = usage, at


def usage_of(processes: Iterable[psutil.Process]) -> Usage:
    """Return what these processes have used so far and hold now; those that are gone do not count."""
    cpu_s = 0.0
    rss = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied), process.oneshot():
            times = process.cpu_times()
            cpu_s += times.user + times.system
            rss += process.memory_info().rss
    return Usage(cpu_s, rss)


def _event(at: float, cpu_percent: float, rss_bytes: int, gpu: GpuSample) -> ActivitySampled:
    return ActivitySampled(
        at,
        busy=cpu_percent >= BUSY_PERCENT or gpu.busy,
        cpu_percent=round(cpu_percent, 1),
        rss_bytes=rss_bytes,
        gpu_percent=gpu.percent,
        gpu_memory_bytes=gpu.own_memory_bytes,
        gpu_energy_j=gpu.energy_j,
    )
