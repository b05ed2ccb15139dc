"""Timing caches in real worker processes, over a stand-in for the library that has them.

Classic TensorRT builds on a GPU alone; `classic/tensorrt.py` says what of it is stood in for.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

import trt_agent_tools
from trt_agent_tools.model.event_lines import WORKER_EVENT
from trt_agent_tools.model.events import (
    PROTOCOL,
    Goodbye,
    LogLine,
    OptionApplied,
    Outcome,
    PhaseStarted,
    WorkerEvent,
)
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.request import BuildOrder

CLASSIC = Path(__file__).with_name("classic")
SOURCES = Path(trt_agent_tools.__file__).parent.parent
LIMIT_S = 30.0
NAMED = "tensorrt-10.16.1.11-NVIDIA_H200-sm90.timing"
HEADER = "timing cache of 10.16.1.11 on NVIDIA H200"

DRIVER = """
#include <string.h>
int cuInit(unsigned f) { return 0; }
int cuDeviceGet(int *d, int n) { *d = n; return 0; }
int cuDeviceGetName(char *name, int size, int d) { strncpy(name, "NVIDIA H200", size); return 0; }
int cuDeviceGetAttribute(int *v, int what, int d) { *v = what == 75 ? 9 : 0; return 0; }
"""


class Worker:
    """A real worker process; every read of it has a deadline, by which it is killed."""

    def __init__(self, order: BuildOrder, environment: dict[str, str]) -> None:
        self.order = order
        self.events: list[WorkerEvent] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trt_agent_tools.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._deadline = threading.Timer(LIMIT_S, self._process.kill)
        self._deadline.start()
        self._tell(order.model_dump_json())

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def cancel(self) -> None:
        self._tell('{"type":"cancel","reason":"a test asked"}')

    def until(self, found: Callable[[WorkerEvent], bool]) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.events.append(WORKER_EVENT.validate_json(line))
            if found(self.events[-1]):
                return
        pytest.fail("the worker ended first, or was too late")

    def end(self) -> Outcome:
        self.until(lambda event: isinstance(event, Goodbye))
        self._process.wait(LIMIT_S)
        last = self.events[-1]
        assert isinstance(last, Goodbye)
        return last.outcome

    def close(self) -> None:
        self._deadline.cancel()
        self._process.kill()
        self._process.wait(LIMIT_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            stream.close()

    @property
    def effective(self) -> str:
        """What is told of the timing cache."""
        [told] = [event for event in self.events if isinstance(event, OptionApplied)]
        assert told.name == "timing_cache"
        assert told.requested == self.order.options.timing_cache
        assert isinstance(told.effective, str)
        return told.effective

    @property
    def warnings(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, LogLine)]


class Bench:
    """Starts workers that build models of the named nodes."""

    def __init__(self, root: Path, driver: Path) -> None:
        self.root = root
        self.workers: list[Worker] = []
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, [CLASSIC, SOURCES])),
            "LD_LIBRARY_PATH": str(driver),
            "GATE": str(root / "gate"),
        }

    def start(self, cache: Path | str, *nodes: str, **environment: str) -> Worker:
        name = f"m{len(self.workers)}"
        model = self.root / f"{name}.onnx"
        tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in ("x", "y")]
        layers = [helper.make_node("Relu", ["x"], ["y"], name=node) for node in nodes]
        save(helper.make_model(helper.make_graph(layers, name, tensors[:1], tensors[1:])), model)
        output = self.root / f"{name}.engine"
        order = BuildOrder(
            protocol=PROTOCOL,
            build_id=name,
            backend="tensorrt",
            model=str(model),
            output=str(output),
            partial_engine=f"{output}.partial",
            manifest=f"{output}.json",
            partial_manifest=f"{output}.json.partial",
            roots=[str(self.root)],
            options=BuildOptions(timing_cache=str(cache)),
        )
        self.workers.append(Worker(order, {**self.environment, **environment}))
        return self.workers[-1]

    def build(self, cache: Path | str, *nodes: str, **environment: str) -> Worker:
        worker = self.start(cache, *nodes, **environment)
        assert worker.end() is Outcome.SUCCEEDED, worker.events
        return worker


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver that knows one H200."""
    folder = tmp_path_factory.mktemp("driver")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler is needed for the stand-in of the driver"
    (folder / "cuda.c").write_text(DRIVER)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-w", "-o", folder / "libcuda.so.1", folder / "cuda.c"],
        check=True,
        timeout=LIMIT_S,
    )
    return folder


@pytest.fixture
def bench(root: Path, driver: Path) -> Iterator[Bench]:
    made = Bench(root, driver)
    yield made
    for worker in made.workers:
        worker.close()
    assert not list(root.rglob("*.partial"))


def told(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_a_folder_gets_one_file_for_this_version_and_gpu_and_the_next_build_is_warm(
    bench: Bench, root: Path
) -> None:
    (root / "caches").mkdir()
    first = bench.build(root / "caches", "a", "b")
    file = root / "caches" / NAMED
    assert first.effective == f"cold: {file}"
    assert told(file) == [HEADER, "a", "b"]
    second = bench.build(root / "caches", "b", "c")
    assert second.effective == f"warm: {file}"
    assert told(file) == [HEADER, "a", "b", "c"]
    assert sorted(path.name for path in (root / "caches").iterdir()) == [NAMED, f"{NAMED}.lock"]
    manifest = Manifest.model_validate_json(Path(second.order.manifest).read_bytes())
    [option] = [option for option in manifest.options if option.name == "timing_cache"]
    assert option.effective == f"warm: {file}"


def test_a_file_is_used_as_it_is_and_needs_no_driver(bench: Bench, root: Path) -> None:
    worker = bench.build(root / "mine", "a", LD_LIBRARY_PATH="")
    assert worker.effective == f"cold: {root / 'mine'}"
    assert told(root / "mine") == [HEADER, "a"]


def test_in_a_folder_another_version_gets_a_file_of_its_own(bench: Bench, root: Path) -> None:
    bench.build(root, "a")
    bench.build(root, "b", CLASSIC_VERSION="11.4.0.106")
    assert told(root / NAMED) == [HEADER, "a"]
    assert told(root / NAMED.replace("10.16.1.11", "11.4.0.106"))[1:] == ["b"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("timing cache of 10.0.1 on NVIDIA H200\na\n", "another version of TensorRT"),
        ("timing cache of 10.16.1.11 on NVIDIA L4\na\n", "another GPU"),
        ("what a crash of the host left", "damaged"),
    ],
)
def test_a_cache_that_does_not_fit_is_refused_and_left_and_the_build_goes_on(
    bench: Bench, root: Path, content: str, why: str
) -> None:
    (root / "mine").write_text(content)
    worker = bench.build(root / "mine", "b")
    assert worker.effective == f"refused: {root / 'mine'}"
    [warning] = worker.warnings
    assert why in warning
    assert "the build goes on without" in warning
    assert (root / "mine").read_text() == content


def test_without_a_driver_a_folder_is_refused_and_the_build_goes_on(
    bench: Bench, root: Path
) -> None:
    worker = bench.build(root, "a", LD_LIBRARY_PATH="")
    assert worker.effective == f"refused: {root}"
    assert "does not tell which GPU" in worker.warnings[0]


@contextmanager
def closed_gate(root: Path) -> Iterator[None]:
    """Keep builds at the node `gate` until the end of the block."""
    with (root / "gate").open("wb") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield


def begins(event: WorkerEvent) -> bool:
    """Whether the builder has begun: its cache is loaded."""
    return isinstance(event, PhaseStarted) and event.name == "Building engine"


def test_what_was_measured_outlives_a_build_that_is_cancelled(bench: Bench, root: Path) -> None:
    worker = bench.start(root / "mine", "a", "b", "until_cancelled", "never")
    worker.until(begins)
    worker.cancel()
    assert worker.end() is Outcome.CANCELLED
    assert told(root / "mine") == [HEADER, "a", "b"]


def test_what_was_measured_outlives_a_build_that_fails(bench: Bench, root: Path) -> None:
    worker = bench.start(root / "mine", "a", "b", "fails", "never")
    assert worker.end() is Outcome.FAILED
    assert told(root / "mine") == [HEADER, "a", "b"]


def test_builds_that_run_at_once_lose_nothing_of_each_other(bench: Bench, root: Path) -> None:
    with closed_gate(root):
        workers = [bench.start(root / "mine", "gate", f"a{n}", f"b{n}") for n in range(3)]
        for worker in workers:
            worker.until(begins)
            assert worker.effective.startswith("cold")
    for worker in workers:
        assert worker.end() is Outcome.SUCCEEDED
        assert worker.warnings == []
    every = ["gate", *(f"{name}{n}" for name in "ab" for n in range(3))]
    assert told(root / "mine") == [HEADER, *sorted(every)]


def test_a_cache_that_another_version_wrote_meanwhile_is_left_and_that_is_told(
    bench: Bench, root: Path
) -> None:
    with closed_gate(root):
        worker = bench.start(root / "mine", "gate")
        worker.until(begins)
        bench.build(root / "mine", "b", CLASSIC_VERSION="10.0.1")
    assert worker.end() is Outcome.SUCCEEDED
    assert told(root / "mine")[1:] == ["b"]
    [warning] = worker.warnings
    assert "was not saved: meanwhile another version" in warning
