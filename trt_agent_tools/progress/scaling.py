"""How the time of a build grows with its model, learned from models of the same family.

A family is a mix of operators: two models whose operators have nearly the same shares. Within one, the
logarithm of the time is a line in the logarithms of what is counted. Its slopes have usual values, from
which only data leads away: with one known model, twice the layers take twice the time; with several sizes,
the slope between them counts. Differences are taken from the wanted model, so that the line's value
there is what is asked for.

A process starts and loads the library before it looks at its model, which takes as long whatever the size: the
line is that of the time after it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import mul
from statistics import median

from trt_agent_tools.progress.past import Past, Shape

SHORTEST_S = 0.01
"""No build is shorter: a process has to start."""

LOADING = "Importing TensorRT"
"""The worker's last phase before it looks at its model."""

CLOSE_MIX = 0.85
"""Models are of one family from this closeness of their operators on; 1 is the same mix."""

NEAREST = 12
"""How many models the line is fitted to at most."""

_SLOPES = (0.7, 0.3, 0.15, 0.35)
"""Usual slopes: by the logarithm of nodes, bytes of weights, profile elements; by optimization level."""
_SLOPE_SPREADS = (0.3, 0.15, 0.15, 0.2)
_SPREAD = 0.2
"""How far models of a family lie off their line, as a standard deviation in logarithms."""
_SPREAD_WEIGHT = 4.0
_OTHER_OPTIONS = 0.5
"""How much a build with other options counts."""
_STRAY = (2.0, 0.5)
"""From how far off the line a model counts half: widely for the usual slopes, then for the fitted ones."""
_WIDEST = math.log(6.0)
"""Bounds farther away than a factor of this help nobody."""

_MOST_START = 0.9
"""A start that took a greater share of its build leaves nothing to learn from."""

_MAX_COUNT = 10**15
_MAX_OPERATORS = 400
_MAX_LEVEL = 10
_DEFAULT_LEVEL = 3
_NEWEST = 5


@dataclass(frozen=True, slots=True)
class Scaled:
    """A time read off the line: its logarithm, how far bounds lie from it, and what it rests on.

    It is the time after a start of `start_s`, which does not grow with the model.
    """

    start_s: float
    log_s: float
    half_width: float
    builds: int
    nearest: Past


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of one model: its time, how far it lies from the wanted one, how much it counts."""

    log_s: float
    builds: int
    apart: tuple[float, ...]
    weight: float

    @property
    def usual_log_s(self) -> float:
        """What the wanted model takes, should the usual slopes hold."""
        return self.log_s - sum(s * x for s, x in zip(_SLOPES, self.apart, strict=True))


def half_width(variance: float, freedom: float) -> float:
    """Return how far from the middle 9 of 10 values stay, in logarithms.

    A variance from few values is a guess itself, which Student's distribution accounts for.
    """
    student = 1.645 + 1.6 / freedom + 1.9 / freedom**2  # within 2 % from two degrees on
    return student * math.sqrt(variance)


def scale(wanted: Shape, options: str | None, pasts: Sequence[Past]) -> Scaled | None:
    """Return the time of a model with the shape `wanted`; None if no model of `pasts` is close enough.

    `pasts` are newest first, each `total_s` a possible one; a shape that cannot be is passed over.
    """
    if not _is_possible(wanted):
        return None
    by_distance = sorted(_groups(wanted, pasts), key=lambda each: each[0])
    total = sum(wanted.operators.values())
    near: list[_Known] = []
    starts: list[float] = []
    nearest: Past | None = None
    for distance, apart, builds in by_distance:
        newest = builds[0]
        likeness = _likeness(wanted.operators, total, newest.shape)
        if not likeness >= CLOSE_MIX:  # one that is no number is none either
            continue
        weight = likeness / (1 + distance**2)
        if options is not None and newest.options != options:
            weight *= _OTHER_OPTIONS
        nearest = nearest or newest
        counted = builds[:_NEWEST]
        log_s = math.log(median(past.total_s - start_s(past) for past in counted))
        starts += filter(None, map(start_s, counted))
        near.append(_Known(log_s, len(counted), apart, weight))
        if len(near) == NEAREST:
            break
    if nearest is None:
        return None
    log_s, width = _read_off(near)
    if width > _WIDEST:
        return None
    start = median(starts) if starts else 0.0
    return Scaled(start, log_s, width, sum(each.builds for each in near), nearest)


def start_s(past: Past) -> float:
    """Return how long a build took before it looked at its model; 0 where that is not known."""
    for span in past.spans:
        if span.path == LOADING:
            return span.ended_s if 0.0 < span.ended_s < _MOST_START * past.total_s else 0.0
    return 0.0


def _groups(
    wanted: Shape, pasts: Sequence[Past]
) -> Iterator[tuple[float, tuple[float, ...], list[Past]]]:
    """Yield the builds of each model and options, and how far in size the model is from the wanted one."""
    groups: dict[tuple[str, str], list[Past]] = {}
    for past in pasts:
        groups.setdefault((past.model, past.options), []).append(past)
    for builds in groups.values():
        shape = builds[0].shape
        if shape is not None and _is_possible(shape):
            apart = _apart(shape, wanted)
            yield math.hypot(*map(mul, _SLOPES, apart)), apart, builds


def _is_possible(shape: Shape) -> bool:
    level = shape.optimization_level
    return (
        0 < len(shape.operators) <= _MAX_OPERATORS
        and 0 < shape.nodes <= _MAX_COUNT
        and 0 <= shape.weight_bytes <= _MAX_COUNT
        and 0 <= shape.profile_elements <= _MAX_COUNT
        and (level is None or 0 <= level <= _MAX_LEVEL)
    )


def _likeness(mine: Mapping[str, int], total: int, shape: Shape | None) -> float:
    """Return the cosine between the roots of two mixes; 0 if a count cannot be.

    Of the roots, so that a frequent operator does not drown the others. There may be 200 models to
    compare: without a loop of Python's own it takes half the time.
    """
    its: Mapping[str, int] = {} if shape is None else shape.operators
    if not _are_counts(mine) or not _are_counts(its):
        return 0.0
    products = map(mul, mine.values(), map(its.get, mine, repeat(0)))
    return sum(map(math.sqrt, products)) / math.sqrt(total * sum(its.values()))


def _are_counts(operators: Mapping[str, int]) -> bool:
    counts = operators.values()
    return 0 < min(counts, default=0) <= max(counts, default=0) <= _MAX_COUNT


def _apart(shape: Shape, wanted: Shape) -> tuple[float, ...]:
    ours = wanted.optimization_level
    its = shape.optimization_level
    return (
        math.log(shape.nodes / wanted.nodes),
        _log_ratio(shape.weight_bytes, wanted.weight_bytes),
        _log_ratio(shape.profile_elements, wanted.profile_elements),
        float(
            (_DEFAULT_LEVEL if its is None else its) - (_DEFAULT_LEVEL if ours is None else ours)
        ),
    )


def _log_ratio(count: int, to: int) -> float:
    # Where one of the two is not known there is nothing to compare.
    return math.log(count / to) if count and to else 0.0


def _read_off(near: Sequence[_Known]) -> tuple[float, float]:
    """Return the line's value at the wanted model and how far bounds lie from it, in logarithms.

    Each slope's departure from its usual value is held back by a ridge. Models far off the line count
    less: one absurd time does not bend it.
    """
    values = [each.usual_log_s for each in near]
    line = [median(values), *(0.0 for _ in _SLOPES)]
    weights: list[float] = []
    column: list[float] = []
    for stray in _STRAY:
        weights = [
            each.weight / (1 + ((value - _at(line, each.apart)) / stray) ** 2)
            for each, value in zip(near, values, strict=True)
        ]
        line, column = _fit(near, values, weights)
    strays = (
        weight * (value - _at(line, each.apart)) ** 2
        for each, value, weight in zip(near, values, weights, strict=True)
    )
    freedom = _SPREAD_WEIGHT + max(0.0, sum(weights) - 1)
    variance = (_SPREAD_WEIGHT * _SPREAD**2 + sum(strays)) / freedom
    return line[0], half_width(variance * (1 + column[0]), freedom)


def _at(line: Sequence[float], apart: Sequence[float]) -> float:
    return line[0] + sum(slope * x for slope, x in zip(line[1:], apart, strict=True))


def _fit(
    near: Sequence[_Known], values: Sequence[float], weights: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return the line, and the variances of its value at the wanted model with its other terms."""
    size = 1 + len(_SLOPES)
    matrix = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    for place, spread in enumerate(_SLOPE_SPREADS, start=1):
        matrix[place][place] = (_SPREAD / spread) ** 2
    for each, value, weight in zip(near, values, weights, strict=True):
        terms = (1.0, *each.apart)
        for row, term in enumerate(terms):
            right[row] += weight * term * value
            for place in range(size):
                matrix[row][place] += weight * term * terms[place]
    unit = [1.0, *(0.0 for _ in _SLOPES)]
    line, column = _solve(matrix, right, unit)
    return line, column


def _solve(matrix: list[list[float]], *rights: list[float]) -> list[list[float]]:
    """Return the solution for each right side; `matrix` is positive definite, so no pivot is needed."""
    rows = [row + [right[i] for right in rights] for i, row in enumerate(matrix)]
    size = len(rows)
    for i, pivot in enumerate(rows):
        scale_by = pivot[i]
        pivot[:] = [value / scale_by for value in pivot]
        for j, row in enumerate(rows):
            if j != i and row[i]:
                factor = row[i]
                row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return [[row[size + k] for row in rows] for k in range(len(rights))]
