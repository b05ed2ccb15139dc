"""What an engine depends on beside its model, as one digest."""

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trt_agent_tools import __version__
from trt_agent_tools.model.manifest import FORMAT, Manifest
from trt_agent_tools.model.request import BuildOrder
from trt_agent_tools.supervisor.file_digest import Interrupt, digest

_NOT_IN_THE_ENGINE = {"overwrite", "reuse", "timing_cache"}
"""Options that say where and how fast an engine is made, not which one."""

_DISTRIBUTIONS = {
    "tensorrt": ("tensorrt", "tensorrt-cu12", "tensorrt-cu13"),
    "tensorrt_rtx": ("tensorrt-rtx",),
}
"""The packages that the library's module may have come with."""


def library_version(backend: str) -> str | None:
    """Return the version of what builds, as it is installed now; None if that is not certain."""
    if backend == "replay":
        return __version__
    found = set()
    for name in _DISTRIBUTIONS[backend]:
        try:
            found.add(version(name))
        except PackageNotFoundError:
            continue
    return found.pop() if len(found) == 1 else None


def version_told(manifest: Manifest) -> str | None:
    """Return the version of what built, as the worker told it."""
    if manifest.backend == "replay":
        return __version__
    return manifest.versions.get(manifest.backend)


def plugin_digests(order: BuildOrder, interrupt: Interrupt) -> list[str] | None:
    """Return the digests of the order's plugin libraries; None if one of them is not there to be read.

    Raises:
        InterruptedWorkError: they are not wanted any more.
    """
    found = []
    for plugin in order.options.plugins:
        try:
            digested = digest(Path(plugin), interrupt)
        except OSError:
            return None
        if digested is None:
            return None
        found.append(digested.sha256)
    return found


def build_key(
    order: BuildOrder, *, owner: str, library: str, device_kind: str, plugins: list[str]
) -> str:
    """Return the digest of all that makes two builds of one model differ, in hexadecimal.

    `owner` is part of it: nobody is given, or learns of, an engine that another principal had built.
    """
    said = {
        "manifest_format": FORMAT,
        "program": __version__,
        "owner": owner,
        "backend": order.backend,
        "library": library,
        "device": device_kind,
        "options": order.options.model_dump(mode="json", exclude={*_NOT_IN_THE_ENGINE, "plugins"}),
        "plugins": plugins,
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def asked(order: BuildOrder, owner: str) -> str:
    """Return what two live builds of one model must have in common to be one, without looking at files."""
    options = order.options.model_dump(mode="json", exclude=_NOT_IN_THE_ENGINE)
    return json.dumps([owner, order.backend, options], sort_keys=True)
