"""What a worker left at the output: a complete engine with its manifest, or nothing that counts."""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from trt_agent_tools.model.manifest import FileDigest, Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.supervisor.file_digest import Interrupt, Stamp, digest

_MAX_MANIFEST_BYTES = 256 * 1024 * 1024

_TRIES = 3
"""So often a file that is not at rest is read."""


@dataclass(frozen=True, slots=True)
class Artefact:
    """An engine that is complete and verified against its manifest.

    `told` is that manifest, and `stamp` the engine file's when it was verified.
    """

    engine: str
    bytes: int
    sha256: str
    manifest: str
    told: Manifest | None = field(default=None, compare=False)
    stamp: Stamp | None = field(default=None, compare=False)

    @property
    def reused_from(self) -> str | None:
        """The build that made the engine, if it was another one."""
        return self.told.reused_from if self.told else None


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
            stamp = _verified(output, written.engine) if written else None
            if written and stamp:
                if candidate == partial_manifest:
                    partial_manifest.replace(manifest)
                engine = written.engine
                return Artefact(
                    *(str(output), engine.bytes, engine.sha256, str(manifest)), written, stamp
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
    return _verified(path, known) is not None


def _verified(path: Path, known: FileDigest) -> Stamp | None:
    """Return the stamp of the file at `path` if it is as `known`."""
    for _ in range(_TRIES):
        if not path.is_file() or path.stat().st_size != known.bytes:
            return None
        # None too where an engine is linked into the cache just then: read again, it is at rest.
        if found := digest(path, Interrupt()):
            return found.stamp if found.sha256 == known.sha256 else None
    return None
