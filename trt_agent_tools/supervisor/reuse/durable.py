"""Links, copies and writes of files that are on the disk when the call returns."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from trt_agent_tools.supervisor.file_digest import CHUNK_BYTES, Interrupt

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES}
"""How a file system says that it makes no link there, where a copy may go."""

WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a file is opened that must not be there yet."""


def link(make: Callable[[], None]) -> bool:
    """Make a hard link by `make`; return False where the file systems allow none.

    Raises:
        OSError: it fails for another reason.
    """
    try:
        make()
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def copy(source: Path, descriptor: int, interrupt: Interrupt) -> str:
    """Copy a file to a descriptor, durably, and close that; return the SHA-256 of what was copied.

    Raises:
        OSError: it cannot be read or written.
        InterruptedWorkError: it is not wanted any more.
    """
    sha256 = hashlib.sha256()
    try:
        # A pipe is not waited for: nothing is read from one.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(source, flags), "rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                interrupt.check()
                sha256.update(chunk)
                _write_all(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return sha256.hexdigest()


def write_durably(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a descriptor, durably, and close that.

    Raises:
        OSError: it cannot be written.
    """
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable.

    Raises:
        OSError: that fails.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
