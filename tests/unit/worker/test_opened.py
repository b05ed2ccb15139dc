"""Whatever is swapped on a path, and whenever, no byte of a file outside the roots is read."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.onnx_files import field, small_model
from tests.unit.worker.conftest import Open
from tests.unit.worker.wire import Wire
from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.events import PROTOCOL, Inspected
from trt_agent_tools.model.request import InspectOrder
from trt_agent_tools.worker import inspect
from trt_agent_tools.worker.digest import combined, digest_opened
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.opened import (
    NoFileError,
    OpenedFile,
    OpenedModel,
    OutsideError,
    check_unchanged,
)
from trt_agent_tools.worker.sidecars import find_sidecars

INSIDE, OUTSIDE = b"inside", b"secret"

RACE_S = 20.0
OFTEN = 200


def tensor(location: str) -> TensorProto:
    made = TensorProto(name="w", data_type=TensorProto.UINT8, dims=[6])
    made.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", "6")):
        entry = made.external_data.add()
        entry.key, entry.value = key, value
    return made


class Scene:
    """A root with a model and its weights, the same outside with other weights, and links to it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        self.model = self.root / "models" / "m.onnx"
        for path, weights in ((self.root / "models", INSIDE), (self.outside / "models", OUTSIDE)):
            path.mkdir(parents=True)
            data = small_model(tensor("w.bin"))
            (path / "m.onnx").write_bytes(data + field(1000, weights))
            (path / "w.bin").write_bytes(weights)
        self.secrets = {path.stat().st_ino for path in (self.outside / "models").iterdir()}

    def exchange(self, name: str) -> None:
        """Swap what is at `name` in the root with a link to the same outside; again, and it is back."""
        path, aside = self.root / name, self.root / "aside"
        if not aside.is_symlink() and not aside.exists():
            aside.symlink_to(self.outside / name)
        between = self.root / "between"
        path.rename(between)
        aside.rename(path)
        between.rename(aside)

    def read(self) -> list[bytes]:
        """Return what is read of the model's two files."""
        with OpenedModel(self.model, [self.root]) as model:
            files = [model.file, *find_sidecars(model)]
            digests = [digest_opened(file) for file in files]
            assert [digest.bytes for digest in digests] == [file.stamp.bytes for file in files]
            check_unchanged(files)
            return [b"".join(file.chunks(1 << 20)) for file in files]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path.resolve())


class Opens:
    """Every `os.open` from now on: what happens around it, and what was opened for reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.before: dict[int, Callable[[], None]] = {}
        self.after: dict[int, Callable[[], None]] = {}
        self.read: set[int] = set()
        self.count = 0
        self._open = os.open
        monkeypatch.setattr(os, "open", self._hooked)

    def _hooked(self, path: str, flags: int, *, dir_fd: int | None = None) -> int:
        number = self.count
        self.count += 1
        self.before.get(number, lambda: None)()
        descriptor = self._open(path, flags, dir_fd=dir_fd)
        self.after.get(number, lambda: None)()
        if not flags & os.O_PATH:
            self.read.add(os.fstat(descriptor).st_ino)
        return descriptor


FOLLOWED = {"models": 0, "models/m.onnx": 1, "models/w.bin": 3}
"""Which of the calls below follows what is swapped."""

CALLS = 5
"""The folder; the model found, then opened; its weights found, then opened."""


@pytest.mark.parametrize("at", range(CALLS))
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_swapped_for_one_call_and_back_is_refused_or_not_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    opens = Opens(monkeypatch)
    opens.before[at] = opens.after[at] = lambda: scene.exchange(name)
    if at == FOLLOWED[name]:
        with pytest.raises(BuildFault) as raised:
            scene.read()
        assert raised.value.info.code is ErrorCode.OUTSIDE_ROOTS
    else:
        model, weights = scene.read()
        assert model.endswith(INSIDE)
        assert weights == INSIDE
        assert opens.count == CALLS
    assert not opens.read & scene.secrets


@pytest.mark.parametrize("at", range(CALLS))
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_is_swapped_and_stays_so_is_refused_or_found_out_as_changed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, name: str, at: int
) -> None:
    opens = Opens(monkeypatch)
    opens.before[at] = lambda: scene.exchange(name)
    with pytest.raises(BuildFault) as raised:
        scene.read()
    early = at <= FOLLOWED[name]
    assert raised.value.info.code is (ErrorCode.OUTSIDE_ROOTS if early else ErrorCode.MODEL_CHANGED)
    assert not opens.read & scene.secrets


RENAME_EXCHANGE = 2
AT_FDCWD = -100


def test_a_folder_that_is_exchanged_without_end_shows_nothing_from_outside(scene: Scene) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        pytest.skip("the C library has no renameat2")
    (scene.root / "link").symlink_to(scene.outside / "models")
    pair = [os.fsencode(scene.root / name) for name in ("models", "link")]
    stop = threading.Event()
    failures: list[int] = []

    def swap() -> None:
        while not stop.is_set():
            if libc.renameat2(AT_FDCWD, pair[0], AT_FDCWD, pair[1], RENAME_EXCHANGE) != 0:
                failures.append(ctypes.get_errno())
                return

    swapper = threading.Thread(target=swap)
    seen: dict[ErrorCode | None, int] = {}
    deadline = time.monotonic() + RACE_S
    swapper.start()
    try:
        while time.monotonic() < deadline and not failures:
            try:
                model, weights = scene.read()
            except BuildFault as fault:
                outcome: ErrorCode | None = fault.info.code
            else:
                outcome = None
                assert model.endswith(INSIDE)
                assert weights == INSIDE
            seen[outcome] = seen.get(outcome, 0) + 1
            if seen.get(None, 0) >= OFTEN and seen.get(ErrorCode.OUTSIDE_ROOTS, 0) >= OFTEN:
                break
    finally:
        stop.set()
        swapper.join()
    assert not failures, os.strerror(failures[0])
    assert set(seen) <= {None, ErrorCode.OUTSIDE_ROOTS, ErrorCode.MODEL_CHANGED}
    # Both were met, so the two really raced.
    assert seen[None]
    assert seen[ErrorCode.OUTSIDE_ROOTS]


def test_what_is_told_of_a_model_was_read_from_the_files_that_were_judged(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library(_: object) -> None:
        raise BuildFault(ErrorCode.BACKEND_UNAVAILABLE, "not here", "not needed")

    def back(files: list[OpenedFile]) -> None:
        scene.exchange("models")
        check_unchanged(files)

    files = [scene.model, scene.model.with_name("w.bin")]
    true = combined([sha256(path.read_bytes()).hexdigest() for path in files])
    monkeypatch.setattr(inspect, "load_library", no_library)
    # Outside from when all is open to right before the stamps are looked at.
    Opens(monkeypatch).after[CALLS - 1] = lambda: scene.exchange("models")
    monkeypatch.setattr(inspect, "check_unchanged", back)
    order = InspectOrder(
        protocol=PROTOCOL,
        backend="tensorrt",
        model=str(scene.model),
        roots=[str(scene.root)],
        time_limit_s=60.0,
    )
    with Wire() as wire:
        inspect.inspect_model(order, wire.channel)
    (told,) = (event for event in wire.events if isinstance(event, Inspected))
    assert told.sha256 == true


def test_a_model_that_is_removed_as_it_is_opened_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = Opens(monkeypatch)
    opens.after[1] = scene.model.unlink
    with pytest.raises(BuildFault) as raised:
        scene.read()
    assert raised.value.info.code is ErrorCode.MODEL_UNREADABLE
    assert not opens.read


def test_another_file_than_the_one_that_was_judged_is_not_opened(scene: Scene) -> None:
    status = scene.model.stat()
    OpenedModel(scene.model, [scene.root], (status.st_dev, status.st_ino)).close()
    with pytest.raises(BuildFault) as raised:
        OpenedModel(scene.model, [scene.root], (status.st_dev, status.st_ino + 1))
    assert raised.value.info.code is ErrorCode.MODEL_CHANGED


@pytest.mark.parametrize("kind", ["nothing", "a pipe", "a folder", "a device"])
def test_what_is_no_file_is_neither_waited_for_nor_opened(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = scene.root / "models" / "odd"
    roots = [scene.root]
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path.symlink_to("/dev/zero")
        roots.append(Path("/dev"))
    with OpenedModel(scene.model, roots) as model:
        opens = Opens(monkeypatch)
        with pytest.raises(NoFileError):
            model.open_beside("odd")
    assert not opens.read
    with pytest.raises(BuildFault) as raised:
        OpenedModel(path, roots)
    assert raised.value.info.code is ErrorCode.MODEL_UNREADABLE


@pytest.mark.parametrize(
    "target", ["/proc/self/fd/0", "/proc/self/exe", "/proc/self/root/etc/passwd"]
)
def test_links_of_the_kernel_lead_no_way_out(scene: Scene, target: str) -> None:
    (scene.root / "models" / "odd").symlink_to(target)
    with OpenedModel(scene.model, [scene.root]) as model, pytest.raises(OutsideError):
        model.open_beside("odd")


def test_a_file_that_grows_or_shrinks_is_read_as_far_as_it_was(scene: Scene, opened: Open) -> None:
    path = scene.root / "models" / "w.bin"
    file = opened(path)
    path.write_bytes(INSIDE + OUTSIDE)
    assert b"".join(file.chunks(4)) == INSIDE
    with file.map() as data:
        assert data[:] == INSIDE
    path.write_bytes(INSIDE[:3])
    assert b"".join(file.chunks(2)) == INSIDE[:3]
    with pytest.raises(OSError, match="shorter"):
        file.map()
    assert not file.is_unchanged()


def test_every_file_is_closed_in_the_end(scene: Scene) -> None:
    def count() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = count()
    scene.read()
    (scene.root / "models" / "w.bin").unlink()
    for _ in range(10):
        with suppress(BuildFault):
            scene.read()
    with pytest.raises(BuildFault):
        OpenedModel(scene.model, [scene.outside])
    assert count() == before


MANY = """
import resource, sys
from pathlib import Path
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.opened import OpenedModel
from trt_agent_tools.worker.sidecars import find_sidecars

resource.setrlimit(resource.RLIMIT_NOFILE, (50, int(sys.argv[2])))
path = Path(sys.argv[1])
try:
    print(len(find_sidecars(OpenedModel(path, [path.parent]))))
except BuildFault as fault:
    print(fault.info.code.value)
"""


@pytest.mark.parametrize(("most", "told"), [(1000, "100"), (50, "invalid_model")])
def test_as_many_files_are_opened_as_the_host_allows(scene: Scene, most: int, told: str) -> None:
    weights = [tensor(f"{number}.bin") for number in range(100)]
    graph = helper.make_graph([], "many", [], [], weights)
    scene.model.write_bytes(helper.make_model(graph).SerializeToString())
    for number in range(100):
        (scene.model.parent / f"{number}.bin").write_bytes(INSIDE)
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(scene.model), str(most)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == told
