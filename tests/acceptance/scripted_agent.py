"""An agent that decides by rules, and knows of the server what a model would read of it.

That is: the list of tools, and what they answer. It imports nothing of the package that it tries. Its rules are
those that the texts give: ids go where arguments have their name, a proposal goes to the option it is for, a
wait is as long as the tool allows, a warning is answered before its limit is reached.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from tests.acceptance.scripted_tools import Answer, Reading, Toolbox, UnclearError, compact, put

OPEN = "open a session with a budget"
LOOK = "inspect a model without building"
START = "start a build"
FOLLOW = "progress of a build"
EXTEND = "extend a limit"
END = "cancel a build"
BUDGET = "session with what is spent and left"
"""What the agent wants, in its own words: it has to find out what serves it."""

PATIENCE_S = 20
_ID = "_id"
_LACKED, _PROPOSED, _UNSUPPORTED = "missing_", "proposed_", "unsupported_"


@dataclass(frozen=True)
class Wish:
    """A model that the agent's user wants built, with limits if the user said some."""

    model: str
    limits: dict[str, str] | None = None


@dataclass(frozen=True)
class Call:
    """One call, with the bytes that a model writes and reads for it. A poll only asks how a build stands."""

    number: int
    tool: str
    about: str
    sent: int
    received: int
    outcome: str
    refused: bool
    is_poll: bool


class Ending(str, Enum):
    """What became of a wish."""

    BUILT = "built"
    LEFT_OUT = "left out"
    """Not started: looking at the model said that it cannot be built."""
    NOT_BUILT = "not built"
    REFUSED = "refused"


@dataclass
class Outcome:
    """What became of a wish, why, the last answer about it, and what a look after a failed build found."""

    model: str
    ending: Ending
    why: str
    answer: Answer
    found: Answer = field(default_factory=dict)


@dataclass(frozen=True)
class _Told:
    text: str
    answer: Answer
    refused: bool


@dataclass
class ScriptedAgent:
    """Builds what it is asked for under one budget.

    `looks_first` is its habit: to inspect each model before it starts a build, or only when one fails.
    """

    client: Client
    looks_first: bool = True
    calls: list[Call] = field(default_factory=list)
    bytes_read_first: int = 0
    session: Answer = field(default_factory=dict)
    _tools: Toolbox = field(default_factory=lambda: Toolbox([]))
    _ids: dict[str, str] = field(default_factory=dict)

    async def run(self, wishes: Sequence[Wish], budget: str) -> list[Outcome]:
        """Open one session with this budget and see each wish to its end, one after the other."""
        self._tools = Toolbox((await self.client.list_tools()).tools)
        self.bytes_read_first = self._tools.bytes
        await self._call(OPEN, "", budget=budget)
        outcomes = [await self._fulfil(wish) for wish in wishes]
        self.session = (await self._call(BUDGET, "")).answer
        return outcomes

    @property
    def counts(self) -> Counter[str]:
        """How often each tool was called, polls left out."""
        return Counter(call.tool for call in self.calls if not call.is_poll)

    @property
    def polls(self) -> Counter[str]:
        """How often each model's builds were polled."""
        return Counter(call.about for call in self.calls if call.is_poll)

    def calls_about(self, model: str) -> list[str]:
        """Return the tools called about a model in their order, polls left out."""
        return [call.tool for call in self.calls if call.about == model and not call.is_poll]

    async def _fulfil(self, wish: Wish) -> Outcome:
        proposals: Answer = {}
        if self.looks_first:
            looked = await self._look(wish)
            if isinstance(looked, Outcome):
                return looked
            proposals = looked
        outcome = await self._build(wish, proposals)
        if self.looks_first or not self._advises_a_look(outcome):
            return outcome
        looked = await self._look(wish)
        if isinstance(looked, Outcome):
            why = f"{outcome.why} {looked.why}"
            return Outcome(wish.model, outcome.ending, why, outcome.answer, looked.answer)
        return await self._build(wish, looked) if looked else outcome

    async def _look(self, wish: Wish) -> Outcome | Answer:
        """Return what is proposed for the build, or, where it would fail, the outcome."""
        told = await self._call(LOOK, wish.model, onnx_file=wish.model)
        if told.refused:
            return Outcome(wish.model, Ending.REFUSED, told.text, told.answer)
        found = told.answer
        proposals = {
            name.removeprefix(_PROPOSED): value
            for name, value in found.items()
            if name.startswith(_PROPOSED) and value
        }
        for name, value in found.items():
            lacking = name.startswith(_LACKED) and name.removeprefix(_LACKED) not in proposals
            if value and (lacking or name.startswith(_UNSUPPORTED)):
                return Outcome(wish.model, Ending.LEFT_OUT, told.text, found)
        return proposals

    async def _build(self, wish: Wish, proposals: Answer) -> Outcome:
        limits = {"limits": wish.limits} if wish.limits else {}
        told = await self._call(START, wish.model, onnx_file=wish.model, **limits, **proposals)
        if told.refused:
            return Outcome(wish.model, Ending.REFUSED, told.text, told.answer)
        # An answer says when another look is worth it for as long as one is.
        while "poll_after_ms" in told.answer:
            told = await self._decide(wish, told) or told
            if "poll_after_ms" in told.answer:
                seen = told.answer["seq"]
                told = await self._call(FOLLOW, wish.model, wait=PATIENCE_S, seen=seen)
        ending = Ending.BUILT if "result" in told.answer else Ending.NOT_BUILT
        return Outcome(wish.model, ending, told.text, told.answer)

    async def _decide(self, wish: Wish, told: _Told) -> _Told | None:
        """Answer a warning: raise the limit where that can be and the budget has room, else end the build.

        A build that has used little of a limit that it shares with others goes on.
        """
        for limit in told.answer.get("limits", []):
            if limit["level"] != "warned" or limit.get("observed_only"):
                continue
            by = await self._extension(wish, told.answer, limit)
            if by:
                reason = f"The builder is at work, and the budget has room: {told.text}"
                extended = await self._call(
                    EXTEND, wish.model, limit=limit["rule"], seconds=by, reason=reason
                )
                if not extended.refused:
                    return extended
            if told.answer.get("gpu_s", 0) < limit["used_s"] / 2:
                continue
            reason = (
                f"{limit['rule']} comes near and cannot be raised; the budget is kept for others."
            )
            return await self._call(END, wish.model, reason=reason, wait=PATIENCE_S)
        return None

    async def _extension(self, wish: Wish, answer: Answer, limit: Answer) -> float:
        """Return the seconds to extend a limit by; none where it has no ceiling or nothing happens."""
        ceiling: float | None = limit.get("ceiling_s")
        busy = answer.get("activity", {}).get("busy", True)
        if ceiling is None or not busy:
            return 0
        session = (await self._call(BUDGET, wish.model)).answer
        allowed: float = limit["limit_s"]
        left: float = session.get("left_s", math.inf)
        room = left - (allowed - limit["used_s"])
        by: float = max(0, math.floor(min(ceiling - allowed, room)))
        return by

    def _advises_a_look(self, outcome: Outcome) -> bool:
        """Whether the tool that speaks of the build's error is the one that looks at models."""
        code = outcome.answer.get("error", {}).get("code", "")
        try:
            adviser = self._tools.find(code.replace("_", " "))
        except UnclearError:
            return False
        return adviser is self._tools.find(LOOK)

    async def _call(self, intent: str, about: str, **meant: object) -> _Told:
        """Call the tool that serves `intent`, with each value where the schema says it is meant to be."""
        tool = self._tools.find(intent)
        arguments: Answer = {
            name: self._ids[name] for name in tool.schema["properties"] if name in self._ids
        }
        for meaning, value in meant.items():
            place = tool.place_of(meaning.replace("_", " "))
            most = tool.most(place)
            is_too_much = most is not None and isinstance(value, int) and value > most
            put(arguments, place, most if is_too_much else value)
        tool.check(arguments)
        result = await self.client.call_tool(tool.name, arguments)
        told = self._take(result)
        self._note(tool, about, arguments, told)
        return told

    def _take(self, result: CallToolResult) -> _Told:
        (content,) = result.content
        assert isinstance(content, TextContent)
        answer: Answer = result.structured_content or {}
        self._ids |= {
            name: value
            for name, value in answer.items()
            if name.endswith(_ID) and isinstance(value, str)
        }
        return _Told(content.text, answer, bool(result.is_error))

    def _note(self, tool: Reading, about: str, arguments: Answer, told: _Told) -> None:
        received = len(told.text.encode()) + len(compact(told.answer))
        is_poll = tool is self._tools.find(FOLLOW)
        self.calls.append(
            Call(
                len(self.calls) + 1,
                tool.name,
                about,
                len(compact(arguments)),
                received,
                told.text.splitlines()[0],
                told.refused,
                is_poll,
            )
        )
