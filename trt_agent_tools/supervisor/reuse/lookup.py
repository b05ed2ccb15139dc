"""Finds the kept engine of a request: the model as it is on the disk now, then the engine itself."""

import logging
from dataclasses import dataclass
from pathlib import Path

from trt_agent_tools.model.manifest import FileDigest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.supervisor.file_digest import Digested, Interrupt, Stamp, digest
from trt_agent_tools.supervisor.reuse.cache import EngineCache, Entry, sidecar_name

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Found:
    """A verified engine of an earlier build, and the files that it is the engine of, as they are now."""

    entry: Entry
    verified: Stamp
    model: FileDigest
    sidecars: list[FileDigest]


@dataclass(frozen=True, slots=True)
class Looked:
    """What a lookup came to. `notes` are for a reader of the build's snapshot."""

    found: Found | None = None
    notes: tuple[str, ...] = ()


def look_up(cache: EngineCache, keys: list[str], order: BuildOrder, interrupt: Interrupt) -> Looked:
    """Return the engine that was built for one of `keys` from the order's model, if it is kept.

    An engine that is not what its manifest says is thrown out, and told of.

    Raises:
        InterruptedWorkError: it is not wanted any more.
    """
    notes: list[str] = []
    try:
        model = digest_model(order, interrupt)
        if model is None:
            return Looked()
        for key in keys:
            for entry in cache.find(key, model.sha256):
                sidecars = _same_sidecars(entry, order, interrupt)
                if sidecars is None:
                    continue
                verified = entry.check(interrupt)
                files = {Path(order.model): model, **sidecars}
                if verified is not None and _are_still(files):
                    told = [_told(path, each) for path, each in files.items()]
                    return Looked(Found(entry, verified, told[0], told[1:]), tuple(notes))
                if verified is None:
                    notes.append(
                        f"The kept engine of {entry.manifest.build_id} was altered or cut off; it was "
                        "thrown out, and the engine is built."
                    )
                    _throw_out(cache, entry)
    except OSError as error:
        # The cache or the model cannot be read. A build finds out what of it matters.
        _log.warning("no engine is reused for %s: %s", order.build_id, error)
    return Looked(None, tuple(notes))


def digest_model(order: BuildOrder, interrupt: Interrupt) -> Digested | None:
    """Return the digest of the order's model; None unless it is the file that was judged.

    Raises:
        OSError: it cannot be read.
        InterruptedWorkError: it is not wanted any more.
    """
    path = Path(order.model)
    found = digest(path, interrupt) if _is_inside(path, order) else None
    if found is None:
        return None
    identity = (found.stamp.device, found.stamp.inode)
    return found if order.model_identity in {None, identity} else None


def _same_sidecars(
    entry: Entry, order: BuildOrder, interrupt: Interrupt
) -> dict[Path, Digested] | None:
    """Return the model's sidecars if they are those of the entry, in the order of its manifest.

    The models have the same bytes, so they name the same files.
    """
    found: dict[Path, Digested] = {}
    outputs = [path for path in map(Path, (order.output, order.manifest)) if path.exists()]
    for known in entry.manifest.sidecars:
        path = Path(order.model).parent / sidecar_name(entry.manifest, known)
        try:
            if not _is_inside(path, order) or any(path.samefile(output) for output in outputs):
                return None
            digested = digest(path, interrupt)
        except FileNotFoundError:
            return None
        if digested is None or digested.sha256 != known.sha256:
            return None
        found[path] = digested
    return found


def _is_inside(path: Path, order: BuildOrder) -> bool:
    try:
        real = path.resolve(strict=True)
    except RuntimeError:
        # A loop of symbolic links.
        return False
    return any(real.is_relative_to(root) for root in order.roots)


def _are_still(files: dict[Path, Digested]) -> bool:
    return all(Stamp.of(path.stat()) == read.stamp for path, read in files.items())


def _told(path: Path, read: Digested) -> FileDigest:
    return FileDigest(path=str(path), bytes=read.stamp.bytes, sha256=read.sha256)


def _throw_out(cache: EngineCache, entry: Entry) -> None:
    try:
        cache.throw_out(entry)
    except OSError as error:
        _log.warning("the altered engine %s stays: %s", entry.folder, error)
