"""What a worker left at the output: a complete engine with its manifest, or nothing that counts."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.request import BuildOrder

_CHUNK_BYTES = 256 * 1024
"""Large ones stay in the heaps of the pool's threads for the server's life."""

_MAX_MANIFEST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Artefact:
    """An engine that is complete and verified against its manifest."""

    engine: str
    bytes: int
    sha256: str
    manifest: str


def settle_artefact(order: BuildOrder) -> Artefact | None:
    """Bring the output of a build whose worker is gone into one of two states, and say which.

    A worker can be killed between moving the engine and moving the manifest: then the manifest is
    moved now. Whatever else it left is removed. What was at the output before the build stays.

    Raises:
        OSError: the files cannot be read or removed.
    """
    output, manifest = Path(order.output), Path(order.manifest)
    partial_engine, partial_manifest = Path(order.partial_engine), Path(order.partial_manifest)
    try:
        for candidate in (partial_manifest, manifest):
            written = read_manifest(candidate, order.build_id)
            if written and is_unchanged(output, written.engine):
                if candidate == partial_manifest:
                    partial_manifest.replace(manifest)
                return Artefact(
                    str(output), written.engine.bytes, written.engine.sha256, str(manifest)
                )
        # An engine of this build without a manifest: the link is there, its other name too.
        if partial_engine.exists() and output.exists() and output.samefile(partial_engine):
            output.unlink()
    finally:
        partial_engine.unlink(missing_ok=True)
        partial_manifest.unlink(missing_ok=True)
    return None


def read_manifest(
    path: Path, build_id: str, *, at_most: int = _MAX_MANIFEST_BYTES
) -> Manifest | None:
    """Return the manifest at `path`; None if it is not there, not valid, another build's or too large.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        # Whoever writes to the folder may have put anything there: what blocks, or has no end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > at_most:
                return None
            manifest = Manifest.model_validate_json(file.read(at_most))
    except (FileNotFoundError, ValidationError):
        return None
    return manifest if manifest.build_id == build_id else None


def is_unchanged(path: Path, known: FileDigest) -> bool:
    """Whether the file at `path` has the size and the digest that are `known`.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file() or path.stat().st_size != known.bytes:
        return False
    sha256 = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            sha256.update(chunk)
    return sha256.hexdigest() == known.sha256
