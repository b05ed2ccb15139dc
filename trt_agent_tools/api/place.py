"""Where a supervisor is found: its folder, its socket, and the record that names both."""

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from trt_agent_tools import __version__
from trt_agent_tools.api.messages import API_PROTOCOL
from trt_agent_tools.supervisor.process.identity import this_process

LOCK = "supervisor.lock"
STARTING = "supervisor.starting"
SOCKET = "supervisor.sock"
RECORD = "supervisor.json"
LOG = "supervisor.log"

BEING_MADE = "~"
"""Ends the name of a file until it is complete; then it is moved over the one of before."""

MAX_SOCKET_BYTES = 107 - len(BEING_MADE)
"""The longest path that the kernel binds a Unix socket to, the ending of one being made left out."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Record(BaseModel):
    """Who holds a state folder, for front ends and for people."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: float
    boot_id: str
    version: str
    protocol: int
    socket: str
    http: str | None = None
    """The address over TCP of one that serves it."""


class UnsafeFolderError(OSError):
    """Somebody else could put files into the folder."""


def make_private(folder: Path) -> None:
    """Make a folder for this user alone, unless it is there, and judge one that is.

    Raises:
        OSError: it cannot be made, is another user's, or others may write to it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise UnsafeFolderError(f"{folder} belongs to another user")
    if found.st_mode & _OTHERS_WRITE:
        raise UnsafeFolderError(
            f"others may write to {folder}; take that away: chmod go-w {folder}"
        )


def choose_socket(state_dir: Path) -> Path:
    """Return where the supervisor of a state folder listens.

    It is in that folder, or, where its path would be too long, in a private one of this user's.

    Raises:
        OSError: that folder cannot be made, or is not private.
    """
    plain = state_dir / SOCKET
    if len(os.fsencode(plain)) <= MAX_SOCKET_BYTES:
        return plain
    name = hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:16]
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    socket = runtime / f"trt-agent-tools-{os.geteuid()}" / f"{name}.sock"
    usable = runtime.is_absolute() and runtime.is_dir()
    if not usable or len(os.fsencode(socket)) > MAX_SOCKET_BYTES:
        socket = Path("/tmp") / socket.relative_to(runtime)  # noqa: S108
    folder = socket.parent
    if folder.is_symlink():
        raise UnsafeFolderError(f"{folder} is a symbolic link")
    make_private(folder)
    return socket


def find_socket(state_dir: Path) -> Path:
    """Return where the supervisor of a state folder is to be asked, whether there is one or not."""
    plain = state_dir / SOCKET
    if len(os.fsencode(plain)) <= MAX_SOCKET_BYTES:
        return plain
    # Its environment decided where, not ours.
    record = read_record(state_dir)
    return plain if record is None else Path(record.socket)


def read_record(state_dir: Path) -> Record | None:
    """Return the record of the state folder, if there is one that can be read."""
    with suppress(OSError, ValidationError):
        return Record.model_validate_json((state_dir / RECORD).read_bytes())
    return None


def write_record(state_dir: Path, socket: Path, http: str | None = None) -> None:
    """Note that this process is the supervisor and listens on `socket`, and over TCP on `http`.

    Raises:
        OSError: the record cannot be written.
    """
    owner = this_process()
    record = Record(
        **owner.model_dump(),
        version=__version__,
        protocol=API_PROTOCOL,
        socket=str(socket),
        http=http,
    )
    path = state_dir / RECORD
    partial = path.with_name(RECORD + BEING_MADE)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(record.model_dump_json() + "\n")
    partial.replace(path)


def remove_record(state_dir: Path) -> None:
    """Remove the record if it is this process's."""
    record = read_record(state_dir)
    if record is not None and record.pid == os.getpid():
        (state_dir / RECORD).unlink(missing_ok=True)
