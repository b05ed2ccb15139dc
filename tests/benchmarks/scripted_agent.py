"""What a job costs an agent that has read the tools' texts alone: each call, with the bytes of it.

Run as `python -m tests.benchmarks.scripted_agent`. The job is five public models, one with an operator that
TensorRT lacks, and one whose limit is too short, in one budget; the models are downloaded the first time. It is
done twice: by an agent that looks at each model first, and by one that looks when a build has failed.
"""

import shutil
from collections.abc import Callable, Iterable

import anyio

from tests.acceptance.public_models import FIVE, fetch, unsupported
from tests.acceptance.scripted_agent import Call, Outcome, ScriptedAgent, Wish
from tests.benchmarks.harness import Place, Row, print_table, serve, workplace
from tests.benchmarks.sizes import BYTES_A_TOKEN
from tests.unit.mcp_server.test_sizes import LARGEST_READ

BUDGET = "5m"
SLOW_BLOCKS = 40
SLOW_LIMIT = "2s"
_OUTCOME = 110


def _wishes(place: Place) -> list[Wish]:
    for name, file in fetch().items():
        shutil.copy(file, place.root / name)
    shutil.copy(unsupported(), place.root / "gradient.onnx")
    slow = place.model(SLOW_BLOCKS)
    public = [Wish(model.name) for model in FIVE]
    return [*public, Wish("gradient.onnx"), Wish(slow, {"build_time": SLOW_LIMIT})]


def _print_calls(calls: list[Call]) -> None:
    about = max(len(call.about) for call in calls)
    tool = max(len(call.tool) for call in calls)
    print(f"{'':>4} {'tool':{tool}} {'about':{about}} {'sent':>5} {'read':>5}  answer")
    for call in calls:
        kind = "poll" if call.is_poll else f"{call.number}"
        shown = call.outcome if len(call.outcome) <= _OUTCOME else call.outcome[:_OUTCOME] + "…"
        shown = f"refused: {shown}" if call.refused else shown
        print(
            f"{kind:>4} {call.tool:{tool}} {call.about:{about}} {call.sent:>5} {call.received:>5}  {shown}"
        )
    print()


def _total(what: str, calls: Iterable[Call]) -> Row:
    found = list(calls)
    size = sum(call.sent + call.received for call in found)
    polls = sum(call.is_poll for call in found)
    told = f"{len(found) - polls} calls, {polls} polls, about {size // BYTES_A_TOKEN:,} tokens"
    return Row(what, size, "bytes", None, 0, told)


def _grouped(calls: list[Call], key: Callable[[Call], str]) -> list[Row]:
    names = dict.fromkeys(key(call) for call in calls)
    return [_total(f"- {name}", (c for c in calls if key(c) == name)) for name in names if name]


def _print_totals(title: str, agent: ScriptedAgent) -> None:
    read_first = agent.bytes_read_first
    told = f"about {read_first // BYTES_A_TOKEN:,} tokens"
    rows = [
        Row("the tools, once", read_first, "bytes", LARGEST_READ, 0, told),
        _total("all calls", agent.calls),
        *_grouped(agent.calls, lambda call: call.tool),
        *_grouped(agent.calls, lambda call: call.about),
    ]
    print_table(title, rows)


def _print_outcomes(outcomes: list[Outcome], agent: ScriptedAgent) -> None:
    for outcome in outcomes:
        print(f"{outcome.ending.value}: {outcome.model}")
    print(f"{agent.session['summary']}\n")


async def main() -> None:
    """Print each call, what became of each model, and the totals, of both agents."""
    for looks_first in (True, False):
        with workplace() as place:
            wishes = _wishes(place)
            async with serve(place) as (server, _):
                agent = ScriptedAgent(server.client, looks_first=looks_first)
                outcomes = await agent.run(wishes, BUDGET)
        title = "An agent that looks at each model first"
        if not looks_first:
            title = "An agent that looks at a model when its build has failed"
        print(f"{title}\n")
        _print_calls(agent.calls)
        _print_outcomes(outcomes, agent)
        _print_totals(f"{title}: what it wrote and read", agent)


if __name__ == "__main__":
    anyio.run(main)
