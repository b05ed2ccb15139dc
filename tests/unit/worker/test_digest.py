"""Digests of what a build reads: right, beside the build, and wary of files that change meanwhile."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import trt_agent_tools
from tests.unit.worker.conftest import Open
from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.events import MAX_LINE_BYTES, encode_event
from trt_agent_tools.model.manifest import FileDigest
from trt_agent_tools.worker import digest
from trt_agent_tools.worker.digest import (
    CHUNK_BYTES,
    InputDigests,
    digest_file,
    digest_opened,
    digest_together,
    digested,
)
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.opened import OpenedFile, check_unchanged


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"a model")
    return path


def told(path: Path) -> FileDigest:
    data = path.read_bytes()
    return FileDigest(path=str(path), bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def fault(digests: InputDigests) -> ErrorInfo:
    with pytest.raises(BuildFault) as raised:
        digests.wait()
    assert raised.value.info.hint
    return raised.value.info


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 1])
def test_a_digest_is_of_every_byte(tmp_path: Path, opened: Open, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    assert digest_opened(opened(path)) == digest_file(path) == told(path)


def test_digests_come_in_the_order_of_the_files(tmp_path: Path, file: Path, opened: Open) -> None:
    files = [file]
    for n in range(5):
        path = tmp_path / f"{9 - n}.bin"
        path.write_bytes(bytes(n))
        files.append(path)
    assert InputDigests([opened(path) for path in files]).wait() == [told(path) for path in files]


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"!")


def rewrite(path: Path) -> None:
    path.write_bytes(b"A" * path.stat().st_size)
    os.utime(path, ns=(1, 1))


def swap(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


def remove(path: Path) -> None:
    path.unlink()


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [grow, rewrite, swap, remove, make_a_folder])
def test_a_model_that_changes_while_it_is_built_from_is_found_out(
    file: Path, opened: Open, change: Callable[[Path], None]
) -> None:
    digests = InputDigests([opened(file)])
    digests.wait()
    change(file)
    info = fault(digests)
    assert info.code is ErrorCode.MODEL_CHANGED
    assert info.details["files"] == ["m.onnx"]


def test_a_folder_that_becomes_a_file_is_a_change(tmp_path: Path, opened: Open) -> None:
    path = tmp_path / "folder" / "m.onnx"
    path.parent.mkdir()
    path.write_bytes(b"a model")
    digests = InputDigests([opened(path)])
    digests.wait()
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()
    assert fault(digests).code is ErrorCode.MODEL_CHANGED


def test_a_file_that_cannot_be_read_is_told(file: Path, opened: Open) -> None:
    # A folder's descriptor: reading it fails as a disk might.
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        digests = InputDigests([replace(opened(file), descriptor=folder)])
        assert fault(digests).code is ErrorCode.MODEL_UNREADABLE
    finally:
        os.close(folder)


def test_what_goes_wrong_beside_the_build_is_not_lost(
    file: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: OpenedFile) -> FileDigest:
        raise MemoryError

    monkeypatch.setattr(digest, "digest_opened", fail)
    with pytest.raises(MemoryError):
        InputDigests([opened(file)]).wait()


NICE = """
import os, sys
from pathlib import Path
from trt_agent_tools.worker.digest import InputDigests
from trt_agent_tools.worker.opened import OpenedModel
os.nice(15)
if os.geteuid() == 0:
    os.setuid(65534)
model = OpenedModel(Path("m.onnx"), [Path.cwd()])
print(InputDigests([model.file]).wait()[0].sha256)
"""


def test_a_server_that_is_nicer_than_its_digests_can_build_too(file: Path) -> None:
    file.parent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", NICE],
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(Path(trt_agent_tools.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == told(file).sha256


def test_the_build_has_the_processor_first(file: Path, opened: Open) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    InputDigests([opened(file)]).wait()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_the_digest_of_one_file_is_its_own(file: Path, opened: Open) -> None:
    assert digest_together([opened(file)], 10) == told(file).sha256


def test_the_digest_of_several_files_is_what_the_usual_tools_compute(
    tmp_path: Path, file: Path, opened: Open
) -> None:
    other = tmp_path / "w.bin"
    other.write_bytes(bytes(CHUNK_BYTES + 1))
    command = 'sha256sum "$@" | cut -c-64 | sha256sum | cut -c-64'
    computed = subprocess.run(
        ["sh", "-c", command, "sh", str(file), str(other)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert digest_together([opened(file), opened(other)], 10) == computed.stdout.strip()
    assert digest_together([opened(other), opened(file)], 10) != computed.stdout.strip()


def test_a_digest_that_would_take_too_long_is_given_up_before_that(
    tmp_path: Path, opened: Open
) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as stream:
        stream.truncate(1 << 42)
    # Hours of reading: seen at once, not when the time is up.
    assert digest_together([opened(large)], 600) is None
    assert digest_together([opened(large)], 0) is None


def test_files_that_are_left_alone_are_unchanged(file: Path, opened: Open) -> None:
    files = [opened(file)]
    check_unchanged(files)
    grow(file)
    with pytest.raises(BuildFault) as raised:
        check_unchanged(files)
    assert raised.value.info.code is ErrorCode.MODEL_CHANGED


def test_the_digests_are_told_once_all_are_taken(file: Path, tmp_path: Path, opened: Open) -> None:
    sidecar = tmp_path / "w.bin"
    sidecar.write_bytes(b"weights")
    files = [opened(file), opened(sidecar)]
    told: list[list[FileDigest]] = []
    digests = InputDigests(files, lambda taken: told.append([*taken])).wait()
    assert told == [digests]
    event = digested(1.5, digests)
    assert (event.at, event.bytes, event.files_left_out) == (1.5, 14, 0)
    assert event.sha256 == digest_together(files, 60)
    assert [each.path for each in event.files] == [str(file), str(sidecar)]


def test_of_very_many_files_the_first_are_told_one_by_one() -> None:
    digests = [FileDigest(path=f"/{number}", bytes=1, sha256="ab") for number in range(1000)]
    event = digested(0.0, digests)
    assert len(event.files) + event.files_left_out == event.bytes == 1000
    assert event.files[0].path == "/0"
    assert len(encode_event(event)) < MAX_LINE_BYTES


def test_digests_that_nobody_can_be_told_of_fail_no_build_silently(
    file: Path, opened: Open
) -> None:
    def broken(_: list[FileDigest]) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        InputDigests([opened(file)], broken).wait()
