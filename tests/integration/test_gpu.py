"""A real GPU: what builds do there is seen, charged and ended. Skipped where there is none."""

import ctypes
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio
import pytest

from tests.faults.conftest import DATA, Action, Watcher
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.session import SessionRequest
from trt_agent_tools.model.snapshot import Activity, Snapshot
from trt_agent_tools.model.states import Reason, Rung, State
from trt_agent_tools.model.supervisor_events import BUSY_PERCENT
from trt_agent_tools.supervisor.activity import SAMPLE_S
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.devices import find_devices
from trt_agent_tools.supervisor.gpu import NoGpuSampler, open_gpu_sampler
from trt_agent_tools.supervisor.nvml import Handle, Nvml, find_device, load_nvml
from trt_agent_tools.supervisor.service import Supervisor

pytestmark = pytest.mark.anyio

GIB = 1 << 30
SETTLED_BYTES = 64 << 20
"""The driver's own memory on a device comes and goes by less than this."""
LOOKS = 4
"""A sample."""
RULES = '[rules]\nstep_stall = "3s"\n[escalation]\ncancel_grace = "300ms"\nterminate_grace = "5s"\n'


@dataclass
class Gpu:
    """The GPU that the builds of a test are given, as NVML shows it."""

    nvml: Nvml
    handle: Handle

    def pids(self) -> set[int]:
        """Return the processes that have a CUDA context on it, as the driver numbers them."""
        running = self.nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        return {process.pid for process in running}

    def used(self) -> int:
        """Return the bytes in use on it."""
        return self.nvml.nvmlDeviceGetMemoryInfo(self.handle).used


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    visible = find_devices()[0].visible
    sampler = open_gpu_sampler(visible)
    if isinstance(sampler, NoGpuSampler) or visible is None:
        why = sampler.reason if isinstance(sampler, NoGpuSampler) else "no GPU"
        pytest.skip(f"needs an NVIDIA GPU that NVML shows: {why}")
    sampler.close()
    nvml = load_nvml()
    yield Gpu(nvml, find_device(nvml, visible))
    nvml.nvmlShutdown()


def play(root: Path, *actions: Action, session_id: str | None = None) -> StartRequest:
    """Return a request for a build that does `actions` in its long silent step."""
    model = root / f"replay{len(list(root.iterdir()))}.jsonl"
    settings = {"type": "replay", "speed": 20, "actions": [{"at": 1.2, **do} for do in actions]}
    model.write_text(json.dumps(settings) + "\n" + (DATA / "silent_step.jsonl").read_text())
    return StartRequest(model=str(model), backend=Backend.REPLAY, session_id=session_id)


class Supervise(Protocol):
    def __call__(self) -> AbstractAsyncContextManager[Watcher]: ...


@pytest.fixture
def supervise(root: Path, tmp_path: Path, nothing_left: None) -> Supervise:
    policy = tmp_path / "policy.toml"
    policy.write_text(RULES)
    config = SupervisorConfig(tmp_path / "state", (root,), policy=str(policy), enable_replay=True)

    @asynccontextmanager
    async def start() -> AsyncIterator[Watcher]:
        async with Supervisor(config) as supervisor:
            yield Watcher(supervisor)

    return start


async def watch(watcher: Watcher, build: str) -> tuple[list[Activity], Snapshot]:
    """Look every quarter second until the end; return what each look told, and the end."""
    samples: list[Activity] = []
    with anyio.fail_after(60):
        while True:
            snapshot = await watcher.service.progress(build)
            if snapshot.activity:
                samples.append(snapshot.activity)
            if snapshot.ended:
                return samples, await watcher.end(build)
            await watcher.service.progress(build, wait_s=SAMPLE_S / LOOKS, since_seq=snapshot.seq)


@pytest.mark.gpu
async def test_a_build_that_computes_on_the_gpu_alone_is_busy_and_not_called_hung(
    gpu: Gpu, supervise: Supervise, root: Path
) -> None:
    async with supervise() as watcher:
        build = await watcher.start(play(root, {"do": "burn_gpu", "for_s": 8}))
        samples, ended = await watch(watcher, build)
    assert ended.state is State.SUCCEEDED, (ended.reason, samples)
    # The first and the last sample of the eight seconds are of less than a second's work.
    computing = [sample for sample in samples if (sample.gpu_percent or 0) > 50]
    assert len(computing) >= 5 * LOOKS, samples
    assert all(sample.busy for sample in computing)
    # It is the GPU that is busy, not the processor.
    assert sum(sample.cpu_percent < BUSY_PERCENT for sample in computing) >= 4 * LOOKS, computing
    assert all(sample.gpu_memory_bytes for sample in computing)
    energies = [sample.gpu_energy_j or 0.0 for sample in computing]
    assert energies == sorted(energies)
    assert energies[-1] > energies[0] > 0


@pytest.mark.gpu
async def test_a_build_that_only_holds_gpu_memory_is_idle_and_ended_as_hung(
    gpu: Gpu, supervise: Supervise, root: Path
) -> None:
    async with supervise() as watcher:
        hold: Action = {"do": "hold_gpu_memory", "bytes": 2 * GIB}
        build = await watcher.start(play(root, hold, {"do": "hang_idle"}))
        samples, ended = await watch(watcher, build)
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.STEP_STALL), samples
    holding = [sample for sample in samples if (sample.gpu_memory_bytes or 0) >= 2 * GIB]
    assert len(holding) >= LOOKS, samples
    assert not holding[-1].busy
    assert holding[-1].gpu_percent == 0


@pytest.mark.gpu
async def test_a_session_is_charged_what_its_builds_held_the_device(
    gpu: Gpu, supervise: Supervise, root: Path
) -> None:
    held = []
    async with supervise() as watcher:
        session = await watcher.service.open_session(SessionRequest(label="two builds"))
        for _ in range(2):
            before = anyio.current_time()
            request = play(root, {"do": "burn_gpu", "for_s": 3}, session_id=session.session_id)
            _, ended = await watch(watcher, await watcher.start(request))
            held.append(anyio.current_time() - before)
            assert ended.state is State.SUCCEEDED
            assert ended.gpu_s is not None
            assert ended.gpu_s > 3
            assert ended.gpu_s == pytest.approx(held[-1], abs=SAMPLE_S)
        charged = await watcher.service.session(session.session_id)
    assert charged.spent_s == pytest.approx(sum(held), abs=SAMPLE_S)
    assert charged.reserved_s == 0


@pytest.mark.gpu
@pytest.mark.parametrize("at_once", [False, True])
async def test_after_a_cancel_nothing_of_the_build_is_left_on_the_gpu(
    gpu: Gpu, supervise: Supervise, root: Path, at_once: bool
) -> None:
    before, used = gpu.pids(), gpu.used()
    async with supervise() as watcher:
        hold: Action = {"do": "hold_gpu_memory", "bytes": 2 * GIB}
        build = await watcher.start(play(root, hold, {"do": "burn_gpu"}))
        with anyio.fail_after(20):
            while gpu.used() < used + 2 * GIB:
                await anyio.lowlevel.checkpoint()
        assert len(gpu.pids() - before) == 1
        ended = await watcher.cancel(build, at_once=at_once)
        after = gpu.pids()
    assert (ended.state, ended.reason) == (State.CANCELLED, Reason.USER_REQUEST)
    assert ended.ended_by is (Rung.KILL if at_once else Rung.TERMINATE)
    assert after == before
    assert gpu.used() < used + SETTLED_BYTES


@pytest.mark.gpu
async def test_more_memory_than_the_gpu_has_fails_the_build_with_out_of_memory(
    gpu: Gpu, supervise: Supervise, root: Path
) -> None:
    async with supervise() as watcher:
        too_much: Action = {"do": "hold_gpu_memory", "bytes": 1024 * GIB}
        ended = await watcher.end(await watcher.start(play(root, too_much)))
    assert ended.state is State.FAILED
    assert ended.error
    assert ended.error.code is ErrorCode.OUT_OF_MEMORY


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_driver(), reason="needs a machine without an NVIDIA driver")
async def test_a_replay_that_wants_a_gpu_fails_where_there_is_no_driver(
    supervise: Supervise, root: Path
) -> None:
    async with supervise() as watcher:
        ended = await watcher.end(await watcher.start(play(root, {"do": "burn_gpu", "for_s": 1})))
    assert ended.state is State.FAILED
    assert ended.error
    assert ended.error.code is ErrorCode.BACKEND_UNAVAILABLE
    assert "no NVIDIA driver" in ended.error.message
    assert "machine with an NVIDIA GPU" in ended.error.hint
