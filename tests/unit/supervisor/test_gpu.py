"""What a GPU sample says, on a double of NVML; tests/integration/test_gpu.py has the real one."""
# ruff: noqa: ARG002, N802, N803, N815  (the names are NVML's own, and the double looks at no handle)

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from trt_agent_tools.supervisor import devices
from trt_agent_tools.supervisor.devices import find_devices
from trt_agent_tools.supervisor.gpu import (
    GpuSample,
    NoGpuSampler,
    NvmlSampler,
    open_gpu_sampler,
)
from trt_agent_tools.supervisor.nvml import (
    NOT_FOUND,
    SUCCESS,
    Handle,
    NoDeviceError,
    Nvml,
    NvmlError,
    find_device,
)

NOT_SUPPORTED = 3
NOT_IN_HOST = 4_194_305
"""No process has this pid."""


class Error(NvmlError):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@dataclass
class Rates:
    gpu: int


@dataclass
class Used:
    used: int


@dataclass
class Held:
    pid: int
    usedGpuMemory: int | None


@dataclass
class Computed:
    pid: int
    smUtil: int
    timeStamp: int


@dataclass
class FakeNvml:
    """Answers as it is told to; an error stands for the answer of a call that fails."""

    NVMLError = Error
    names: Sequence[str] = ("NVIDIA H200",)
    uuids: Sequence[str] = ("GPU-11111111-aa",)
    mig: int | Error = 0
    rates: int | Error = 0
    used: int | Error = 0
    held: list[Held] | Error = field(default_factory=list)
    computed: list[Computed] | Error = field(default_factory=lambda: Error(NOT_FOUND))
    energy: int | Error = 0
    asked_since: list[int] = field(default_factory=list)
    loaded: int = 0

    def nvmlInit(self) -> None:
        self.loaded += 1

    def nvmlShutdown(self) -> None:
        self.loaded -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:
        return Handle(index)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle:
        return Handle(uuid)

    def nvmlDeviceGetName(self, handle: Handle) -> str:
        return self.names[cast("int", handle)]

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:
        return self.uuids[cast("int", handle)]

    def nvmlDeviceGetMigMode(self, device: Handle) -> Sequence[int]:
        return [answer(self.mig), 0]

    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Rates:
        return Rates(answer(self.rates))

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> Used:
        return Used(answer(self.used))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> Sequence[Held]:
        if isinstance(self.held, Error):
            raise self.held
        return self.held

    def nvmlDeviceGetProcessUtilization(
        self,
        handle: Handle,
        timeStamp: int,
    ) -> Sequence[Computed]:
        self.asked_since.append(timeStamp)
        if isinstance(self.computed, Error):
            raise self.computed
        return self.computed

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Handle) -> int:
        return answer(self.energy)


def answer(value: int | Error) -> int:
    if isinstance(value, Error):
        raise value
    return value


def sampler(nvml: FakeNvml, *, pids_are_hosts: bool = True) -> NvmlSampler:
    return NvmlSampler(cast("Nvml", nvml), Handle(0), pids_are_hosts=pids_are_hosts)


def test_a_build_that_computes_is_busy_and_its_own_use_is_told() -> None:
    nvml = FakeNvml(rates=90, held=[Held(7, 1), Held(8, 1), Held(9, 1)])
    looks = sampler(nvml)
    nvml.computed = [Computed(7, 30, 5), Computed(7, 50, 6), Computed(8, 20, 6), Computed(9, 40, 6)]
    sample = looks.sample([7, 8])
    assert sample.own_percent == 60
    assert (sample.percent, sample.busy) == (60, True)


def test_a_build_that_only_holds_memory_is_idle() -> None:
    looks = sampler(FakeNvml(rates=0, held=[Held(7, 2**30)], used=2**31))
    sample = looks.sample([7])
    assert (sample.own_memory_bytes, sample.device_memory_bytes) == (2**30, 2**31)
    assert (sample.percent, sample.busy) == (0, False)


def test_another_tenants_work_does_not_make_a_build_busy() -> None:
    nvml = FakeNvml(rates=100, held=[Held(7, 2**30), Held(9, 2**30)])
    looks = sampler(nvml)
    nvml.computed = [Computed(9, 100, 5)]
    sample = looks.sample([7])
    assert sample.device_percent == 100
    assert (sample.percent, sample.busy) == (0, False)


@pytest.mark.parametrize("error", [NOT_FOUND, SUCCESS])
def test_a_device_that_works_for_nobody_known_counts_for_the_build(error: int) -> None:
    """The call for single processes does not see this work: the build must not be called idle."""
    looks = sampler(FakeNvml(rates=40, held=[Held(7, 1)], computed=Error(error)))
    sample = looks.sample([7])
    assert sample.own_percent is None
    assert (sample.percent, sample.busy) == (40, True)


def test_without_use_by_process_the_devices_counts() -> None:
    looks = sampler(FakeNvml(rates=3, held=[Held(7, 1)], computed=Error(NOT_SUPPORTED)))
    assert looks.sample([7]).busy


def test_a_build_without_a_context_is_not_asked_about() -> None:
    nvml = FakeNvml(rates=100, held=[Held(9, 2**30)])
    looks = sampler(nvml)
    sample = looks.sample([7])
    assert (sample.own_memory_bytes, sample.percent, sample.busy) == (0, 0, False)
    assert nvml.asked_since == [0]


def test_a_mig_instance_that_tells_no_use_is_not_called_idle_or_busy_by_a_number() -> None:
    told_nothing = Error(NOT_SUPPORTED)
    looks = sampler(FakeNvml(rates=told_nothing, held=[Held(7, 1)], computed=told_nothing))
    sample = looks.sample([7])
    assert (sample.percent, sample.busy) == (None, False)


def test_in_another_pid_namespace_a_pid_that_is_not_found_means_nothing() -> None:
    nvml = FakeNvml(rates=70, held=[Held(NOT_IN_HOST, 2**30)])
    looks = sampler(nvml, pids_are_hosts=False)
    nvml.computed = [Computed(NOT_IN_HOST, 70, 5)]
    sample = looks.sample([7])
    assert (sample.own_percent, sample.own_memory_bytes) == (None, None)
    assert (sample.percent, sample.busy) == (70, True)


def test_bursts_that_the_device_misses_are_seen_in_its_processes() -> None:
    """A build of which no pid is found, in a container: what its device did must be seen all the same."""
    nvml = FakeNvml(rates=0)
    looks = sampler(nvml, pids_are_hosts=False)
    nvml.computed = [Computed(NOT_IN_HOST, 17, 5)]
    sample = looks.sample([7])
    assert sample.device_percent == 17
    assert sample.busy


def test_in_another_pid_namespace_a_pid_that_is_found_is_the_builds() -> None:
    nvml = FakeNvml(rates=70, held=[Held(7, 2**30)])
    looks = sampler(nvml, pids_are_hosts=False)
    nvml.computed = [Computed(7, 60, 5)]
    sample = looks.sample([7])
    assert (sample.own_percent, sample.own_memory_bytes) == (60, 2**30)


def test_what_was_used_before_is_not_the_builds() -> None:
    nvml = FakeNvml(held=[Held(7, 1)], computed=[Computed(7, 100, 1000)])
    looks = sampler(nvml)
    assert looks.sample([7]).own_percent == 0
    nvml.computed = [Computed(7, 100, 1000), Computed(7, 10, 2000)]
    assert looks.sample([7]).own_percent == 10
    nvml.computed = Error(NOT_FOUND)
    assert looks.sample([7]).own_percent == 0
    assert nvml.asked_since == [0, 1000, 1000, 2000]


def test_impossible_percentages_are_left_out() -> None:
    nvml = FakeNvml(held=[Held(7, 1)])
    looks = sampler(nvml)
    nvml.computed = [Computed(7, 4_000_000_000, 5), Computed(7, 20, 6)]
    assert looks.sample([7]).own_percent == 20


def test_energy_counts_from_the_opening() -> None:
    nvml = FakeNvml(energy=5_000)
    looks = sampler(nvml)
    nvml.energy = 12_500
    assert looks.sample([]).energy_j == 7.5


def test_energy_is_read_with_every_fifth_sample_and_told_with_all() -> None:
    nvml = FakeNvml(energy=0)
    looks = sampler(nvml)
    told = []
    for number in range(11):
        nvml.energy = 1000 * number
        told.append(looks.sample([]).energy_j)
    assert told == [0] * 5 + [5] * 5 + [10]


def test_a_call_that_fails_leaves_out_its_own_value_and_no_other() -> None:
    whole = FakeNvml(rates=0, used=10, held=[Held(7, 5)], energy=1)
    values = {
        "rates": "device_percent",
        "used": "device_memory_bytes",
        "held": "own_memory_bytes",
        "computed": "own_percent",
        "energy": "energy_j",
    }
    expected = sampler(whole).sample([7])
    assert None not in {getattr(expected, value) for value in values.values()}
    for failing, missing in values.items():
        nvml = FakeNvml(rates=0, used=10, held=[Held(7, 5)], energy=1)
        looks = sampler(nvml)
        setattr(nvml, failing, Error(NOT_SUPPORTED))
        sample = looks.sample([7])
        for value in values.values():
            if value == missing:
                assert getattr(sample, value) is None
            elif (failing, value) != ("rates", "own_percent"):
                assert getattr(sample, value) == getattr(expected, value)


def test_memory_that_the_driver_does_not_tell_is_not_zero() -> None:
    assert sampler(FakeNvml(held=[Held(7, None)])).sample([7]).own_memory_bytes is None


def test_one_percent_is_busy_and_nothing_is_not() -> None:
    assert GpuSample(own_percent=1.0).busy
    assert not GpuSample(own_percent=0.0).busy
    assert not GpuSample().busy


def refused(nvml: FakeNvml, visible: str) -> str:
    with pytest.raises(NoDeviceError) as refusal:
        find_device(cast("Nvml", nvml), visible)
    return str(refusal.value)


def found(nvml: FakeNvml, visible: str) -> Handle:
    return find_device(cast("Nvml", nvml), visible)


def two(mig: int | Error = 0) -> FakeNvml:
    return FakeNvml(names=("A", "A"), uuids=("GPU-1a2b", "GPU-1a3c"), mig=mig)


def test_a_device_is_found_by_number_and_by_the_start_of_its_uuid() -> None:
    assert found(two(), "1") == Handle(1)
    assert found(two(), "GPU-1a3") == Handle(1)
    assert found(two(), "GPU-1a2b") == Handle(0)
    assert found(two(), "MIG-77") == Handle("MIG-77")


def test_a_device_that_is_not_one_is_refused() -> None:
    assert "shows 2 GPUs" in refused(two(), "2")
    assert "shows 2 GPUs whose UUID begins" in refused(two(), "GPU-1a")
    assert "shows 0 GPUs" in refused(two(), "GPU-9")
    assert "shows 0 GPUs" in refused(two(), "nonsense")


def test_a_number_is_refused_where_cuda_and_nvml_may_count_differently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = FakeNvml(names=("small", "large"), uuids=("GPU-1", "GPU-2"))
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in refused(nvml, "0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert found(nvml, "0") == Handle(0)


def test_a_gpu_divided_by_mig_is_refused_by_number() -> None:
    assert "divided by MIG" in refused(two(mig=1), "0")
    assert found(two(mig=Error(NOT_SUPPORTED)), "0") == Handle(0)


def test_the_device_cpu_has_no_sampler() -> None:
    assert open_gpu_sampler(None) == NoGpuSampler("no GPU")


def test_without_the_package_the_reason_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    answered = open_gpu_sampler("0")
    assert isinstance(answered, NoGpuSampler)
    assert "trt-agent-tools[gpu]" in answered.reason


def test_without_a_driver_the_reason_is_nvmls(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()

    def fail() -> None:
        raise Error(12)

    monkeypatch.setattr(nvml, "nvmlInit", fail)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert open_gpu_sampler("0") == NoGpuSampler("NVML does not load: error 12")


@pytest.mark.parametrize("visible", ["0", "5"])
def test_the_driver_is_let_go_of(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    opened = open_gpu_sampler(visible)
    if not isinstance(opened, NoGpuSampler):
        assert nvml.loaded == 1
        opened.close()
    assert nvml.loaded == 0


Nodes = Callable[..., None]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    folder = tmp_path_factory.mktemp("dev")

    def make(*names: str) -> None:
        for name in names:
            (folder / name).touch()

    monkeypatch.setattr(devices, "_NVIDIA_DEVICES", folder)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make


def test_devices_are_numbered_as_cuda_does_in_a_container_that_has_the_hosts_third_gpu(
    nodes: Nodes,
) -> None:
    nodes("nvidia2", "nvidiactl", "nvidia-uvm")
    assert [device.visible for device in find_devices()] == ["0"]


def test_each_gpu_is_a_device(nodes: Nodes) -> None:
    nodes(*(f"nvidia{number}" for number in range(11)))
    assert [device.visible for device in find_devices()] == [str(number) for number in range(11)]
