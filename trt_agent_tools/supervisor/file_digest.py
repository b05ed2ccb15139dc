"""Digests of files that others may be writing, and what tells that a file is still the one read."""

import hashlib
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from typing_extensions import Self

CHUNK_BYTES = 256 * 1024
"""Large ones stay in the heaps of the pool's threads for the server's life."""

_T = TypeVar("_T")


class InterruptedWorkError(Exception):
    """Work in a thread was told to stop, and stopped."""


class Interrupt:
    """Tells work in a thread that nobody wants it any more."""

    def __init__(self) -> None:
        self._told = threading.Event()

    def tell(self) -> None:
        """Let every later `check` raise."""
        self._told.set()

    def check(self) -> None:
        """Go on, unless told not to.

        Raises:
            InterruptedWorkError: nobody wants the work any more.
        """
        if self._told.is_set():
            raise InterruptedWorkError


async def interruptible(
    work: Callable[[Interrupt], _T], limiter: anyio.CapacityLimiter | None = None
) -> _T:
    """Run `work` in a thread. A caller who is cancelled waits for it no more, and it is told to stop."""
    interrupt = Interrupt()
    try:
        return await anyio.to_thread.run_sync(
            partial(work, interrupt), abandon_on_cancel=True, limiter=limiter
        )
    finally:
        interrupt.tell()


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the file system says of a file. Whoever writes to it changes one of these."""

    device: int
    inode: int
    bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp in a status."""
        return cls(
            device=status.st_dev,
            inode=status.st_ino,
            bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
            ctime_ns=status.st_ctime_ns,
        )

    def is_only_linked(self, other: Self) -> bool:
        """Whether the files are one, unwritten: a link made or removed changes `ctime_ns` alone."""
        return (self.device, self.inode, self.bytes, self.mtime_ns) == (
            *(other.device, other.inode),
            *(other.bytes, other.mtime_ns),
        )


@dataclass(frozen=True, slots=True)
class Digested:
    """The SHA-256 of a whole file and its stamp, the same before it was read and after."""

    sha256: str
    stamp: Stamp


def digest(path: Path, interrupt: Interrupt) -> Digested | None:
    """Return the digest of a regular file; None for anything else, or if it changed meanwhile.

    Raises:
        OSError: it cannot be read.
        InterruptedWorkError: the digest is not wanted any more.
    """
    # Whoever writes to the folder may have put anything there: what blocks, or has no end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        before = Stamp.of(status)
        sha256 = hashlib.sha256()
        read = 0
        # Of a file that grows no more is read than it had: it has changed then anyway.
        while read < before.bytes and (chunk := file.read(CHUNK_BYTES)):
            interrupt.check()
            sha256.update(chunk)
            read += len(chunk)
        if read != before.bytes or Stamp.of(os.fstat(descriptor)) != before:
            return None
    return Digested(sha256.hexdigest(), before)
