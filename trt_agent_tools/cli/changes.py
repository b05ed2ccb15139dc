"""What is new between two snapshots of a build, few enough lines to print."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trt_agent_tools.model.snapshot import Phase, PhaseStatus

Told = TypeVar("Told")

BRIEF_S = 0.1
"""A phase that began and ended between two looks and took less is counted, not told."""

SEPARATOR = " > "
"""What stands between the names of a phase's path, as in a snapshot's `current`."""


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A phase began (`finished_in_s` is None), or finished after so many seconds."""

    path: str
    finished_in_s: float | None


def phase_changes(before: Sequence[Phase], now: Sequence[Phase]) -> tuple[list[PhaseChange], int]:
    """Return what changed, in the order in which it happened, and how many brief phases came and went.

    Of phases that began inside each other only the innermost is told: its path names the others.
    """
    found = list(_walk(before, now, ""))
    told = [change for change in found if change is not None]
    return told, len(found) - len(told)


def new_entries(before: Sequence[Told], now: Sequence[Told]) -> Sequence[Told]:
    """Return what was added to a list of `before`; a snapshot drops the oldest entries of its lists."""
    for dropped in range(len(before) + 1):
        kept = len(before) - dropped
        if list(before[dropped:]) == list(now[:kept]):
            return now[kept:]
    return now


def _walk(
    before: Sequence[Phase], now: Sequence[Phase], above: str
) -> Iterator[PhaseChange | None]:
    for old, phase in zip(_aligned(before, now), now, strict=True):
        path = f"{above}{SEPARATOR}{phase.name}" if above else phase.name
        ran = old is not None and old.status is PhaseStatus.RUNNING
        inside = _walk(old.children if old else (), phase.children, path)
        if phase.status is PhaseStatus.RUNNING:
            below = list(inside)
            if not ran and not any(change and change.finished_in_s is None for change in below):
                yield PhaseChange(path, None)
            yield from below
        elif phase.status is PhaseStatus.STOPPED or (old and not ran):
            continue
        elif ran:
            yield from inside
            yield PhaseChange(path, phase.elapsed_s)
        else:
            yield PhaseChange(path, phase.elapsed_s) if phase.elapsed_s >= BRIEF_S else None


def _aligned(before: Sequence[Phase], now: Sequence[Phase]) -> list[Phase | None]:
    """Return for each phase of `now` what it was before.

    Names repeat. A snapshot drops the oldest phases where there are many, and new ones come last.
    """
    for dropped in range(len(before)):
        kept = before[dropped:]
        if len(kept) <= len(now) and all(map(_can_become, kept, now)):
            return [*kept, *[None] * (len(now) - len(kept))]
    return [None] * len(now)


def _can_become(old: Phase, phase: Phase) -> bool:
    return old.name == phase.name and (
        old.status is PhaseStatus.RUNNING or old.status is phase.status
    )
