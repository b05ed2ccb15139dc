"""The part of NVML that is used, as types, and the device in it that CUDA_VISIBLE_DEVICES names.

`pynvml` (the package nvidia-ml-py) comes without annotations and may be absent, as may the driver.
"""
# ruff: noqa: N802, N803, N815  (the names are NVML's own)

import importlib
import os
from collections.abc import Sequence
from typing import NewType, Protocol, cast

Handle = NewType("Handle", object)
"""A device, or a MIG instance of one."""

NOT_FOUND = 6
"""NVML_ERROR_NOT_FOUND."""

SUCCESS = 0
"""pynvml raises it as an error when the list that was asked for is empty."""


class NvmlError(Exception):
    """The shape of `pynvml.NVMLError`, the base class of all that its functions raise."""

    value: int


class Utilization(Protocol):
    """Percent of the last sampling period, which the driver chooses: a sixth of a second to one."""

    gpu: int


class Memory(Protocol):
    """Bytes."""

    used: int


class ProcessMemory(Protocol):
    """A process with a CUDA context and the bytes it has, None where the driver does not tell."""

    pid: int
    usedGpuMemory: int | None


class ProcessUtilization(Protocol):
    """A process that used the multiprocessors: percent, and microseconds of the host's clock."""

    pid: int
    timeStamp: int
    smUtil: int


class Nvml(Protocol):
    """The module `pynvml`."""

    @property
    def NVMLError(self) -> type[NvmlError]:
        """What every function here raises."""

    def nvmlInit(self) -> None:
        """Load the driver's library. Each call needs an `nvmlShutdown`."""

    def nvmlShutdown(self) -> None:
        """Undo one `nvmlInit`."""

    def nvmlDeviceGetCount(self) -> int:
        """Return how many GPUs this process may use."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:
        """Return a GPU; they are in the order of their PCI bus ids."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle:
        """Return the GPU or the MIG instance with this UUID, given in full."""

    def nvmlDeviceGetName(self, handle: Handle) -> str:
        """Return the product's name."""

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:
        """Return the UUID in full."""

    def nvmlDeviceGetMigMode(self, device: Handle) -> Sequence[int]:
        """Return whether the GPU is divided now, and whether it will be after a reset."""

    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Utilization:
        """Return how busy the device was."""

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> Memory:
        """Return how much of the device's memory is in use."""

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> Sequence[ProcessMemory]:
        """Return the processes that have a CUDA context on the device."""

    def nvmlDeviceGetProcessUtilization(
        self, handle: Handle, timeStamp: int
    ) -> Sequence[ProcessUtilization]:
        """Return the processes that used the device after a time; it is an error if none did."""

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Handle) -> int:
        """Return the device's energy since the driver was loaded, in millijoules."""


class NoDeviceError(Exception):
    """NVML cannot be asked about a device; the message says why."""


def load_nvml() -> Nvml:
    """Return the module, with the driver's library loaded.

    Raises:
        NoDeviceError: the package or the driver is not there.
    """
    try:
        nvml = cast("Nvml", importlib.import_module("pynvml"))
    except ImportError:
        raise NoDeviceError(
            'nvidia-ml-py is not installed: pip install "trt-agent-tools[gpu]"'
        ) from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoDeviceError(f"NVML does not load: {error}") from error
    return nvml


def find_device(nvml: Nvml, visible: str) -> Handle:
    """Return what CUDA means by this part of CUDA_VISIBLE_DEVICES: an index or the start of a UUID.

    Raises:
        NoDeviceError: there is no such device, or which one is meant cannot be told.
    """
    try:
        if visible.isdecimal():
            return _by_index(nvml, int(visible))
        if visible.startswith("MIG-"):
            return nvml.nvmlDeviceGetHandleByUUID(visible)
        return _by_uuid(nvml, visible)
    except nvml.NVMLError as error:
        raise NoDeviceError(f"NVML does not show the device {visible}: {error}") from error


def _by_index(nvml: Nvml, index: int) -> Handle:
    handles = _all(nvml)
    if index >= len(handles):
        raise NoDeviceError(f"NVML shows {len(handles)} GPUs, no number {index}")
    by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not by_bus and len({nvml.nvmlDeviceGetName(handle) for handle in handles}) > 1:
        raise NoDeviceError(
            "the GPUs differ, and CUDA numbers them by speed, NVML by bus: "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name them by UUID in CUDA_VISIBLE_DEVICES"
        )
    if _is_divided(nvml, handles[index]):
        raise NoDeviceError(
            f"GPU {index} is divided by MIG: name an instance by UUID in CUDA_VISIBLE_DEVICES"
        )
    return handles[index]


def _by_uuid(nvml: Nvml, start: str) -> Handle:
    found = [handle for handle in _all(nvml) if nvml.nvmlDeviceGetUUID(handle).startswith(start)]
    if len(found) != 1:
        raise NoDeviceError(f"NVML shows {len(found)} GPUs whose UUID begins with {start}")
    return found[0]


def _all(nvml: Nvml) -> list[Handle]:
    return [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]


def _is_divided(nvml: Nvml, handle: Handle) -> bool:
    try:
        return nvml.nvmlDeviceGetMigMode(handle)[0] == 1
    except nvml.NVMLError:
        # A GPU that cannot be divided does not know the question.
        return False
