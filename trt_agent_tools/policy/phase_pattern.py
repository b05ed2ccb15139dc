"""Patterns for phase paths: "Building engine > *", or a phase's own name alone.

Each name in a pattern may hold `*`, `?`, `[abc]` and `[!abc]`; a bracket itself is `[[]`.
"""

from fnmatch import fnmatchcase
from functools import lru_cache

SEPARATOR = " > "
_ANY_PATH = "**"


def check_pattern(pattern: str) -> str:
    """Return `pattern` if it can match a phase's path.

    Raises:
        ValueError: a part of it is empty, or it has an unclosed bracket or a control character.
    """
    if any(ord(character) < 32 for character in pattern):  # noqa: PLR2004  (control characters)
        raise ValueError("a phase pattern has no control characters")
    for part in pattern.split(SEPARATOR):
        if not part.strip() or ">" in part:
            raise ValueError(
                'a phase pattern is names joined by " > ", such as "Building engine > *"'
            )
        if not _closes_brackets(part):
            raise ValueError("a phase pattern closes every bracket; [[] stands for a bracket")
    return pattern


@lru_cache(maxsize=4096)
def matches(pattern: str, path: tuple[str, ...]) -> bool:
    """Whether the phase at `path` (its own name last) is meant by `pattern`.

    A pattern of one part is held against the phase's own name, wherever it is. In a longer one each
    part stands for one phase from the top, and `**` for any number of them; at the end of a pattern
    for at least one: what is inside, not the phase around it. Case matters.
    """
    parts = pattern.split(SEPARATOR)
    if len(parts) == 1:
        return bool(path) and fnmatchcase(path[-1], pattern)
    # reached[n]: the parts so far can stand for the first n names of the path.
    reached = [True] + [False] * len(path)
    for number, part in enumerate(parts, 1):
        if part == _ANY_PATH:
            reached = _from_the_first(reached, inside=number == len(parts))
        else:
            reached = [False] + [
                before and fnmatchcase(name, part)
                for before, name in zip(reached, path, strict=False)
            ]
    return reached[-1]


def _from_the_first(reached: list[bool], *, inside: bool) -> list[bool]:
    first = reached.index(True) if True in reached else len(reached)
    first += 1 if inside else 0
    return [number >= first for number in range(len(reached))]


def _closes_brackets(part: str) -> bool:
    position = part.find("[")
    while position >= 0:
        # A bracket that comes first inside brackets stands for itself.
        first = position + (2 if part[position + 1 : position + 2] == "!" else 1)
        end = part.find("]", first + 1)
        if end < 0:
            return False
        position = part.find("[", end + 1)
    return True
