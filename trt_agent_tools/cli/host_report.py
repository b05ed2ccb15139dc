"""What `doctor` tells of a state folder: its supervisor and its journal."""

from pathlib import Path

from pydantic import BaseModel

from trt_agent_tools.api.attach import ask
from trt_agent_tools.api.folder_lock import FolderLock
from trt_agent_tools.api.place import LOCK
from trt_agent_tools.store.journal import FILE_NAME, Journal, JournalError


class SupervisorReport(BaseModel):
    """The supervisor that answers for the state folder."""

    pid: int
    version: str
    builds_live: int
    front_ends: int


class JournalReport(BaseModel):
    """The journal. `ok` is None where it was not looked into, because a supervisor has it open."""

    path: str
    bytes: int
    ok: bool | None = None
    builds: int | None = None
    unfinished: int | None = None
    oldest: str | None = None
    whole: bool | None = None
    """Whether all of it was read in the time that there is for it."""
    problem: str | None = None


async def find_supervisor(state_dir: Path) -> SupervisorReport | None:
    """Return who answers for the state folder; None if nobody does."""
    hello = await ask(state_dir)
    if hello is None:
        return None
    return SupervisorReport(
        pid=hello.pid,
        version=hello.version,
        builds_live=hello.builds_live,
        front_ends=hello.front_ends,
    )


async def look_into_journal(state_dir: Path) -> JournalReport | None:
    """Return how the journal of a state folder is; None if there is none. Nothing is made."""
    path = state_dir / FILE_NAME
    try:
        size = path.stat().st_size
    except OSError:
        # None yet, or a folder that cannot be entered, which is told with the folder.
        return None
    lock = FolderLock(state_dir / LOCK)
    try:
        if not lock.take():
            return JournalReport(path=str(path), bytes=size)
        journal = await Journal.open(state_dir)
        # Whoever starts a supervisor does not wait for the rest.
        lock.release()
        health = await journal.check()
        await journal.aclose()
    except (OSError, JournalError) as error:
        return JournalReport(path=str(path), bytes=size, ok=False, problem=str(error))
    finally:
        lock.release()
    return JournalReport(
        path=str(path),
        bytes=health.bytes,
        ok=health.ok,
        builds=health.builds,
        unfinished=health.unfinished,
        oldest=health.oldest,
        whole=health.checked,
        problem=health.error,
    )
