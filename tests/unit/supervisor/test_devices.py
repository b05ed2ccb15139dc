"""One build a device, first come, first served, also between supervisors, whoever dies."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from trt_agent_tools.supervisor import devices
from trt_agent_tools.supervisor.devices import Device, DevicePool, find_devices

pytestmark = pytest.mark.anyio

CPU = Device("cpu", "none")
GPUS = (Device("gpu0", "first", "0"), Device("gpu1", "second", "1"))

Process = subprocess.Popen[str]
Start = Callable[..., Process]

HOLD = """
import anyio, sys
from pathlib import Path
from trt_agent_tools.supervisor.devices import Device, DevicePool

async def main():
    pool = DevicePool([Device("cpu", "none")], Path(sys.argv[1]))
    await pool.lease()
    print("held", flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""

# Whoever has the device makes a file that nobody else may have made.
CONTEND = """
import anyio, anyio.lowlevel, sys
from pathlib import Path
from trt_agent_tools.supervisor.devices import Device, DevicePool

async def main():
    folder = Path(sys.argv[1])
    pool = DevicePool([Device("cpu", "none")], folder)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(200):
        device = await pool.lease()
        (folder / "inside").touch(exist_ok=False)
        await anyio.lowlevel.checkpoint()
        (folder / "inside").unlink()
        pool.give_back(device)
        await anyio.lowlevel.checkpoint()

anyio.run(main)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start another supervisor's script on the same folder of locks."""
    started: list[Process] = []

    def start(script: str) -> Process:
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def test_devices_are_leased_in_the_order_of_asking(tmp_path: Path) -> None:
    pool = DevicePool(GPUS, tmp_path)
    held = [await pool.lease(), await pool.lease()]
    assert set(held) == set(GPUS)
    served: list[int] = []

    async def ask(number: int) -> None:
        device = await pool.lease()
        served.append(number)
        await anyio.lowlevel.checkpoint()
        pool.give_back(device)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(ask, number)
                await anyio.lowlevel.checkpoint()
            assert served == []
            for device in held:
                pool.give_back(device)
    assert served == list(range(10))


async def test_no_device_is_lent_twice_at_once(tmp_path: Path) -> None:
    pool = DevicePool(GPUS, tmp_path)
    out: set[Device] = set()
    most = 0

    async def use() -> None:
        nonlocal most
        for _ in range(20):
            device = await pool.lease()
            assert device not in out
            out.add(device)
            most = max(most, len(out))
            await anyio.lowlevel.checkpoint()
            out.remove(device)
            pool.give_back(device)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(use)
    assert most == len(GPUS)


async def test_one_who_stops_waiting_keeps_nobody_from_a_device(tmp_path: Path) -> None:
    pool = DevicePool([CPU], tmp_path)
    held = await pool.lease()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            leaver = anyio.CancelScope()

            async def leave() -> None:
                with leaver:
                    await pool.lease()

            async def stay() -> None:
                pool.give_back(await pool.lease())

            tasks.start_soon(leave)
            await anyio.lowlevel.checkpoint()
            tasks.start_soon(stay)
            await anyio.lowlevel.checkpoint()
            leaver.cancel()
            await anyio.lowlevel.checkpoint()
            pool.give_back(held)
        assert await pool.lease() == CPU


async def test_two_supervisors_of_one_folder_never_hold_one_device_at_once(
    tmp_path: Path,
) -> None:
    ours, theirs = DevicePool([CPU], tmp_path), DevicePool([CPU], tmp_path)
    held = await ours.lease()
    with anyio.move_on_after(0.6) as waited:
        await theirs.lease()
    assert waited.cancelled_caught
    ours.give_back(held)
    with anyio.fail_after(2):
        held = await theirs.lease()
    with anyio.move_on_after(0.1) as waited:
        await ours.lease()
    assert waited.cancelled_caught


async def test_of_two_devices_the_one_that_another_supervisor_left_free_is_lent(
    tmp_path: Path,
) -> None:
    theirs = DevicePool(GPUS, tmp_path)
    taken = await theirs.lease()
    ours = DevicePool(GPUS, tmp_path)
    with anyio.fail_after(1):
        assert await ours.lease() != taken


def test_contending_processes_are_never_in_at_once(start: Start) -> None:
    processes = [start(CONTEND), start(CONTEND)]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors


async def test_a_device_is_free_again_when_its_supervisor_was_killed(
    start: Start, tmp_path: Path
) -> None:
    holder = start(HOLD)
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    pool = DevicePool([CPU], tmp_path)
    with anyio.move_on_after(0.1) as waited:
        await pool.lease()
    assert waited.cancelled_caught
    holder.kill()
    with anyio.fail_after(2):
        await pool.lease()


async def test_a_worker_does_not_inherit_the_lease(tmp_path: Path, start: Start) -> None:
    pool = DevicePool([CPU], tmp_path)
    held = await pool.lease()
    # Started while the device is held: it lives on when the lease is over.
    stranger = start("import sys; print('up', flush=True); sys.stdin.read()")
    assert stranger.stdout
    assert stranger.stdout.readline() == "up\n"
    pool.give_back(held)
    with anyio.fail_after(1):
        await DevicePool([CPU], tmp_path).lease()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Device]]:
    """Return a function: the devices found on a host with these device files and environment."""

    def found(*files: str, chosen: str | None = None) -> list[Device]:
        for name in files:
            (tmp_path / name).touch()
        monkeypatch.setattr(devices, "_NVIDIA_DEVICES", tmp_path)
        if chosen is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
        return list(find_devices())

    return found


Host = Callable[..., list[Device]]
FILES = ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm")


def test_gpus_are_counted_as_cuda_counts_them_whatever_the_hosts_numbers(host: Host) -> None:
    # A container is given some of the host's device files.
    assert [(d.name, d.visible) for d in host(*FILES)] == [
        ("gpu0", "0"),
        ("gpu1", "1"),
        ("gpu2", "2"),
    ]


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ((), None),
        ((), "0"),
        (("nvidiactl", "nvidia-uvm"), None),
        (FILES, ""),
        (FILES, "-1"),
        (FILES, ","),
        (FILES, " "),
        (FILES, "-1,0"),
        (("nvidia0x",), None),
    ],
)
def test_without_a_visible_gpu_there_is_the_device_cpu(
    host: Host, files: tuple[str, ...], chosen: str | None
) -> None:
    [device] = host(*files, chosen=chosen)
    assert (device.name, device.visible) == ("cpu", None)


def test_a_gpu_that_was_listed_twice_is_one_device(host: Host) -> None:
    assert [d.visible for d in host(*FILES, chosen="1,1,0")] == ["1", "0"]


def test_what_follows_an_impossible_gpu_is_not_visible(host: Host) -> None:
    assert [d.visible for d in host(*FILES, chosen="1, 0,-1,10")] == ["1", "0"]


def test_supervisors_that_see_different_gpus_agree_on_their_names(host: Host) -> None:
    everything = {d.visible: d.name for d in host(*FILES)}
    [second] = host(*FILES, chosen="1")
    assert everything["1"] == second.name


async def test_a_gpu_with_any_name_can_be_leased(host: Host, tmp_path: Path) -> None:
    found = host(*FILES, chosen="GPU-8a5c,MIG-GPU-8a5c/1/0,MIG-2f")
    assert len({device.name for device in found}) == len(found)
    pool = DevicePool(found, tmp_path)
    with anyio.fail_after(1):
        for _ in found:
            await pool.lease()
