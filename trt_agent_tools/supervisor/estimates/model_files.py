"""How a model's files lie on the disk: by that a model is known again before it is read."""

from collections.abc import Iterable
from pathlib import Path

from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.progress.view import Inputs
from trt_agent_tools.store.history import SidecarStamp
from trt_agent_tools.supervisor.file_digest import Stamp


def stamp_of(model: Path, identity: tuple[int, int]) -> str | None:
    """Return in a word how a model's file lies on the disk: one that was written to has another.

    None if it is gone, or another file than the one of this device and inode.
    """
    try:
        stamp = Stamp.of(model.stat())
    except OSError:
        return None
    if (stamp.device, stamp.inode) != identity:
        return None
    # Without its ctime: a link more makes no other model.
    return f"{stamp.device}-{stamp.inode}-{stamp.bytes}-{stamp.mtime_ns}"


def are_unchanged(model: Path, sidecars: Iterable[SidecarStamp]) -> bool:
    """Whether the files beside a model are still those of the stamps."""
    return all(_sidecar(model.parent, Path(each.path)) == each for each in sidecars)


def sidecars_of(order: BuildOrder, stamp: str, inputs: Inputs) -> tuple[SidecarStamp, ...] | None:
    """Return the stamps of a model's sidecars; None if its files cannot be known again by stamps.

    `stamp` is the model's as it was admitted, and `inputs` are what was digested, the model first. What
    has another stamp or size by now is another file.
    """
    model = Path(order.model)
    identity = order.model_identity
    if inputs.files_left_out or identity is None or stamp_of(model, identity) != stamp:
        return None
    stamps: list[SidecarStamp] = []
    for file in inputs.files[1:]:
        path = Path(file.path)
        if not path.is_relative_to(model.parent):
            return None
        found = _sidecar(model.parent, path.relative_to(model.parent))
        if found is None or found.bytes != file.bytes:
            return None
        stamps.append(found)
    return tuple(stamps)


def is_filled(cache: str | None) -> bool:
    """Whether there is something at a timing cache's path: a file or a folder that is not empty."""
    if cache is None:
        return False
    path = Path(cache)
    try:
        return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except OSError:
        return False


def _sidecar(folder: Path, path: Path) -> SidecarStamp | None:
    try:
        status = (folder / path).stat()
    except (OSError, ValueError):
        return None
    return SidecarStamp(str(path), status.st_size, status.st_mtime_ns)
