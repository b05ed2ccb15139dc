"""The devices of this host, and who holds which: one build a device, first come, first served."""

import os
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

    A driver library is not loaded for it: CUDA_VISIBLE_DEVICES and the device files are read.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not any(_NVIDIA_DEVICES.glob("nvidia[0-9]*")) or chosen in {"", "-1"}:
        return (Device("cpu", "no NVIDIA GPU is visible: TensorRT-RTX builds on the CPU alone"),)
    if chosen is not None:
        visible = [part.strip() for part in chosen.split(",") if part.strip()]
    else:
        numbers = (
            path.name.removeprefix("nvidia") for path in _NVIDIA_DEVICES.glob("nvidia[0-9]*")
        )
        visible = [str(n) for n in sorted(int(text) for text in numbers if text.isdecimal())]
    return tuple(
        Device(f"gpu{index}", f"NVIDIA GPU {name}", name) for index, name in enumerate(visible)
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
