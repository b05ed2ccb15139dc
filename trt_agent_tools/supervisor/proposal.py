"""Proposes optimization profiles from the names and places of dynamic dimensions.

Nobody but the user knows which shapes a model will run with. A proposal is valid and usual, so that it can
be corrected instead of written.
"""

import re
from collections.abc import Mapping, Sequence

from trt_agent_tools.model.findings import TensorInfo
from trt_agent_tools.model.inspection import ProfileProposal
from trt_agent_tools.model.options import Profile

Range = tuple[int, int, int]
"""The least, the usual and the most that a dimension is."""

MAX_RANK = 8
"""TensorRT's own limit."""

BATCH: Range = (1, 4, 16)
LENGTH: Range = (1, 128, 512)
TOTAL: Range = (2, 256, 1024)
"""Of a length that is the sum of two: what is cached and what is new."""
PIXELS: Range = (128, 224, 640)
"""Multiples of 32, by which usual networks halve an image."""
CHANNELS: Range = (1, 3, 4)
OTHER: Range = (1, 16, 64)

_IMAGE_RANK = 4

# Whole words of a dimension's name, or the whole name where it is a letter. The first that fits counts.
_BY_NAME: tuple[tuple[re.Pattern[str], Range], ...] = (
    (re.compile(r"total|\+"), TOTAL),
    (re.compile(r"batch|^(n|b|bs)$"), BATCH),
    (re.compile(r"seq|len|token|time|frame|sample|step|past|context|^(t|l|s)$"), LENGTH),
    (re.compile(r"height|width|spatial|pixel|image|row|col|^(h|w)$"), PIXELS),
    (re.compile(r"chan|^c$"), CHANNELS),
)


def dynamic_inputs(inputs: Sequence[TensorInfo]) -> list[str]:
    """Return the names of the inputs whose shapes a profile has to bound."""
    return [tensor.name for tensor in inputs if tensor.is_dynamic]


def missing_profiles(inputs: Sequence[TensorInfo], profiles: Sequence[Profile]) -> list[str]:
    """Return the dynamic inputs that are not in every one of `profiles`."""
    # Without any profile there is one to be made: the empty one stands for it.
    covered: Sequence[Profile] = profiles or [{}]
    return [
        name for name in dynamic_inputs(inputs) if any(name not in profile for profile in covered)
    ]


def propose(inputs: Sequence[TensorInfo], given: Profile) -> dict[str, ProfileProposal]:
    """Return shapes for each dynamic input, those of `given` as they are.

    Dimensions of one name get one range, as TensorRT holds them equal. An input without a known rank, or
    with more dimensions than TensorRT has, is left out.
    """
    ranges = _known(inputs, given)
    proposed: dict[str, ProfileProposal] = {}
    for tensor in inputs:
        if not tensor.is_dynamic:
            continue
        if tensor.name in given:
            bounds = given[tensor.name]
            proposed[tensor.name] = ProfileProposal(min=bounds.min, opt=bounds.opt, max=bounds.max)
        elif tensor.shape is not None and len(tensor.shape) <= MAX_RANK:
            sizes = [_range(size, axis, tensor, ranges) for axis, size in enumerate(tensor.shape)]
            low, usual, high = (list(bound) for bound in zip(*sizes, strict=True))
            proposed[tensor.name] = ProfileProposal(min=low, opt=usual, max=high)
    return proposed


def _known(inputs: Sequence[TensorInfo], given: Profile) -> dict[str, Range]:
    """Return the ranges that `given` has for named dimensions."""
    known: dict[str, Range] = {}
    for tensor in inputs:
        bounds = given.get(tensor.name)
        if bounds is None or tensor.shape is None or len(tensor.shape) != len(bounds.min):
            continue
        for axis, size in enumerate(tensor.shape):
            if isinstance(size, str) and size != "?":
                known.setdefault(size, (bounds.min[axis], bounds.opt[axis], bounds.max[axis]))
    return known


def _range(size: int | str, axis: int, tensor: TensorInfo, ranges: dict[str, Range]) -> Range:
    if isinstance(size, int):
        return size, size, size
    found = _named(size, ranges) or _placed(axis, len(tensor.shape or ()), tensor.dtype)
    if size != "?":
        ranges[size] = found
    return found


def _named(name: str, ranges: Mapping[str, Range]) -> Range | None:
    if name in ranges:
        return ranges[name]
    lower = name.lower()
    return next((usual for pattern, usual in _BY_NAME if pattern.search(lower)), None)


def _placed(axis: int, rank: int, dtype: str) -> Range:
    if axis == 0:
        return BATCH
    if rank == _IMAGE_RANK and "float" in dtype:
        return CHANNELS if axis == 1 else PIXELS
    return LENGTH if axis == 1 else OTHER
