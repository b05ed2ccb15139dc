"""How a worker process ends, without any TensorRT: by its orders, and with those who watch it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.build_orders import build_order
from trt_agent_tools.model.events import PROTOCOL
from trt_agent_tools.model.request import BuildOrder, ProbeOrder

TIMEOUT_S = 30.0
HANGS = b'{"type":"replay","actions":[{"at":0,"do":"hang_idle"}]}\n'

Worker = subprocess.Popen[bytes]
Start = Callable[[], Worker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Worker] = []

    def start() -> Worker:
        with (tmp_path / "build.log").open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "trt_agent_tools.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        started.append(worker)
        return worker

    yield start
    for worker in started:
        with worker:
            worker.kill()


@pytest.fixture
def order(tmp_path: Path) -> BuildOrder:
    """Return an order for a replay that hangs."""
    made = build_order(tmp_path)
    Path(made.model).write_bytes(HANGS)
    return made


def tell(worker: Worker, text: str) -> None:
    assert worker.stdin
    worker.stdin.write(text.encode() + b"\n")
    worker.stdin.flush()


def hear(worker: Worker) -> str:
    """Return the type of the worker's next event that is no heartbeat."""
    assert worker.stdout
    while line := worker.stdout.readline():
        kind = str(json.loads(line)["type"])
        if kind != "heartbeat":
            return kind
    return ""


def test_a_probe_that_is_carried_out_ends_with_0(start: Start) -> None:
    worker = start()
    tell(worker, ProbeOrder(protocol=PROTOCOL, backend="replay").model_dump_json())
    assert [hear(worker), hear(worker), hear(worker)] == ["hello", "goodbye", ""]
    assert worker.wait(TIMEOUT_S) == 0


def test_a_build_that_fails_ends_with_1(start: Start, order: BuildOrder) -> None:
    Path(order.model).write_text("no event file")
    worker = start()
    tell(worker, order.model_dump_json())
    assert [hear(worker), hear(worker), hear(worker)] == ["hello", "failed", "goodbye"]
    assert worker.wait(TIMEOUT_S) == 1


@pytest.mark.parametrize("change", [{"protocol": PROTOCOL + 1}, {"type": "extend"}, {"roots": 5}])
def test_a_first_line_of_another_protocol_ends_with_2_and_the_log_says_why(
    start: Start, order: BuildOrder, tmp_path: Path, change: dict[str, object]
) -> None:
    worker = start()
    tell(worker, json.dumps({**json.loads(order.model_dump_json()), **change}))
    assert hear(worker) == ""
    assert worker.wait(TIMEOUT_S) == 2
    assert (tmp_path / "build.log").read_text()


def test_without_an_order_a_worker_ends_with_3(start: Start) -> None:
    worker = start()
    assert worker.stdin
    worker.stdin.close()
    assert worker.wait(TIMEOUT_S) == 3


@pytest.mark.parametrize("side", ["orders", "events"])
def test_a_build_does_not_outlive_who_watches_it_and_takes_its_half_written_files_along(
    start: Start, order: BuildOrder, side: str
) -> None:
    worker = start()
    tell(worker, order.model_dump_json())
    assert hear(worker) == "hello"
    partial = [Path(order.partial_engine), Path(order.partial_manifest)]
    for path in partial:
        path.touch()
    end = worker.stdin if side == "orders" else worker.stdout
    assert end
    end.close()
    assert worker.wait(TIMEOUT_S) == 3
    assert not any(path.exists() for path in partial)


def test_files_that_cannot_be_removed_do_not_keep_a_worker_alive(
    start: Start, order: BuildOrder
) -> None:
    worker = start()
    tell(worker, order.model_dump_json())
    assert hear(worker) == "hello"
    Path(order.partial_engine).mkdir()
    Path(order.partial_manifest).touch()
    assert worker.stdin
    worker.stdin.close()
    assert worker.wait(TIMEOUT_S) == 3
    assert not Path(order.partial_manifest).exists()


def test_a_worker_dies_of_sigterm_at_once_and_not_of_sigint(
    start: Start, order: BuildOrder
) -> None:
    worker = start()
    tell(worker, order.model_dump_json())
    assert hear(worker) == "hello"
    worker.send_signal(signal.SIGINT)
    # A heartbeat after the signal: it was survived.
    assert worker.stdout
    while json.loads(worker.stdout.readline())["type"] != "heartbeat":
        pass
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(TIMEOUT_S) == -signal.SIGTERM


def test_no_program_that_a_worker_starts_holds_its_channel(start: Start, order: BuildOrder) -> None:
    Path(order.model).write_text(
        '{"type":"replay","actions":[{"at":0,"do":"grandchild","for_s":60},{"at":0,"do":"exit"}]}\n'
    )
    worker = start()
    tell(worker, order.model_dump_json())
    worker.wait(TIMEOUT_S)
    # The grandchild lives, and yet the events end.
    assert worker.stdout
    worker.stdout.read()
    os.killpg(worker.pid, signal.SIGKILL)
