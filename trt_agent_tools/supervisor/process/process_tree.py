"""Every process of one build: found, signalled, and proven gone.

A process belongs to the build if it is in the worker's session, descends from the worker, was seen
to descend from it earlier, or carries the build's token in its environment. Processes are told
apart by pid and start time, so a reused pid is never signalled.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

import anyio
import psutil

from trt_agent_tools.model.events import BUILD_TOKEN_ENV

_PROC = Path("/proc")
_DEAD = {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}


_NO_PID = -1


class ProcessTree:
    """The processes of the build whose worker is `pid`, a leader of its own session."""

    def __init__(self, pid: int, token: str) -> None:
        self._pid = pid
        self._mark = f"{BUILD_TOKEN_ENV}={token}".encode()
        self._seen: set[psutil.Process] = set()
        self._worker: psutil.Process | None = None
        if pid != _NO_PID:
            with suppress(psutil.NoSuchProcess):
                self._worker = psutil.Process(pid)
                self._seen.add(self._worker)

    @classmethod
    def by_token(cls, token: str) -> "ProcessTree":
        """Return the processes that carry this token, whatever became of the worker."""
        return cls(_NO_PID, token)

    def descendants(self) -> list[psutil.Process]:
        """Return the living processes seen so far and those that descend from them now.

        Cheaper than `members`: for looking once a second. What is found is remembered.
        """
        self._seen = {process for process in self._seen if _lives(process)}
        known = {process.pid for process in self._seen}
        unsearched = list(self._seen)
        while unsearched:
            with suppress(psutil.Error, OSError):
                found = [child for child in _children(unsearched.pop()) if child.pid not in known]
                known.update(child.pid for child in found)
                self._seen.update(found)
                unsearched += found
        return list(self._seen)

    def members(self) -> list[psutil.Process]:
        """Return every living process of the build, searching the whole host."""
        self.descendants()
        for entry in _PROC.iterdir():
            if entry.name.isdecimal() and self._belongs(int(entry.name)):
                with suppress(psutil.NoSuchProcess):
                    self._seen.add(psutil.Process(int(entry.name)))
        self._seen = {process for process in self._seen if _lives(process)}
        return list(self._seen)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every process of the build."""
        for process in self.members():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.send_signal(number)

    async def worker_exit(self) -> None:
        """Return when the worker itself has exited, whoever still holds its pipes."""
        if self._worker is not None:
            await _exit_of(self._worker)

    async def all_exits(self) -> None:
        """Return when no process of the build lives. Bound it: a process may never end."""
        while members := self.members():
            await _exit_of(members[0])

    def stopped(self) -> bool:
        """Whether the worker is stopped (SIGSTOP, a debugger): it can neither read nor be asked."""
        with suppress(psutil.NoSuchProcess):
            return (
                self._worker is not None
                and self._worker.is_running()
                and self._worker.status() == psutil.STATUS_STOPPED
            )
        return False

    def _belongs(self, pid: int) -> bool:
        try:
            if os.getsid(pid) == self._pid and not self._pid_is_anothers():
                return True
            return self._mark in (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            # Gone meanwhile, or another user's: a build's processes run as this user.
            return False

    def _pid_is_anothers(self) -> bool:
        """Whether the worker's pid is in use again. A session of that number is not the build's then."""
        gone = self._worker is None or not self._worker.is_running()
        return gone and psutil.pid_exists(self._pid)


def _children(parent: psutil.Process) -> list[psutil.Process]:
    """Return the children of every thread of a process, as the kernel lists them.

    `psutil` would read about every process of the host. A kernel may lack the list, and one that is
    read while children end may miss some: they are found the next time.
    """
    threads = list((_PROC / str(parent.pid) / "task").iterdir())
    try:
        pids = [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]
    except FileNotFoundError:
        return parent.children()
    children = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            child = psutil.Process(pid)
            # One that ended since may have left its number to another process.
            if child.ppid() == parent.pid and _lives(child):
                children.append(child)
    return children


def _lives(process: psutil.Process) -> bool:
    try:
        if not process.is_running():
            return False
        return process.status() not in _DEAD or _has_threads(process)
    except psutil.NoSuchProcess:
        return False


def _has_threads(process: psutil.Process) -> bool:
    """Whether other threads outlive a process's first one: killed, it is a zombie with a live part.

    So it looks while one of its threads is stuck in a driver, and holds the device.
    """
    try:
        return sum(1 for _ in (_PROC / str(process.pid) / "task").iterdir()) > 1
    except OSError:
        # Reaped meanwhile.
        return False


async def _exit_of(process: psutil.Process) -> None:
    """Return when the process has exited; it need not be a child of this one."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if _lives(process):
            await anyio.wait_readable(descriptor)
    finally:
        os.close(descriptor)
