"""Writes the engine and its manifest so that a reader finds both complete, or what was there before."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from trt_agent_tools.model.errors import ErrorCode
from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.worker.faults import BuildFault

CHUNK_BYTES = 16 * 1024 * 1024
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def write_artefact(
    order: BuildOrder, engine: memoryview, manifest: Callable[[FileDigest], Manifest]
) -> FileDigest:
    """Write `engine` and the manifest made of its digest to the order's paths.

    Both are written to their temporary names and fsynced before either is moved. Without `overwrite`
    a file that appeared at the output meanwhile is left as it is.

    Raises:
        BuildFault: the disk is full, the output appeared meanwhile, or a file cannot be written.
            Nothing is left of the engine or the manifest then.
    """
    partial_engine, partial_manifest = Path(order.partial_engine), Path(order.partial_manifest)
    output, beside = Path(order.output), Path(order.manifest)
    try:
        digest = _write(partial_engine, engine, str(output))
        text = manifest(digest).model_dump_json(indent=2) + "\n"
        _write(partial_manifest, memoryview(text.encode()), str(beside))
        if order.options.overwrite:
            partial_engine.replace(output)
        else:
            # A link fails where a name is taken; a rename would replace it.
            os.link(partial_engine, output)
        partial_manifest.replace(beside)
        _sync_folder(output.parent)
    except FileExistsError as error:
        raise BuildFault(
            ErrorCode.OUTPUT_EXISTS,
            f"{output.name} appeared while the engine was built",
            'Give another output, or options {"overwrite": true}.',
        ) from error
    except OSError as error:
        raise _fault(error, output) from error
    finally:
        partial_engine.unlink(missing_ok=True)
        partial_manifest.unlink(missing_ok=True)
    return digest


def _write(path: Path, data: memoryview, name: str) -> FileDigest:
    sha256 = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
