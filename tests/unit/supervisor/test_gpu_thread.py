"""A driver that answers late, or never, holds nothing up."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterable

import anyio
import pytest

from trt_agent_tools.supervisor.gpu import GpuSample, GpuSampler, NoGpuSampler
from trt_agent_tools.supervisor.gpu_thread import ANSWER_S, GpuThread, gpu_thread

pytestmark = pytest.mark.anyio

LIMIT_S = 10.0


class Driver:
    """A sampler whose answers can be held back."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.closed = threading.Event()
        self.calls = 0

    def open(self, visible: str | None) -> GpuSampler | NoGpuSampler:
        assert visible == "0"
        return self

    def sample(self, pids: Iterable[int]) -> GpuSample:
        self.calls += 1
        self.answers.wait(LIMIT_S)
        return GpuSample(own_percent=float(sum(pids)))

    def close(self) -> None:
        self.closed.set()


async def answered(gpu: GpuThread, *pids: int) -> GpuSample:
    """Ask until there is an answer, as the sampler is opened or a late call returns."""
    with anyio.fail_after(LIMIT_S):
        while (sample := await gpu.sample(pids)) is None:
            await anyio.lowlevel.checkpoint()
        return sample


async def test_the_answer_is_about_the_processes_asked_for() -> None:
    driver = Driver()
    async with gpu_thread("0", driver.open) as gpu:
        assert await answered(gpu, 3, 4) == GpuSample(own_percent=7)
        assert await answered(gpu, 5) == GpuSample(own_percent=5)
    assert await anyio.to_thread.run_sync(driver.closed.wait, LIMIT_S)


async def test_a_driver_that_hangs_costs_one_short_wait_and_then_none() -> None:
    driver = Driver()
    async with gpu_thread("0", driver.open) as gpu:
        await answered(gpu)
        driver.answers.clear()
        calls = driver.calls
        began = time.monotonic()
        for _ in range(100):
            assert await gpu.sample([1]) is None
        assert time.monotonic() - began < 3 * ANSWER_S
        assert driver.calls == calls + 1
        driver.answers.set()
        # What came too late is not taken for the answer to a later question.
        assert await answered(gpu, 8) == GpuSample(own_percent=8)


async def test_without_a_sampler_nothing_is_waited_for() -> None:
    async with gpu_thread("0", lambda _: NoGpuSampler("no driver")) as gpu:
        assert await gpu.sample([1]) is None
    async with gpu_thread(None) as gpu:
        assert await gpu.sample([1]) is None


HANGS = """\
import sys, threading, anyio
from trt_agent_tools.supervisor.gpu_thread import gpu_thread

def opener(visible):
    opening.set()
    threading.Event().wait()

async def main():
    async with gpu_thread("0", opener) as gpu:
        await anyio.to_thread.run_sync(opening.wait)
        assert await gpu.sample([1]) is None

opening = threading.Event()
anyio.run(main)
print("ended")
"""


async def test_a_process_whose_driver_never_answers_still_ends() -> None:
    with anyio.fail_after(30):
        done = await anyio.run_process([sys.executable, "-c", HANGS], stderr=subprocess.STDOUT)
    assert done.stdout == b"ended\n"
