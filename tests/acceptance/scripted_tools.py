"""Tools as a model sees them: names, descriptions and input schemas, and nothing else.

A tool or an argument is found by what is said of it. Where the words do not lead to one, or lead to two, that
is an error: a model would have had to guess.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator
from mcp_types import Tool

_NAME_COUNTS = 2
"""A word in a name says more than one in a description."""
_LEAST_WORD = 3
_LEAST_STEM = 4
_ALIKE = 1e-9

Answer = dict[str, Any]
"""The structure of an answer, read without a model of it."""
Place = tuple[str, ...]
"""Names from a tool's arguments down to a property."""


class UnclearError(Exception):
    """The texts do not say which tool or argument is meant."""


class Reading:
    """What a model knows of one tool."""

    def __init__(self, tool: Tool) -> None:
        self.name = tool.name
        self.description = tool.description or ""
        self.schema: dict[str, Any] = tool.input_schema
        self._valid = Draft202012Validator(self.schema)

    @property
    def bytes(self) -> int:
        """How much of it there is to read, as compact JSON."""
        read = {"name": self.name, "description": self.description, "inputSchema": self.schema}
        return len(compact(read))

    def place_of(self, meaning: str) -> Place:
        """Return where the argument is that `meaning` describes.

        Raises:
            UnclearError: none is, or more than one.
        """
        places = dict(_properties(self.schema))
        words = {place: (place[-1], text) for place, text in places.items()}
        return _best(meaning, words, f"arguments of {self.name}")

    def most(self, place: Place) -> float | None:
        """Return the maximum of a number among the arguments, if it has one."""
        node = self.schema
        for name in place:
            node = node["properties"][name]
        return node.get("maximum")

    def check(self, arguments: Mapping[str, object]) -> None:
        """Hold the arguments against the schema, as every careful client does."""
        self._valid.validate(arguments)


class Toolbox:
    """All tools of a server."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: Reading(tool) for tool in tools}

    @property
    def bytes(self) -> int:
        """How much there is to read before the first call, as compact JSON."""
        return sum(tool.bytes for tool in self.tools.values())

    def find(self, intent: str) -> Reading:
        """Return the one tool whose name and description fit `intent` best.

        Raises:
            UnclearError: none fits, or two fit alike.
        """
        words: dict[Place, tuple[str, str]] = {
            (name,): (name, tool.description) for name, tool in self.tools.items()
        }
        (name,) = _best(intent, words, "tools")
        return self.tools[name]

    def named_in(self, text: str) -> list[Reading]:
        """Return the tools that a text names."""
        return [tool for name, tool in self.tools.items() if re.search(rf"\b{name}\b", text)]


def compact(value: object) -> bytes:
    """Return JSON without a space too many, as it goes over the wire."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def put(arguments: dict[str, Any], place: Place, value: object) -> None:
    """Put a value where its place is, making the objects on the way."""
    for name in place[:-1]:
        arguments = arguments.setdefault(name, {})
    arguments[place[-1]] = value


def _properties(schema: Mapping[str, Any], above: Place = ()) -> Iterator[tuple[Place, str]]:
    for name, node in schema.get("properties", {}).items():
        yield (*above, name), node.get("description", "")
        yield from _properties(node, (*above, name))


def _best(meaning: str, known: Mapping[Place, tuple[str, str]], among: str) -> Place:
    names = {place: _words(name.replace("_", " ")) for place, (name, _) in known.items()}
    texts = {place: _words(text) for place, (_, text) in known.items()}
    scores = dict.fromkeys(known, 0.0)
    for word in _words(meaning):
        found = {
            place: _NAME_COUNTS * _has(names[place], word) + _has(texts[place], word)
            for place in known
        }
        # A word that is said of many tells little.
        said_of = sum(map(bool, found.values()))
        for place, count in found.items():
            scores[place] += count / said_of if count else 0
    most = max(scores.values(), default=0)
    best = [place for place, score in scores.items() if most - score < _ALIKE]
    if not most:
        raise UnclearError(f"none of the {among} speaks of {meaning!r}")
    if len(best) > 1:
        raise UnclearError(f"{meaning!r} may be any of the {among} {best}")
    return best[0]


def _words(text: str) -> set[str]:
    """Return the words that mean something; the name of another tool in a text is one word."""
    return {word for word in re.findall(r"[a-z_]+", text.lower()) if len(word) >= _LEAST_WORD}


def _has(words: set[str], wanted: str) -> bool:
    return any(_same(word, wanted) for word in words)


def _same(word: str, other: str) -> bool:
    """Whether two words are one, endings aside: "profile" and "profiles"."""
    short, long = sorted((word, other), key=len)
    return short == long or (len(short) >= _LEAST_STEM and long.startswith(short))
