"""Asks a GPU sampler in a thread of its own: a driver may take seconds, or never answer."""

import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue

import anyio
import anyio.from_thread
import anyio.lowlevel

from trt_agent_tools.supervisor.gpu import (
    GpuSample,
    GpuSampler,
    NoGpuSampler,
    open_gpu_sampler,
)

ANSWER_S = 0.25
"""How long a sample may take. A later one is dropped, and none is asked for before it came."""

Opener = Callable[[str | None], GpuSampler | NoGpuSampler]


@asynccontextmanager
async def gpu_thread(
    visible: str | None, opener: Opener = open_gpu_sampler
) -> AsyncIterator["GpuThread"]:
    """Sample the device that CUDA_VISIBLE_DEVICES=`visible` names, for the time of the block.

    Neither its end nor this process's waits for the driver.
    """
    asker = GpuThread()
    if visible is not None:
        asker.start(visible, opener)
    try:
        yield asker
    finally:
        asker.stop()


class GpuThread:
    """Made by `gpu_thread`; belongs to one event loop."""

    def __init__(self) -> None:
        self._loop = anyio.lowlevel.current_token()
        self._orders: SimpleQueue[tuple[int, ...] | None] = SimpleQueue()
        self._answers = False
        """Whether the thread waits for an order."""
        self._sample: GpuSample | None = None
        self._answered = anyio.Event()

    def start(self, visible: str, opener: Opener) -> None:
        """Open the sampler in a new thread, which the interpreter does not wait for at its exit."""
        threading.Thread(
            target=self._serve, args=(visible, opener), name=f"gpu {visible}", daemon=True
        ).start()

    def stop(self) -> None:
        """Close the sampler once its call under way has returned."""
        self._answers = False
        self._orders.put(None)

    async def sample(self, pids: Iterable[int]) -> GpuSample | None:
        """Return what is seen now; None where there is no sampler, or none that answers in time."""
        if not self._answers:
            return None
        self._answers = False
        self._sample, self._answered = None, anyio.Event()
        self._orders.put(tuple(pids))
        with anyio.move_on_after(ANSWER_S):
            await self._answered.wait()
            return self._sample
        return None

    def _serve(self, visible: str, opener: Opener) -> None:
        sampler = opener(visible)
        if isinstance(sampler, NoGpuSampler):
            return
        # The loop may have ended meanwhile.
        with suppress(RuntimeError):
            self._tell(None)
            while (pids := self._orders.get()) is not None:
                self._tell(sampler.sample(pids))
        sampler.close()

    def _tell(self, sample: GpuSample | None) -> None:
        anyio.from_thread.run_sync(self._take, sample, token=self._loop)

    def _take(self, sample: GpuSample | None) -> None:
        self._answers = True
        self._sample = sample
        self._answered.set()
