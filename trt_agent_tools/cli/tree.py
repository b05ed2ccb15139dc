"""A phase tree as lines of text, for the end of a build."""

from collections.abc import Iterator, Sequence

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.snapshot import Phase, PhaseStatus
from trt_agent_tools.model.untrusted import one_line

_WIDTH = 60


def tree_lines(
    phases: Sequence[Phase], *, shortest_s: float = 0.0, depth: int = 0
) -> Iterator[str]:
    """Yield a line for each phase: name, steps, time, and whether the build's end stopped it.

    Finished phases shorter than `shortest_s` are counted in one line for each parent.
    """
    brief = 0
    for phase in phases:
        if phase.status is PhaseStatus.FINISHED and phase.elapsed_s < shortest_s:
            brief += 1
            continue
        name = "  " * depth + one_line(phase.name)
        steps = f"{phase.steps_done}/{phase.steps_total}"
        end = "  stopped" if phase.status is PhaseStatus.STOPPED else ""
        took = format_duration(phase.elapsed_s)
        yield f"{name:<{_WIDTH}} {steps:>9} {took:>7}{end}"
        yield from tree_lines(phase.children, shortest_s=shortest_s, depth=depth + 1)
    if brief:
        yield "  " * depth + f"and {brief} under {format_duration(shortest_s)}"
