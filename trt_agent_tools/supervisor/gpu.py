"""What a build does on its GPU: utilisation, memory and energy, read through NVML."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Protocol, TypeVar

from trt_agent_tools.supervisor.nvml import (
    NOT_FOUND,
    SUCCESS,
    Handle,
    NoDeviceError,
    Nvml,
    find_device,
    load_nvml,
)

GPU_BUSY_PERCENT = 1.0
"""A process that only holds memory uses no multiprocessor at all, and NVML counts in whole percents."""

_HOST_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel: pids here are the host's, as the driver's are."""

ENERGY_EVERY = 5
"""Energy is read with every fifth sample: that call takes longer than all the others together."""

_ALL = 100
"""Percent."""

_MILLI = 1000

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class GpuSample:
    """A device and what one build does on it. What the driver does not tell is None.

    `own_percent` is the use of the multiprocessors by the build's processes since the sample before,
    `energy_j` the device's energy since the sampler was opened, known up to the last fifth sample.
    """

    device_percent: float | None = None
    own_percent: float | None = None
    device_memory_bytes: int | None = None
    own_memory_bytes: int | None = None
    energy_j: float | None = None

    @property
    def percent(self) -> float | None:
        """The build's own use, or where that is not known the whole device's, others included."""
        return self.device_percent if self.own_percent is None else self.own_percent

    @property
    def busy(self) -> bool:
        """Whether the build computes on the device. Holding memory is no use."""
        return self.percent is not None and self.percent >= GPU_BUSY_PERCENT


class GpuSampler(Protocol):
    """Looks at one device. May hold its caller up for as long as the driver takes."""

    def sample(self, pids: Iterable[int]) -> GpuSample:
        """Return what is seen now of the device and of the processes `pids` on it. Raises nothing."""

    def close(self) -> None:
        """Let go of the driver's library."""


@dataclass(frozen=True, slots=True)
class NoGpuSampler:
    """That a device cannot be looked at, and why."""

    reason: str


def open_gpu_sampler(visible: str | None) -> GpuSampler | NoGpuSampler:
    """Return a sampler for the device that CUDA_VISIBLE_DEVICES=`visible` shows a worker.

    None is the device `cpu`. Where sampling does not work the reason is returned; nothing is raised.
    """
    if visible is None:
        return NoGpuSampler("no GPU")
    try:
        nvml = load_nvml()
    except NoDeviceError as error:
        return NoGpuSampler(str(error))
    try:
        return NvmlSampler(nvml, find_device(nvml, visible), pids_are_hosts=_in_host_namespace())
    except NoDeviceError as error:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
        return NoGpuSampler(str(error))


class NvmlSampler:
    """A `GpuSampler` on NVML. A call that fails leaves out its own value and no other.

    `pids_are_hosts` tells whether this process is in the host's pid namespace. In another one the driver
    may know the build's processes by other numbers: not finding them then means nothing.
    """

    def __init__(self, nvml: Nvml, handle: Handle, *, pids_are_hosts: bool) -> None:
        self._nvml = nvml
        self._handle = handle
        self._pids_are_hosts = pids_are_hosts
        self._energy_at_open = self._read(nvml.nvmlDeviceGetTotalEnergyConsumption)
        self._energy_j: float | None = None
        self._samples = 0
        self._seen_until = 0
        # What was used before belongs to no build of ours.
        self._used()

    def sample(self, pids: Iterable[int]) -> GpuSample:
        """See `GpuSampler.sample`."""
        own = set(pids)
        rates = self._read(self._nvml.nvmlDeviceGetUtilizationRates)
        memory = self._read(self._nvml.nvmlDeviceGetMemoryInfo)
        held = self._held(own)
        percent = None if rates is None else float(rates.gpu)
        if held == {}:
            # Without a context nothing can compute, and the call that would say so costs the most.
            own_percent: float | None = 0.0
        else:
            used = self._used()
            if used:
                # The device's own figure is of a moment: what is done in bursts is seen here.
                percent = max(percent or 0.0, _sum(used.values()))
            own_percent = self._own_percent(own, used, percent)
        if self._samples % ENERGY_EVERY == 0:
            self._energy_j = self._energy()
        self._samples += 1
        return GpuSample(
            device_percent=percent,
            own_percent=own_percent,
            device_memory_bytes=None if memory is None else memory.used,
            own_memory_bytes=_bytes(held),
            energy_j=self._energy_j,
        )

    def close(self) -> None:
        """See `GpuSampler.close`."""
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _held(self, own: set[int]) -> dict[int, int | None] | None:
        """Return the memory of each of the build's processes with a context; None if not known."""
        processes = self._read(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        if processes is None:
            return None
        held = {p.pid: p.usedGpuMemory for p in processes if p.pid in own}
        return held if held or self._pids_are_hosts else None

    def _used(self) -> dict[int, float] | None:
        """Return what each process used on average since the last call; None if not known."""
        nvml = self._nvml
        try:
            told = nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen_until)
        except nvml.NVMLError as error:
            return {} if error.value in {NOT_FOUND, SUCCESS} else None
        # Drivers have been seen to tell of impossible percentages, and of samples that are not new.
        news = [s for s in told if s.timeStamp > self._seen_until and 0 <= s.smUtil <= _ALL]
        self._seen_until = max((s.timeStamp for s in news), default=self._seen_until)
        percents: dict[int, list[int]] = {}
        for sample in news:
            percents.setdefault(sample.pid, []).append(sample.smUtil)
        return {pid: fmean(values) for pid, values in percents.items()}

    def _own_percent(
        self, own: set[int], used: dict[int, float] | None, device_percent: float | None
    ) -> float | None:
        if used is None:
            return None
        if not any(used.values()):
            # Nobody used it. If the device says otherwise, this call does not see what goes on.
            return 0.0 if device_percent == 0 else None
        found = own & used.keys()
        if not found:
            return 0.0 if self._pids_are_hosts else None
        return _sum(used[pid] for pid in found)

    def _energy(self) -> float | None:
        energy = self._read(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        if energy is None or self._energy_at_open is None:
            return None
        return max(0.0, (energy - self._energy_at_open) / _MILLI)

    def _read(self, call: Callable[[Handle], _Read]) -> _Read | None:
        try:
            return call(self._handle)
        except self._nvml.NVMLError:
            return None


def _bytes(held: dict[int, int | None] | None) -> int | None:
    if held is None:
        return None
    sizes = [size for size in held.values() if size is not None]
    return sum(sizes) if len(sizes) == len(held) else None


def _sum(percents: Iterable[float]) -> float:
    return min(float(_ALL), sum(percents))


def _in_host_namespace() -> bool:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _HOST_NAMESPACE
    except OSError:
        return False
