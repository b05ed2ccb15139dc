import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trt_agent_tools import __version__
from trt_agent_tools.api.place import (
    MAX_SOCKET_BYTES,
    Record,
    UnsafeFolderError,
    choose_socket,
    find_socket,
    make_private,
    read_record,
    remove_record,
    write_record,
)


@pytest.fixture
def runtime() -> Iterator[Path]:
    """A runtime folder with a short path, as a login has one; pytest's own are long."""
    with tempfile.TemporaryDirectory(prefix="run") as folder:
        yield Path(folder)


def long_folder(tmp_path: Path) -> Path:
    folder = tmp_path / ("s" * 120)
    folder.mkdir(mode=0o700)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_socket_is_in_the_state_folder_where_the_kernel_takes_its_path(tmp_path: Path) -> None:
    assert choose_socket(tmp_path) == tmp_path / "supervisor.sock"
    assert find_socket(tmp_path) == tmp_path / "supervisor.sock"


def test_a_long_state_folder_has_its_socket_in_a_private_folder_that_the_record_names(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    state = long_folder(tmp_path)
    socket = choose_socket(state)
    assert socket.parent == runtime / f"trt-agent-tools-{os.geteuid()}"
    assert mode(socket.parent) == 0o700
    assert len(os.fsencode(socket)) <= MAX_SOCKET_BYTES
    write_record(state, socket)
    # A front end whose environment names no such folder finds it all the same.
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert find_socket(state) == socket


def test_two_long_state_folders_do_not_share_a_socket(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    other = tmp_path / "other"
    other.mkdir()
    assert choose_socket(long_folder(tmp_path)) != choose_socket(long_folder(other))


def test_a_link_in_the_place_of_the_private_folder_is_not_used(
    tmp_path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    elsewhere = runtime / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (runtime / f"trt-agent-tools-{os.geteuid()}").symlink_to(elsewhere)
    with pytest.raises(UnsafeFolderError, match="symbolic link"):
        choose_socket(long_folder(tmp_path))


def test_a_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    make_private(tmp_path / "new" / "state")
    assert mode(tmp_path / "new" / "state") == 0o700


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, bits: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(bits)
    with pytest.raises(UnsafeFolderError, match="chmod go-w"):
        make_private(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(UnsafeFolderError, match="another user"):
        make_private(folder)


def test_the_record_tells_who_serves_and_is_this_users_alone(tmp_path: Path) -> None:
    write_record(tmp_path, tmp_path / "supervisor.sock")
    assert mode(tmp_path / "supervisor.json") == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["supervisor.json"]
    record = read_record(tmp_path)
    assert record is not None
    assert (record.pid, record.version) == (os.getpid(), __version__)
    assert set(json.loads((tmp_path / "supervisor.json").read_text())) == set(Record.model_fields)
    remove_record(tmp_path)
    assert read_record(tmp_path) is None


def test_the_record_of_another_process_stays(tmp_path: Path) -> None:
    write_record(tmp_path, tmp_path / "supervisor.sock")
    record = read_record(tmp_path)
    assert record is not None
    other = record.model_copy(update={"pid": record.pid + 1})
    (tmp_path / "supervisor.json").write_text(other.model_dump_json())
    remove_record(tmp_path)
    assert read_record(tmp_path) == other


@pytest.mark.parametrize("content", [b"", b"{", b'{"pid": 1}', b"\xff\xfe"])
def test_a_damaged_record_is_no_record(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "supervisor.json").write_bytes(content)
    assert read_record(tmp_path) is None
    state = long_folder(tmp_path)
    (state / "supervisor.json").write_bytes(content)
    assert find_socket(state) == state / "supervisor.sock"
