"""What builds of dead supervisors left behind: half-written files, and folders beyond the newest."""

import json
import logging
import os
import shutil
from contextlib import suppress
from pathlib import Path

import psutil
from pydantic import BaseModel, ValidationError

from trt_agent_tools.model.request import BuildOrder

KEPT_FOLDERS = 200
"""So many folders of ended builds stay, for their logs and recorded events."""

_OWNER = "owner.json"
_log = logging.getLogger(__name__)


class Owner(BaseModel):
    """A process that cannot be mistaken for a later one of the same pid."""

    pid: int
    started: float
    boot_id: str


class Claim(BaseModel):
    """Who runs a build, and the two names that a killed worker of it can leave behind."""

    owner: Owner
    partial_engine: str
    partial_manifest: str


def this_process() -> Owner:
    """Return the identity of this process."""
    return Owner(pid=os.getpid(), started=psutil.Process().create_time(), boot_id=_boot_id())


def claim_folder(folder: Path, order: BuildOrder) -> None:
    """Make the folder of a build, private, and note in it who runs the build."""
    folder.mkdir(mode=0o700, parents=True)
    claim = Claim(
        owner=this_process(),
        partial_engine=order.partial_engine,
        partial_manifest=order.partial_manifest,
    )
    (folder / _OWNER).write_text(claim.model_dump_json(), "utf-8")


def sweep(builds: Path) -> None:
    """Remove the half-written files of builds whose supervisor is gone, and the oldest folders.

    What cannot be read or removed is logged and left.
    """
    ended: list[Path] = []
    for folder in builds.iterdir() if builds.is_dir() else ():
        try:
            claim = Claim.model_validate_json((folder / _OWNER).read_bytes())
        except (OSError, ValidationError, json.JSONDecodeError) as error:
            _log.warning("the folder %s names no owner: %s", folder, error)
            continue
        if _lives(claim.owner):
            continue
        for name in (claim.partial_engine, claim.partial_manifest):
            with suppress(FileNotFoundError, NotADirectoryError):
                Path(name).unlink()
        ended.append(folder)
    ended.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in ended[KEPT_FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)


def _lives(owner: Owner) -> bool:
    if owner.boot_id != _boot_id():
        return False
    try:
        process = psutil.Process(owner.pid)
        same = abs(process.create_time() - owner.started) < 1.0
        # A zombie runs nothing any more; its parent just has not looked yet.
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
