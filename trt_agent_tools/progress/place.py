"""Where a build is, as text."""

from collections.abc import Sequence

from trt_agent_tools.model.events import Origin
from trt_agent_tools.progress.phases import PhaseNode, PhaseTree

SEPARATOR = " > "
LEFT_OUT = "…"

_MAX_PATH = 400
_MAX_BRIEF_PATH = 60
_MAX_SHORT_NAME = 48


def shorten(text: str, limit: int) -> str:
    """Return `text`, cut to `limit` characters with a mark where it was longer."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + LEFT_OUT


def current(tree: PhaseTree, *, whole: bool = True) -> str | None:
    """Return the path of the newest running phase; a very long one without its middle.

    What is long is shorter unless the `whole` is wanted: a reader who polls pays for every byte.
    """
    names = [node.name for node in tree.path()]
    if not names:
        return None
    path = SEPARATOR.join(names)
    if len(path) <= (_MAX_PATH if whole else _MAX_BRIEF_PATH):
        return path
    return SEPARATOR.join([names[0], LEFT_OUT, names[-1]] if len(names) > 1 else names)


def brief(path: Sequence[PhaseNode]) -> str:
    """Return a path in a few words: the first and the last phase of TensorRT's own, if it has any.

    The last one comes with its steps, where there is more than one.
    """
    own = [node for node in path if node.origin is Origin.TENSORRT] or path
    leaf = own[-1]
    names = [own[0].name] if len(own) == 1 else [own[0].name, leaf.name]
    shown = [shorten(name, _MAX_SHORT_NAME) for name in names]
    if len(own) > 2:  # noqa: PLR2004  (there is a middle)
        shown.insert(1, LEFT_OUT)
    text = SEPARATOR.join(shown)
    return f"{text} {leaf.steps_done}/{leaf.steps_total}" if leaf.steps_total > 1 else text
