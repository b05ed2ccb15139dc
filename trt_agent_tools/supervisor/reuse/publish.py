"""Puts a kept engine at a build's output, with a manifest of that build, as its worker would have."""

import errno
import os
from datetime import datetime, timezone
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode, ErrorInfo
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.supervisor.file_digest import Interrupt, Stamp
from trt_agent_tools.supervisor.reuse.cache import Entry
from trt_agent_tools.supervisor.reuse.durable import WRITING, copy, link, write_durably

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class PublishError(Exception):
    """The engine cannot be at the output; a build would end in the same way."""

    def __init__(self, info: ErrorInfo) -> None:
        super().__init__(info.message)
        self.info = info


class EntryLostError(Exception):
    """The kept engine is not there any more, or not the one that was verified."""


def manifest_of_reuse(
    entry: Entry, order: BuildOrder, model: FileDigest, sidecars: list[FileDigest]
) -> Manifest:
    """Return the manifest of a build that reuses an engine; how it was made is told as it was."""
    made = entry.manifest
    return made.model_copy(
        update={
            "build_id": order.build_id,
            "reused_from": made.build_id,
            "label": order.label,
            "policy": order.policy,
            "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "model": model,
            "sidecars": sidecars,
            "engine": made.engine.model_copy(update={"path": order.output}),
        }
    )


def publish(
    entry: Entry, verified: Stamp, order: BuildOrder, manifest: Manifest, interrupt: Interrupt
) -> None:
    """Put the entry's engine at the order's output and `manifest` beside it, both durably.

    Whatever dies meanwhile, `settle_artefact` brings the files to one of two states, as after a worker.
    From the moment at which the engine is moved `interrupt` has no effect.

    Raises:
        PublishError: the output is taken, gone, full or not writable; nothing is left there.
        EntryLostError: the engine was removed or written to since it was verified.
        InterruptedWorkError: it is not wanted any more; nothing is left at the output.
    """
    folder = Path(order.output).parent
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if order.folder_identity not in {None, (status.st_dev, status.st_ino)}:
                raise _moved(folder)
            _put_both(descriptor, entry, verified, order, manifest, interrupt)
        finally:
            os.close(descriptor)
    except FileExistsError as error:
        raise PublishError(
            ErrorInfo(
                ErrorCode.OUTPUT_EXISTS,
                f"{Path(order.output).name} appeared while the build was queued",
                'Give another output, or options {"overwrite": true}.',
            )
        ) from error
    except OSError as error:
        full = error.errno in _FULL
        raise PublishError(
            ErrorInfo(
                ErrorCode.DISK_FULL if full else ErrorCode.OUTPUT_NOT_WRITABLE,
                f"the engine could not be put into {folder}: {error.strerror}",
                "Free some space or choose another output folder; nothing was left behind."
                if full
                else "Choose a folder that this server may write to.",
            )
        ) from error


def _put_both(
    at: int,
    entry: Entry,
    verified: Stamp,
    order: BuildOrder,
    manifest: Manifest,
    interrupt: Interrupt,
) -> None:
    paths = (order.output, order.partial_engine, order.manifest, order.partial_manifest)
    output, partial_engine, beside, partial_manifest = (Path(path).name for path in paths)
    moved: list[str] = []
    try:
        # Before the engine: an engine of this build is never there without a manifest that tells of it.
        text = manifest.model_dump_json(indent=2) + "\n"
        write_durably(os.open(partial_manifest, WRITING, 0o644, dir_fd=at), text.encode())
        # A link of an earlier reuse is this engine's own file: it stays.
        in_place = order.options.overwrite and _is(at, output, verified)
        if not in_place:
            _bring(at, partial_engine, entry, verified, interrupt)
        interrupt.check()
        if not in_place:
            _move(at, partial_engine, output, overwrite=order.options.overwrite)
            moved.append(output)
        os.replace(partial_manifest, beside, src_dir_fd=at, dst_dir_fd=at)
        moved.append(beside)
        os.fsync(at)
        if not os.path.samestat(os.fstat(at), Path(order.output).parent.stat()):
            raise _moved(Path(order.output).parent)
        moved.clear()
    finally:
        # An engine without its manifest, or one that a loss of power may take, is no result.
        for name in (partial_engine, partial_manifest, *moved):
            _unlink(at, name)


def _move(at: int, partial: str, output: str, *, overwrite: bool) -> None:
    if overwrite:
        os.replace(partial, output, src_dir_fd=at, dst_dir_fd=at)
    else:
        # A link fails where a name is taken; a rename would replace it.
        os.link(partial, output, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)


def _bring(at: int, partial: str, entry: Entry, verified: Stamp, interrupt: Interrupt) -> None:
    """Let the engine have the name `partial` in the folder `at`: the same file, or a copy of it."""
    try:
        linked = link(lambda: os.link(entry.engine, partial, dst_dir_fd=at, follow_symlinks=False))
    except FileNotFoundError as error:
        raise EntryLostError(str(error)) from error
    if linked:
        if not _is(at, partial, verified):
            raise EntryLostError("written to since it was verified")
        return
    target = os.open(partial, WRITING, 0o644, dir_fd=at)
    try:
        copied = copy(entry.engine, target, interrupt)
    except FileNotFoundError as error:
        raise EntryLostError(str(error)) from error
    if copied != entry.manifest.engine.sha256:
        raise EntryLostError("written to since it was verified")


def _is(at: int, name: str, verified: Stamp) -> bool:
    try:
        status = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return Stamp.of(status).is_only_linked(verified)


def _unlink(at: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return


def _moved(folder: Path) -> PublishError:
    return PublishError(
        ErrorInfo(
            ErrorCode.OUTPUT_NOT_WRITABLE,
            f"another folder was put at {folder} after the build was asked for",
            "Keep the output's folder in place until the build has ended; nothing was written.",
        )
    )
