"""What is wrong with a policy file, said so that it can be mended: line, key, and what is valid there."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.policy.policy import (
    Escalation,
    PhaseRule,
    PolicyFile,
    RatioRule,
    Rules,
    SessionLimits,
    SizeRule,
    TimeRule,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_PROBLEMS = 20
"""The most problems of a file that are told."""

Key = tuple[str, ...]

_TABLES: Mapping[Key, type[BaseModel]] = {
    (): PolicyFile,
    ("rules",): Rules,
    ("escalation",): Escalation,
    ("session",): SessionLimits,
}
_RULES: Mapping[str, type[BaseModel]] = {
    "phase_time": PhaseRule,
    "projected_overrun": RatioRule,
    "host_memory": SizeRule,
    "gpu_memory": SizeRule,
}
_MESSAGES = {
    "missing": "is missing",
    "model_type": "must be a table",
    "dict_type": "must be a table",
}
_MAX_VALUE = 300
_POSITION = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)
_ASSIGNMENT = re.compile(
    r"""\s*((?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*"""
    r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, in which line if that is known."""

    message: str
    line: int | None = None

    def __str__(self) -> str:
        """Return it for a reader."""
        return self.message if self.line is None else f"line {self.line}: {self.message}"


def syntax_problem(message: str) -> Problem:
    """Return what the TOML parser said, with its line and column in front."""
    match = _POSITION.fullmatch(message)
    if match is None:
        return Problem(message)
    return Problem(f"column {match[3]}: {match[1]}", int(match[2]))


def problems(text: str, error: ValidationError) -> list[Problem]:
    """Return what is wrong with the policy in `text`, in the order of its lines; never empty."""
    lines = _key_lines(text)
    found = [_problem(each, lines) for each in error.errors(include_url=False)]
    found.sort(key=lambda problem: (problem.line is None, problem.line))
    return found[:MAX_PROBLEMS]


def _problem(error: ErrorDetails, lines: Mapping[Key, int]) -> Problem:
    key = tuple(str(part) for part in error["loc"] if part != "[key]")
    written = key
    while written and written not in lines:
        written = written[:-1]
    # A bare value stands for a limit: the file does not have that word.
    bare = error["type"] != "missing" and key[-1:] == ("limit",) and key not in lines
    shown = key[:-1] if bare else key
    name = ".".join(part if re.fullmatch(r"[\w-]+", part) else repr(part) for part in shown)
    return Problem(
        one_line(f"{name}: {_message(error, key)}", _MAX_VALUE + 300), lines.get(written)
    )


def _message(error: ErrorDetails, key: Key) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown(key)
    said = _MESSAGES.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    return one_line(said, _MAX_VALUE)


def _unknown(key: Key) -> str:
    table, name = key[:-1], key[-1]
    valid = _names_in(table)
    what = "rule" if table == ("rules",) else "key"
    told = f"there is no such {what}"
    elsewhere = [other for other in _TABLES if other != table and name in _names_in(other)]
    close = get_close_matches(name, valid, 1)
    if elsewhere:
        place = ".".join(elsewhere[0])
        told += f" here; it belongs in [{place}]" if place else " here; it belongs above all tables"
    elif close:
        told += f"; did you mean {close[0]}?"
    return f"{told} (valid: {', '.join(valid)})"


def _names_in(table: Key) -> list[str]:
    model = _TABLES.get(table)
    if model is None:
        model = _RULES.get(table[1], TimeRule) if table[0] == "rules" else PolicyFile
    return list(model.model_fields)


def _key_lines(text: str) -> dict[Key, int]:
    """Return in which line each key is written, by its full path."""
    found: dict[Key, int] = {}
    table: Key = ()
    in_string = False
    for number, line in enumerate(text.split("\n"), 1):
        was_in_string = in_string
        if sum(line.count(quotes) for quotes in ('"""', "'''")) % 2 == 1:
            in_string = not in_string
        if was_in_string:
            continue
        if line.lstrip().startswith("["):
            header = _path_of(line)
            if header:
                table = header
                found.setdefault(table, number)
        elif match := _ASSIGNMENT.match(line):
            found.setdefault((*table, *_path_of(f"{match[1]} = 0")), number)
    return found


def _path_of(line: str) -> Key:
    try:
        inside: object = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    path: list[str] = []
    while isinstance(inside, dict) and len(inside) == 1:
        ((name, inside),) = inside.items()
        path.append(name)
    return tuple(path)
