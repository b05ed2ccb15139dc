"""Writes the engine and its manifest so that a reader finds both complete, or what was there before."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.worker.faults import BuildFault
from trt_agent_tools.worker.judged import OutputFolder, open_output_folder
from trt_agent_tools.worker.opened import OpenedFile

CHUNK_BYTES = 16 * 1024 * 1024
MOVING = threading.Lock()
"""Held from before the engine is moved until the manifest is moved too, or neither is there. Whoever ends
this process, and removes its files, takes it first: an engine is never parted from its manifest."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def check_output(order: BuildOrder, inputs: list[OpenedFile]) -> None:
    """Refuse an order that would replace what it reads.

    Raises:
        BuildFault: INVALID_ARGUMENT, the output or its manifest is one of the `inputs`.
    """
    for path in map(Path, (order.output, order.manifest)):
        if any(file.is_at(path) for file in inputs):
            raise BuildFault(
                ErrorCode.INVALID_ARGUMENT,
                f"{path.name} holds the model or weights of it",
                "Give another output.",
            )


def write_artefact(
    order: BuildOrder, engine: memoryview, manifest: Callable[[FileDigest], Manifest]
) -> FileDigest:
    """Write `engine` and the manifest made of its digest to the order's paths.

    Both are written to their temporary names and fsynced before either is moved. Without `overwrite`
    a file that appeared at the output meanwhile is left as it is.

    Raises:
        BuildFault: the disk is full, the output appeared meanwhile, its folder is not the one that was
            judged, or a file cannot be written.
            Nothing is left of the engine or the manifest then.
    """
    output = Path(order.output)
    try:
        with open_output_folder(order) as folder:
            return _write_both(folder, order, engine, manifest)
    except FileExistsError as error:
        raise BuildFault(
            ErrorCode.OUTPUT_EXISTS,
            f"{output.name} appeared while the engine was built",
            'Give another output, or options {"overwrite": true}.',
        ) from error
    except OSError as error:
        raise _fault(error, output) from error


def _write_both(
    folder: OutputFolder,
    order: BuildOrder,
    engine: memoryview,
    manifest: Callable[[FileDigest], Manifest],
) -> FileDigest:
    paths = (order.output, order.partial_engine, order.manifest, order.partial_manifest)
    output, partial_engine, beside, partial_manifest = (Path(path).name for path in paths)
    at = folder.descriptor
    moved: list[str] = []
    with ExitStack() as moving:
        try:
            digest = _write(at, partial_engine, engine, str(order.output))
            text = manifest(digest).model_dump_json(indent=2) + "\n"
            _write(at, partial_manifest, memoryview(text.encode()), str(order.manifest))
            moving.enter_context(MOVING)
            if order.options.overwrite:
                os.replace(partial_engine, output, src_dir_fd=at, dst_dir_fd=at)
            else:
                # A link fails where a name is taken; a rename would replace it.
                os.link(partial_engine, output, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
            moved.append(output)
            os.replace(partial_manifest, beside, src_dir_fd=at, dst_dir_fd=at)
            moved.append(beside)
            _sync_folder(at)
            folder.check()
            moved.clear()
        finally:
            # An engine without its manifest, or one that a loss of power may take, is no result.
            for name in (partial_engine, partial_manifest, *moved):
                folder.unlink(name)
    return digest


def _write(folder: int, partial: str, data: memoryview, name: str) -> FileDigest:
    sha256 = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(partial, flags, 0o644, dir_fd=folder)
    try:
        for start in range(0, len(data), CHUNK_BYTES):
            chunk = data[start : start + CHUNK_BYTES]
            sha256.update(chunk)
            while chunk:
                chunk = chunk[os.write(descriptor, chunk) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return FileDigest(path=name, bytes=len(data), sha256=sha256.hexdigest())


def _sync_folder(folder: int) -> None:
    os.fsync(folder)


def _fault(error: OSError, output: Path) -> BuildFault:
    if error.errno in _FULL:
        return BuildFault(
            ErrorCode.DISK_FULL,
            f"the engine did not fit on the disk of {output.parent}: {error.strerror}",
            "Free some space or choose another output folder; nothing was left behind.",
        )
    return BuildFault(
        ErrorCode.OUTPUT_NOT_WRITABLE,
        f"the engine could not be written to {output.parent}: {error.strerror}",
        "Choose a folder that this server may write to.",
    )
