"""What a supervisor does at its start for the builds of one that died.

A build whose owner is gone is over: its processes are ended if any is left, its half-written files are
settled, and it becomes `lost` with what was known of it, its GPU time charged until the last
evidence. An engine that turns out complete and verified makes it a success after all.
"""

import logging
import shutil
import signal
from pathlib import Path

import anyio
import anyio.to_thread

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.model.snapshot import Phase, PhaseStatus, Result, Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.store.journal import Journal
from trt_agent_tools.store.records import BuildEnded
from trt_agent_tools.store.stored import StoredBuild
from trt_agent_tools.supervisor.artefact import Artefact, settle_artefact
from trt_agent_tools.supervisor.process.identity import Owner, lives
from trt_agent_tools.supervisor.process.process_tree import ProcessTree

KILL_S = 10.0
"""How long the processes of a dead supervisor's build may take to go after SIGKILL."""

UNTOLD_S = 5.0
"""So long a build may have gone on after its progress was last written, and no longer."""

_log = logging.getLogger(__name__)


async def recover(journal: Journal) -> int:
    """Bring every build whose owner is gone to its end in the journal; return how many there were.

    Raises:
        JournalError: the journal cannot be read or written.
    """
    recovered = 0
    for stored in await journal.unfinished():
        if lives(Owner.model_validate_json(stored.supervisor)):
            continue
        if stored.token:
            await _end_processes(stored)
        artefact = await anyio.to_thread.run_sync(_settle, stored)
        await journal.write(_ending(stored, artefact))
        recovered += 1
    return recovered


def remove_folders(builds: Path, kept: set[str]) -> None:
    """Remove the folders of builds that the journal no longer knows."""
    for folder in builds.iterdir() if builds.is_dir() else ():
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)


async def _end_processes(stored: StoredBuild) -> None:
    # By the token alone: the pid may be another process's by now.
    tree = ProcessTree.by_token(stored.token or "")
    with anyio.move_on_after(KILL_S):
        while tree.members():
            tree.send(signal.SIGKILL)
            with anyio.move_on_after(1.0):
                await tree.all_exits()
    if tree.members():
        _log.error("a process of build %s outlives SIGKILL", stored.build_id)


def _settle(stored: StoredBuild) -> Artefact | None:
    try:
        return settle_artefact(BuildOrder.model_validate_json(stored.order))
    except OSError as error:
        _log.warning("what build %s left behind stays: %s", stored.build_id, error)
        return None


def _ending(stored: StoredBuild, artefact: Artefact | None) -> BuildEnded:
    known = Snapshot.model_validate_json(stored.snapshot)
    at = max(0.0, stored.last_wall - stored.wall)
    held = None
    if stored.started_wall is not None:
        held = max(0.0, stored.last_wall - stored.started_wall)
    if held is not None and stored.gpu_s is not None:
        # The wall clock may have stepped; what was told about once a second was measured by one that
        # does not.
        held = min(max(held, stored.gpu_s), stored.gpu_s + UNTOLD_S)
        at = min(max(at, known.elapsed_s), known.elapsed_s + UNTOLD_S)
    state = State.SUCCEEDED if artefact else State.LOST
    reason = Reason.COMPLETED if artefact else Reason.SUPERVISOR_LOST
    after = format_duration(at)
    if artefact:
        told = f"{stored.build_id} succeeded: its engine was complete when its supervisor ended"
        note = "The supervisor died under this build; the engine was found complete and verified."
    else:
        doing = f" in {known.current}" if known.current else ""
        told = (
            f"{stored.build_id} lost after {after}{doing}: its supervisor ended under it, "
            "and its processes with it"
        )
        note = f"Last heard of {after} after it was accepted; nothing of it runs on."
    ended = known.model_copy(
        update={
            "seq": known.seq + 1,
            "state": state,
            "reason": reason,
            "summary": told,
            "elapsed_s": round(at, 1),
            "gpu_s": None if held is None else round(held, 1),
            "quiet_s": None,
            "current": None,
            "activity": None,
            "poll_after_ms": None,
            "notes": [*(known.notes or []), note],
            "phases": None if known.phases is None else [_stopped(p) for p in known.phases],
            "result": Result(
                engine=artefact.engine,
                bytes=artefact.bytes,
                sha256=artefact.sha256,
                manifest=artefact.manifest,
                reused=artefact.reused_from,
            )
            if artefact
            else None,
        }
    )
    return BuildEnded(
        build_id=stored.build_id,
        at=at,
        wall=stored.last_wall,
        state=state,
        reason=reason,
        gpu_s=held,
        snapshot=ended.model_dump_json(exclude_none=True),
    )


def _stopped(phase: Phase) -> Phase:
    running = phase.status is PhaseStatus.RUNNING
    return phase.model_copy(
        update={
            "status": PhaseStatus.STOPPED if running else phase.status,
            "children": [_stopped(child) for child in phase.children],
        }
    )
