"""What kind of device an engine is for, and that nothing is said where the driver does not tell."""

from collections.abc import Sequence

import pytest

from trt_agent_tools.supervisor.devices import Device
from trt_agent_tools.supervisor.nvml import NoDeviceError
from trt_agent_tools.supervisor.reuse import device_kind as module
from trt_agent_tools.supervisor.reuse.device_kind import device_kind

GPU = Device("gpu0", "NVIDIA GPU 0", "0")


class DriverError(Exception):
    """As `pynvml.NVMLError`."""


class Driver:
    """The calls of NVML that are made; `shut` counts how often it was let go."""

    NVMLError = DriverError

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.shut = 0

    def nvmlDeviceGetName(self, handle: object) -> str:  # noqa: N802
        return f"NVIDIA H200 {handle}"

    def nvmlDeviceGetCudaComputeCapability(self, _: object) -> Sequence[int]:  # noqa: N802
        if self.fails:
            raise DriverError
        return (9, 0)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut += 1


def use(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    monkeypatch.setattr(module, "load_nvml", lambda: driver)
    monkeypatch.setattr(module, "find_device", lambda _, visible: visible)


def test_a_gpu_is_its_product_and_its_compute_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    use(monkeypatch, driver)
    assert device_kind(GPU) == "NVIDIA H200 0, compute capability 9.0"
    assert driver.shut == 1


def test_the_cpu_is_a_kind_and_no_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "load_nvml", _absent)
    assert device_kind(Device("cpu", "no GPU")) == "cpu"


def test_what_the_driver_does_not_tell_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(fails=True)
    use(monkeypatch, driver)
    assert device_kind(GPU) is None
    assert driver.shut == 1
    monkeypatch.setattr(module, "load_nvml", _absent)
    assert device_kind(GPU) is None


def _absent() -> None:
    raise NoDeviceError("nvidia-ml-py is not installed")
