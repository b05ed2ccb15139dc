"""What a build's processes do: processor time and resident memory, sampled at a steady rate."""

from contextlib import suppress
from dataclasses import dataclass

import anyio
import psutil

from trt_agent_tools.model.supervisor_events import ActivitySampled
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.process_tree import ProcessTree

SAMPLE_S = 1.0
BUSY_PERCENT = 3.0
"""Of one core. An idle worker, heartbeats included, uses well under one percent."""


@dataclass(frozen=True, slots=True)
class _Usage:
    cpu_s: float
    rss_bytes: int


async def sample_activity(build: Build, tree: ProcessTree) -> None:
    """Record a sample about once a second, until cancelled."""
    before, before_at = _usage(tree), anyio.current_time()
    while True:
        await anyio.sleep(SAMPLE_S)
        usage, at = _usage(tree), anyio.current_time()
        # A process that ended took its time along, so the sum can fall: that is no use of time.
        percent = max(0.0, 100.0 * (usage.cpu_s - before.cpu_s) / (at - before_at))
        build.record(
            ActivitySampled(
                build.now(),
                busy=percent >= BUSY_PERCENT,
                cpu_percent=round(percent, 1),
                rss_bytes=usage.rss_bytes,
            )
        )
        before, before_at = usage, at


def _usage(tree: ProcessTree) -> _Usage:
    cpu_s = 0.0
    rss = 0
    for process in tree.descendants():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied), process.oneshot():
            times = process.cpu_times()
            cpu_s += times.user + times.system
            rss += process.memory_info().rss
    return _Usage(cpu_s, rss)
