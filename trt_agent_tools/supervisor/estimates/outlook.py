"""What is known of how long a build takes, and what it tells of later ones once it has succeeded."""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.progress.past import Estimate, Past, Wanted
from trt_agent_tools.progress.timeline import timeline
from trt_agent_tools.progress.view import BuildView
from trt_agent_tools.store.history import Learned, SidecarStamp

SPANS = 40
"""So many phases of a build are kept, the longest."""

_UNORDERED = (
    *("flags", "clear_flags", "network_flags", "parser_flags"),
    *("preview_features", "tactic_sources", "compute_capabilities"),
)
"""Options whose order says nothing."""

_NOT_BUILT_WITH = {"overwrite", "reuse"}
"""Options that the builder is not told of."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of how long a build takes: what for, and what past builds say.

    `stamp` is the model's file as it was when the build was accepted.
    """

    wanted: Wanted
    estimate: Estimate | None = None
    stamp: str | None = None


def options_digest(options: BuildOptions, *, cache_is_filled: bool = False) -> str:
    """Return a digest over the options by which the time of builds can be compared.

    All of them count that the builder is told of, however they are ordered. Of a plugin its file's name
    counts and of a timing cache whether something is in it: with a filled one a build takes a fraction
    of the time, wherever it lies.
    """
    told = options.model_dump(mode="json", exclude=_NOT_BUILT_WITH, exclude_defaults=True)
    if options.timing_cache is not None:
        told["timing_cache"] = "filled" if cache_is_filled else "empty"
    if options.plugins:
        told["plugins"] = [Path(plugin).name for plugin in options.plugins]
    for name in _UNORDERED:
        if name in told:
            told[name] = sorted(set(told[name]))
    canonical = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def learned(
    outlook: Outlook, view: BuildView, sidecars: tuple[SidecarStamp, ...] | None
) -> Learned | None:
    """Return what a build that has succeeded tells of later ones; None where it tells nothing.

    A build that was asked to end tells nothing: it may have hurried.
    """
    wanted, inputs, life = outlook.wanted, view.told.inputs, view.life
    if inputs is None or wanted.options is None or life.cancel_asked:
        return None
    if life.started_at is None or life.ended_at is None:
        return None
    total = life.ended_at - life.started_at
    if not (math.isfinite(total) and total > 0):
        return None
    past = Past(
        setting=wanted.setting,
        model=inputs.sha256,
        options=wanted.options,
        shape=view.told.shape,
        total_s=total,
        spans=timeline(view, SPANS),
    )
    if outlook.stamp is None or sidecars is None:
        return Learned(past)
    return Learned(past, outlook.stamp, sidecars)
