"""What the worker does to its own process before anything else."""

import ctypes
import fcntl
import os
import signal
import sys
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1


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


def take_signals() -> None:
    """End at once on SIGTERM, whatever runs; leave SIGINT to the supervisor.

    A Python handler would wait for TensorRT to return; the default action does not. A terminal's
    Ctrl-C is the supervisor's to interpret.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
