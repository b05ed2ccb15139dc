"""What the worker does to its own process before anything else."""

import ctypes
import fcntl
import os
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1

_OTHER_FILES = 256
"""What Python, TensorRT and the driver have open."""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The two ends of the protocol, out of the way of the standard descriptors."""

    orders: int
    events: int


def claim_descriptors() -> Descriptors:
    """Move the protocol off fds 0 and 1 and point fd 1 at the log, where fd 2 is already.

    TensorRT and the libraries below it print to both. No program that the build starts inherits the
    protocol's descriptors.
    """
    orders = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    events = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return Descriptors(orders, events)


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends.

    A second line behind the end of file on the orders: it holds while Python cannot run.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def limit_resources(memory_bytes: int | None) -> None:
    """Bound what this process may take, before it reads what nobody vouches for.

    No core files: they hold the model, and can fill the disk. With `memory_bytes` an allocation that
    would pass it fails: a hard stop between two looks of the policy. Where memory runs out on the whole
    host, the kernel is to end this process and not the supervisor.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    # A container may not allow it, and the build does not need it.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500", "ascii")


def allow_files(count: int) -> None:
    """Let this process open `count` files beside those of the libraries, as far as the host allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _OTHER_FILES
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def take_signals() -> None:
    """End at once on SIGTERM, whatever runs; leave SIGINT to the supervisor.

    A Python handler would wait for TensorRT to return; the default action does not. A terminal's
    Ctrl-C is the supervisor's to interpret.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
