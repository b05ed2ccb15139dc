"""The engine and its manifest are written both or not at all, and nothing else is touched."""

import hashlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.build_orders import (
    ENGINE,
    OLDER,
    build_order,
    files,
    manifest_for,
    manifest_text,
    put_older,
)
from tests.unit.worker.conftest import Open
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.supervisor.artefact import settle_artefact
from trt_agent_tools.worker import artefact
from trt_agent_tools.worker.artefact import check_output, write_artefact
from trt_agent_tools.worker.faults import BuildFault


def write(order: BuildOrder, engine: bytes = ENGINE) -> FileDigest:
    def manifest(digest: FileDigest) -> Manifest:
        made = manifest_for(engine, order)
        assert made.engine == digest
        return made

    return write_artefact(order, memoryview(engine), manifest)


def fault(order: BuildOrder, engine: bytes = ENGINE) -> ErrorInfo:
    with pytest.raises(BuildFault) as raised:
        write(order, engine)
    assert raised.value.info.hint
    return raised.value.info


WHOLE = {"m.engine", "m.engine.json"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_engine_and_its_manifest_are_written(tmp_path: Path, overwrite: bool) -> None:
    order = build_order(tmp_path, overwrite=overwrite)
    digest = write(order)
    assert digest == FileDigest(
        path=order.output, bytes=len(ENGINE), sha256=hashlib.sha256(ENGINE).hexdigest()
    )
    assert files(tmp_path) == {
        "m.engine": ENGINE,
        "m.engine.json": manifest_text(ENGINE, order).encode(),
    }
    # What the supervisor finds is what the worker said.
    settled = settle_artefact(order)
    assert settled
    assert (settled.bytes, settled.sha256) == (digest.bytes, digest.sha256)


def test_an_engine_of_many_chunks_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefact, "CHUNK_BYTES", 7)
    write(build_order(tmp_path))
    assert files(tmp_path)["m.engine"] == ENGINE


def test_an_engine_that_appeared_meanwhile_is_left_as_it_is(tmp_path: Path) -> None:
    order = build_order(tmp_path)
    put_older(order)
    before = files(tmp_path)
    assert fault(order).code is ErrorCode.OUTPUT_EXISTS
    assert files(tmp_path) == before


def test_overwriting_replaces_the_engine_and_its_manifest(tmp_path: Path) -> None:
    order = build_order(tmp_path, overwrite=True)
    put_older(order)
    write(order)
    assert files(tmp_path)["m.engine"] == ENGINE
    assert b"b_new" in files(tmp_path)["m.engine.json"]


def test_a_reader_never_sees_part_of_an_engine(tmp_path: Path) -> None:
    order = build_order(tmp_path, overwrite=True)
    Path(order.output).write_bytes(OLDER)
    seen: set[bytes] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add(Path(order.output).read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    large = os.urandom(1 << 20)
    try:
        for _ in range(20):
            write(order, large)
            write(order, OLDER)
    finally:
        over.set()
        reader.join(30)
    assert seen <= {OLDER, large}


def test_an_engine_whose_manifest_has_no_place_is_not_left_alone(tmp_path: Path) -> None:
    for overwrite in (False, True):
        order = build_order(tmp_path, overwrite=overwrite)
        if not Path(order.manifest).exists():
            Path(order.manifest).mkdir()
        assert fault(order).code is ErrorCode.OUTPUT_NOT_WRITABLE
        assert [path.name for path in tmp_path.iterdir()] == ["m.engine.json"]


def test_an_engine_that_is_not_durable_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(artefact, "_sync_folder", fail)
    assert fault(build_order(tmp_path)).code is ErrorCode.OUTPUT_NOT_WRITABLE
    assert files(tmp_path) == {}


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    order = build_order(tmp_path / "gone")
    assert fault(order).code is ErrorCode.OUTPUT_NOT_WRITABLE


def test_files_that_are_not_in_one_folder_are_not_written(tmp_path: Path) -> None:
    order = build_order(tmp_path)
    (tmp_path / "other").mkdir()
    apart = order.model_copy(update={"manifest": str(tmp_path / "other" / "m.engine.json")})
    assert fault(apart).code is ErrorCode.OUTPUT_NOT_WRITABLE
    assert [path.name for path in tmp_path.rglob("*")] == ["other"]


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file of this process grow over 10,000 bytes, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_is_full_is_told_and_nothing_is_left(tmp_path: Path, small_files: None) -> None:
    order = build_order(tmp_path, overwrite=True)
    put_older(order)
    before = files(tmp_path)
    info = fault(order, bytes(20_000))
    assert info.code is ErrorCode.DISK_FULL
    assert files(tmp_path) == before


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.unit.build_orders import ENGINE, build_order, manifest_for
from trt_agent_tools.worker.artefact import write_artefact

order = build_order(Path(sys.argv[1]), overwrite=sys.argv[2] == "overwrite")
left = int(sys.argv[4])

def count(event, arguments):
    # Each call that changes the folder; the process dies before the one that is due.
    global left
    if event in {"open", "os.rename", "os.link", "os.remove"} and (
        sys.argv[1] in str(arguments[0]) or "m.engine" in str(arguments[0])
    ):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
write_artefact(order, memoryview(ENGINE), lambda digest: manifest_for(ENGINE, order))
print("done")
"""
CALLS = 8
"""More than the calls that change the folder: the last ones are never due."""


@pytest.mark.parametrize("how", ["new", "overwrite"])
@pytest.mark.parametrize("left", range(CALLS))
def test_killed_at_any_call_a_real_writer_leaves_a_whole_result_or_the_older_one(
    tmp_path: Path, how: str, left: int
) -> None:
    order = build_order(tmp_path, overwrite=how == "overwrite")
    if how == "overwrite":
        put_older(order)
    before = files(tmp_path)
    here = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), how, str(here), str(left)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    settled = settle_artefact(order)
    if settled:
        assert files(tmp_path) == {
            "m.engine": ENGINE,
            "m.engine.json": manifest_text(ENGINE, order).encode(),
        }
    else:
        assert done.returncode == -signal.SIGKILL
        assert files(tmp_path) == before
    # Both ends of the range are reached.
    assert (left > 0) or not settled
    assert (left < CALLS - 1) or done.stdout == "done\n"


def test_what_a_build_reads_is_not_what_it_writes(tmp_path: Path, opened: Open) -> None:
    order = build_order(tmp_path, overwrite=True)
    model, weights = tmp_path / "m.onnx", tmp_path / "w.bin"
    for path in (model, weights, Path(order.output)):
        path.write_bytes(b"x")
    check_output(order, [opened(model), opened(weights)])
    for taken in (order.output, order.manifest):
        weights.unlink()
        Path(taken).unlink(missing_ok=True)
        Path(taken).write_bytes(b"weights")
        os.link(taken, weights)
        with pytest.raises(BuildFault) as raised:
            check_output(order, [opened(model), opened(weights)])
        assert raised.value.info.code is ErrorCode.INVALID_ARGUMENT
