"""A process that cannot be mistaken for a later one of the same pid."""

import os
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

_SAME_START_S = 1.0


class Owner(BaseModel):
    """A process by its pid, its start (seconds since the epoch) and the boot that it ran in."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: float
    boot_id: str


def this_process() -> Owner:
    """Return the identity of this process."""
    return Owner(pid=os.getpid(), started=psutil.Process().create_time(), boot_id=_boot_id())


def lives(owner: Owner) -> bool:
    """Whether that process still runs."""
    if owner.boot_id != _boot_id():
        return False
    try:
        process = psutil.Process(owner.pid)
        same = abs(process.create_time() - owner.started) < _SAME_START_S
        # A zombie runs nothing any more; its parent just has not looked yet.
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
