"""When which phase of a build ran, and where another build stands on that.

A phase is known by the names from the top down to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from trt_agent_tools.progress.past import Span
from trt_agent_tools.progress.phases import PhaseNode, PhaseTree
from trt_agent_tools.progress.place import SEPARATOR
from trt_agent_tools.progress.view import BuildView

LONGEST = 24
"""How many phases of a build are kept: TensorRT's short ones do not tell where it stands."""

_LOOK_BACK = 200
"""Among how many of the phases that ended last one is looked for."""
_FASTEST = 0.4
"""A phase that begins sooner than this share of its time in the past is another one of its name."""
_LEEWAY = 0.05
"""Sooner by this share of a build is no sign of that."""


@dataclass(frozen=True, slots=True)
class Position:
    """The newest moment that two builds share, in seconds since each got its device.

    `after_s` is how much of the past build lay after the end of the phase that runs now.
    """

    past_s: float = 0.0
    now_s: float = 0.0
    after_s: float = 0.0


def timeline(view: BuildView, longest: int = LONGEST) -> tuple[Span, ...]:
    """Return the longest phases that have finished, in order of beginning.

    Empty for a build that never got its device.
    """
    started = view.started_at
    if started is None:
        return ()
    ran = [
        (node, node.started_at - started, node.finished_at - started)
        for node in view.phases.finished.values()
        if node.finished_at is not None and started <= node.started_at < node.finished_at
    ]
    ran.sort(key=lambda each: each[1] - each[2])
    kept = sorted(ran[:longest], key=lambda each: each[0].order)
    return tuple(Span(_text(_up(view.phases, node)), began, ended) for node, began, ended in kept)


def position(view: BuildView, spans: Sequence[Span], total_s: float) -> Position:
    """Return where `view` stands on a build of `total_s` seconds whose phases ran at `spans`.

    Without a phase that both builds have it is where both got their device.
    """
    started = view.started_at
    if started is None or not spans:
        return Position()
    found = Position()
    running: list[PhaseNode] = []
    for node in view.phases.path():
        running.append(node)
        began = node.started_at - started
        span = _match(_text(running), began, spans, total_s)
        if span is not None:
            found = Position(span.began_s, began, max(0.0, total_s - span.ended_s))
    names = {span.path.rsplit(SEPARATOR, 1)[-1] for span in spans}
    for node in islice(reversed(view.phases.finished.values()), _LOOK_BACK):
        if node.name not in names or node.finished_at is None:
            continue
        ended = node.finished_at - started
        if ended < found.now_s:
            break  # the phase that runs now began later
        path = _text(_up(view.phases, node))
        span = _match(path, node.started_at - started, spans, total_s)
        if span is not None and span.ended_s >= found.past_s:
            return Position(span.ended_s, ended, found.after_s)
    return found


def _match(path: str, began_s: float, spans: Iterable[Span], total_s: float) -> Span | None:
    # Names repeat: among phases of one path it is the one that began at the nearest time.
    same = [span for span in spans if span.path == path]
    nearest = min(same, key=lambda span: abs(span.began_s - began_s), default=None)
    if nearest is None or began_s < _FASTEST * nearest.began_s - _LEEWAY * total_s:
        return None
    return nearest


def _up(tree: PhaseTree, node: PhaseNode | None) -> list[PhaseNode]:
    found: list[PhaseNode] = []
    while node is not None:
        found.append(node)
        above = node.parent
        node = None if above is None else tree.running.get(above) or tree.finished.get(above)
    found.reverse()
    return found


def _text(nodes: Iterable[PhaseNode]) -> str:
    return SEPARATOR.join(node.name for node in nodes)
