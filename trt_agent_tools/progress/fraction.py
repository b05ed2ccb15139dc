"""How far a build is by TensorRT's steps. This counts steps, not time."""

from trt_agent_tools.model.events import Origin
from trt_agent_tools.model.snapshot import Basis, Progress
from trt_agent_tools.model.states import State
from trt_agent_tools.progress.phases import PhaseNode, PhaseTree
from trt_agent_tools.progress.view import BuildView

MOST_BEFORE_SUCCESS = 0.99
"""After its last step TensorRT still has the engine to write: only success is the whole."""


def reached(tree: PhaseTree, node: PhaseNode) -> float:
    """Return the share of TensorRT's steps that are done, seen from a running phase of its own.

    Each phase counts as a part of one step of its parent. 0 where `node` is not inside the root.
    """
    share = node.steps_done / node.steps_total
    running = tree.running
    while node.parent is not None:
        above = running[node.parent]
        if above.origin is not Origin.TENSORRT:
            break
        share = min((above.steps_done + share) / above.steps_total, 1.0)
        node = above
    inside = tree.root is not None and node.instance == tree.root.instance
    return share if inside else 0.0


def progress(view: BuildView) -> Progress:
    """Return what is known of how far the build is.

    A second root after the first had finished shows that the first one's steps were not the whole:
    from then on there is no fraction, until success.
    """
    roots = view.phases.roots
    if roots and view.state is State.SUCCEEDED:
        return Progress(basis=Basis.STEPS, fraction=1.0, eta_s=None)
    if roots == 1:
        fraction = round(min(view.fraction, MOST_BEFORE_SUCCESS), 3)
        return Progress(basis=Basis.STEPS, fraction=fraction, eta_s=None)
    return Progress(basis=Basis.NONE, fraction=None, eta_s=None)
