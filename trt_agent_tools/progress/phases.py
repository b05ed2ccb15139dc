"""The phases of a build: a tree of instances, kept so that a step costs the same however many there were.

A tree is never changed; each function returns another one. Running and finished phases are kept
apart: a step copies only the map of running phases, which is as small as the hierarchy is deep.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from trt_agent_tools.model.events import Origin
from trt_agent_tools.model.untrusted import MAX_NAME, one_line

MAX_PHASES = 2000
"""The most phases that are kept; beyond it the oldest finished ones are dropped and counted."""

MAX_DEPTH = 30
"""The deepest nesting that is kept; a deeper phase is shown beside its parent, not inside it."""

MAX_STEPS = 2**31 - 1
"""The most steps of a phase: TensorRT counts them in 32 bits."""


@dataclass(frozen=True, slots=True)
class PhaseNode:
    """One phase: 0 <= `steps_done` <= `steps_total`, and 1 <= `steps_total`.

    `parent` is an instance in the same tree. `order` rises with each phase that begins.
    """

    instance: int
    parent: int | None
    depth: int
    order: int
    name: str
    origin: Origin
    steps_total: int
    started_at: float
    steps_done: int = 0
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class PhaseTree:
    """The phases of a build.

    `running` is in the order of beginning: the last one is the newest, and a leaf. The parent of a
    running phase runs. `finished` is in the order of ending, children before their parents: the
    first one is the oldest, and a leaf.

    `root` is the phase at the top of TensorRT's own; `roots` counts how many came one after another.
    """

    running: dict[int, PhaseNode] = field(default_factory=dict)
    finished: dict[int, PhaseNode] = field(default_factory=dict)
    begun: int = 0
    left_out: int = 0
    root: PhaseNode | None = None
    roots: int = 0

    @property
    def root_has_finished(self) -> bool:
        """Whether TensorRT has finished all of its phases."""
        return self.root is not None and self.root.instance not in self.running

    @property
    def builder_has_returned(self) -> bool:
        """Whether the worker's own phase around TensorRT's phases has finished.

        Never true without such a phase: then nothing tells.
        """
        root = self.root
        return root is not None and root.parent is not None and root.parent not in self.running

    def find(self, instance: int | None) -> PhaseNode | None:
        """Return the running phase of this instance."""
        return None if instance is None else self.running.get(instance)

    def path(self) -> list[PhaseNode]:
        """Return the running phases from the top down to the newest one; empty if none runs."""
        node = next(reversed(self.running.values()), None)
        found: list[PhaseNode] = []
        while node is not None:
            found.append(node)
            node = self.find(node.parent)
        found.reverse()
        return found


def start(
    tree: PhaseTree,
    instance: int,
    *,
    at: float,
    name: str,
    steps: int,
    parent: int | None,
    origin: Origin,
) -> PhaseTree:
    """Return `tree` with a phase more; an instance that is there already changes nothing.

    A parent that does not run, or is not known, makes it a phase at the top.
    """
    if instance in tree.running or instance in tree.finished:
        return tree
    finished = tree.finished
    left_out = tree.left_out
    if len(tree.running) + len(finished) >= MAX_PHASES:
        left_out += 1
        if not finished:
            return replace(tree, left_out=left_out)
        finished = dict(finished)
        del finished[next(iter(finished))]
    above = tree.find(parent)
    if above is not None and above.depth >= MAX_DEPTH:
        above = tree.find(above.parent)
    node = PhaseNode(
        instance=instance,
        parent=None if above is None else above.instance,
        depth=1 if above is None else above.depth + 1,
        order=tree.begun,
        name=one_line(name, MAX_NAME) or "(unnamed)",
        origin=origin,
        steps_total=min(max(steps, 1), MAX_STEPS),
        started_at=at,
    )
    root, roots = tree.root, tree.roots
    at_the_top = origin is Origin.TENSORRT and (above is None or above.origin is Origin.WORKER)
    # While a root runs, another phase at the top is one whose parent was not told.
    if at_the_top and (root is None or root.instance not in tree.running):
        root, roots = node, roots + 1
    return PhaseTree(
        {**tree.running, instance: node}, finished, tree.begun + 1, left_out, root, roots
    )


def step(tree: PhaseTree, node: PhaseNode, number: int) -> PhaseTree:
    """Return `tree` with step `number` (from 0) of the running phase `node` done."""
    done = min(number + 1, node.steps_total)
    if done <= node.steps_done:
        return tree
    running = dict(tree.running)
    # By position: this is the one function that runs hundreds of times a second.
    running[node.instance] = PhaseNode(
        node.instance,
        node.parent,
        node.depth,
        node.order,
        node.name,
        node.origin,
        node.steps_total,
        node.started_at,
        done,
    )
    return PhaseTree(running, tree.finished, tree.begun, tree.left_out, tree.root, tree.roots)


def finish(tree: PhaseTree, node: PhaseNode, at: float) -> PhaseTree:
    """Return `tree` with the running phase `node` finished, and with it all that runs inside it."""
    ending = {node.instance}
    running: dict[int, PhaseNode] = {}
    ended: list[PhaseNode] = []
    for other in tree.running.values():
        if other.instance in ending or other.parent in ending:
            ending.add(other.instance)
            ended.append(other)
        else:
            running[other.instance] = other
    finished = dict(tree.finished)
    for other in reversed(ended):
        finished[other.instance] = replace(other, finished_at=at)
    return replace(tree, running=running, finished=finished)


def newest(tree: PhaseTree, limit: int) -> Iterator[PhaseNode]:
    """Yield at most `limit` phases, newest first, so that children come before their parents.

    Running phases go before finished ones where not all fit, and never without their parents.
    """
    running = list(tree.running.values())[:limit]
    room = limit - len(running)
    finished = list(tree.finished.values())[-room:] if room else []
    yield from sorted(running + finished, key=lambda node: node.order, reverse=True)
