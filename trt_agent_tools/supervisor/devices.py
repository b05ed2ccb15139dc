"""The devices of this host, and who holds which: one build a device, first come, first served."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from filelock import FileLock, Timeout

_NVIDIA_DEVICES = Path("/dev")
_FOREIGN_POLL_S = 0.25
"""How often a device held by another supervisor of the same state folder is looked at again."""


@dataclass(frozen=True, slots=True)
class Device:
    """Something that one build at a time is given.

    `visible` is what CUDA_VISIBLE_DEVICES is set to for the worker; None leaves it alone.
    """

    name: str
    description: str
    visible: str | None = None


def find_devices() -> tuple[Device, ...]:
    """Return the GPUs that the driver shows this process, or the device `cpu` when there is none.

    A driver library is not loaded for it: CUDA_VISIBLE_DEVICES and the device files are read. A device
    is named after what CUDA calls it, so that two supervisors that see different ones agree.
    """
    found = [path.name.removeprefix("nvidia") for path in _NVIDIA_DEVICES.glob("nvidia[0-9]*")]
    numbers = [text for text in found if text.isdecimal()]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    # CUDA counts from 0 what it may use; in a container the files keep the numbers that the host gave.
    visible = [str(n) for n in range(len(numbers))] if chosen is None else _listed(chosen)
    if not (numbers and visible):
        return (Device("cpu", "no NVIDIA GPU is visible: TensorRT-RTX builds on the CPU alone"),)
    return tuple(Device(_name(name), f"NVIDIA GPU {name}", name) for name in visible)


def _listed(chosen: str) -> list[str]:
    """Return the devices that CUDA_VISIBLE_DEVICES lists, each once, up to one that there cannot be."""
    listed: dict[str, None] = {}
    for part in chosen.split(","):
        name = part.strip()
        if not name or name.startswith("-"):
            break
        listed[name] = None
    return list(listed)


def _name(visible: str) -> str:
    return "gpu" + (
        visible if visible.isdecimal() else re.sub(r"[^A-Za-z0-9]+", "-", f"-{visible}")
    )


class DevicePool:
    """Leases devices in the order of asking.

    A lock file a device in `folder` keeps two supervisors of one state folder off the same device;
    the kernel drops it when its holder dies.
    """

    def __init__(self, devices: Iterable[Device], folder: Path) -> None:
        self._free = list(devices)
        self._locks = {
            device.name: FileLock(folder / f"device-{device.name}.lock", mode=0o600)
            for device in self._free
        }
        self._turn = anyio.Lock()
        self._returned = anyio.Event()

    @property
    def free(self) -> int:
        """How many devices nobody here holds."""
        return len(self._free)

    async def lease(self) -> Device:
        """Wait for a free device and take it."""
        async with self._turn:
            while True:
                for device in self._free:
                    with suppress(Timeout):
                        self._locks[device.name].acquire(blocking=False)
                        self._free.remove(device)
                        return device
                self._returned = anyio.Event()
                # A return here is seen by the event; one in another process only by looking again.
                with anyio.move_on_after(_FOREIGN_POLL_S if self._free else None):
                    await self._returned.wait()

    def give_back(self, device: Device) -> None:
        """Return a leased device: every process of its build is proven gone."""
        self._locks[device.name].release()
        self._free.append(device)
        self._returned.set()
