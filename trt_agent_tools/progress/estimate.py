"""`estimate`: how long a build takes, learned from builds that have succeeded."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median

from trt_agent_tools.model.duration import MAX_S
from trt_agent_tools.progress.past import Estimate, Past, Span, Wanted
from trt_agent_tools.progress.scaling import SHORTEST_S, half_width, scale, start_s

NEWEST = 5
"""How many past builds of the same model and options count: hosts and libraries change."""

MOST_SPANS = 64
"""The most spans that are taken from a past build."""

_USUAL_SPREAD = 0.15
"""How far two builds of one model lie apart on a quiet host, as a standard deviation in logarithms."""
_USUAL_WEIGHT = 2.0
"""How many observed differences the usual spread counts for."""
_START_FACTOR = 1.4
"""Within which factor of the usual one the start of a process stays."""
_MOST_DEVIATION = 0.5
"""A build that deviates by more met a busy host, which says little about the next one."""


def estimate(wanted: Wanted, same: Sequence[Past], others: Sequence[Past]) -> Estimate | None:
    """Return how long the build `wanted` takes; None where no past build is close enough to tell.

    `same` are past builds of its setting, model and options, `others` of its setting; newest first.

    1. A build of the same model and options was seen: the median of the newest `NEWEST`, and when
       which phase ran in the one closest to it.
    2. Otherwise models of the same family, by their mix of operators: a line in logarithms over
       nodes, bytes of weights, elements of the profile and optimization level, fitted to the nearest ones
       (see `scaling`), after a start that does not grow; the phases are those of the nearest one, stretched.
    3. Nothing close enough, or bounds too wide to be of use: None.

    The bounds are meant for 9 of 10 builds. A single past build gives wide ones, since nothing yet tells
    how far builds of this model lie apart; each further one narrows them to the spread that was seen.

    A past that cannot be (a length that is no number, negative or absurd; counts that are none) is
    passed over, a span that cannot be likewise. Nothing is raised.
    """
    seen = list(islice((past for past in same if _is_length(past.total_s)), NEWEST))
    if seen:
        return _repeated(seen)
    if wanted.shape is None:
        return None
    usable = [past for past in others if _is_length(past.total_s)]
    scaled = scale(wanted.shape, wanted.options, usable)
    if scaled is None:
        return None
    nearest, start = scaled.nearest, scaled.start_s
    after = min(max(math.exp(scaled.log_s), SHORTEST_S), MAX_S - start)
    factor = math.exp(scaled.half_width)
    its_start = start_s(nearest)
    grown = after / (nearest.total_s - its_start)

    def moved(at: float) -> float:
        return start + (at - its_start) * grown if at >= its_start else at * start / its_start

    return Estimate(
        total_s=start + after,
        low_s=start / _START_FACTOR + after / factor,
        high_s=start * _START_FACTOR + after * factor,
        builds=scaled.builds,
        same=False,
        spans=tuple(_moved(nearest, moved)),
    )


def _repeated(seen: Sequence[Past]) -> Estimate:
    total = median(past.total_s for past in seen)
    middle = min(seen, key=lambda past: abs(past.total_s - total))
    deviations = [min(abs(math.log(past.total_s / total)), _MOST_DEVIATION) for past in seen]
    freedom = _USUAL_WEIGHT + len(seen) - 1
    variance = (_USUAL_WEIGHT * _USUAL_SPREAD**2 + sum(each**2 for each in deviations)) / freedom
    width = half_width(variance * (1 + 1 / len(seen)), freedom)
    factor = math.exp(width)
    stretch = total / middle.total_s
    return Estimate(
        total_s=total,
        low_s=total / factor,
        high_s=total * factor,
        builds=len(seen),
        same=True,
        spans=tuple(_moved(middle, lambda at: at * stretch)),
    )


def _moved(past: Past, moved: Callable[[float], float]) -> Iterator[Span]:
    for span in past.spans[:MOST_SPANS]:
        if 0.0 <= span.began_s < span.ended_s <= past.total_s:
            yield replace(span, began_s=moved(span.began_s), ended_s=moved(span.ended_s))


def _is_length(seconds: float) -> bool:
    return SHORTEST_S <= seconds <= MAX_S
