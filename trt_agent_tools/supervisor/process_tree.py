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


class ProcessTree:
    """The processes of the build whose worker is `pid`, a leader of its own session."""

    def __init__(self, pid: int, token: str) -> None:
        self._pid = pid
        self._mark = f"{BUILD_TOKEN_ENV}={token}".encode()
        self._seen: set[psutil.Process] = set()
        with suppress(psutil.NoSuchProcess):
            self._seen.add(psutil.Process(pid))

    def descendants(self) -> list[psutil.Process]:
        """Return the living processes seen so far and those that descend from them now.

        Cheaper than `members`: for looking once a second. What is found is remembered.
        """
        for process in list(self._seen):
            with suppress(psutil.Error):
                self._seen.update(process.children(recursive=True))
        self._seen = {process for process in self._seen if _lives(process)}
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
        with suppress(psutil.NoSuchProcess):
            await _exit_of(psutil.Process(self._pid))

    async def all_exits(self) -> None:
        """Return when no process of the build lives. Bound it: a process may never end."""
        while members := self.members():
            await _exit_of(members[0])

    def stopped(self) -> bool:
        """Whether the worker is stopped (SIGSTOP, a debugger): it can neither read nor be asked."""
        with suppress(psutil.NoSuchProcess):
            return bool(psutil.Process(self._pid).status() == psutil.STATUS_STOPPED)
        return False

    def _belongs(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self._pid or self._mark in (
                (_PROC / str(pid) / "environ").read_bytes()
            )
        except OSError:
            # Gone meanwhile, or another user's: a build's processes run as this user.
            return False


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in _DEAD
    except psutil.NoSuchProcess:
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
