"""What kind of device an engine is for: engines move between devices of one kind, and no further."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, cast

from trt_agent_tools.supervisor.devices import Device
from trt_agent_tools.supervisor.nvml import Handle, NoDeviceError, find_device, load_nvml


class _Capability(Protocol):
    def nvmlDeviceGetCudaComputeCapability(  # noqa: N802  (NVML's own name)
        self, handle: Handle
    ) -> Sequence[int]:
        """Return major and minor."""


def device_kind(device: Device) -> str | None:
    """Return the product's name and its compute capability, `cpu`, or None where that is not known.

    Asks the driver, which may take a second: call it in a thread.
    """
    if device.visible is None:
        return device.name
    try:
        nvml = load_nvml()
    except NoDeviceError:
        return None
    try:
        handle = find_device(nvml, device.visible)
        major, minor = cast("_Capability", nvml).nvmlDeviceGetCudaComputeCapability(handle)
        return f"{nvml.nvmlDeviceGetName(handle)}, compute capability {major}.{minor}"
    except (NoDeviceError, nvml.NVMLError):
        return None
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()
