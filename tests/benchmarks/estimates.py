"""How well the end of a build is foretold: python -m tests.benchmarks.estimates.

Models of two families are built several times, one build after another. What a quarter of a build after
its start was shown as what is left is held against what was left.

Whatever else uses the machine makes its builds longer by chance. A builder without a GPU computes on one
core, so that the processor time of its process tells what a machine at rest would have shown: the same
estimates are made from that too.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from statistics import median

import anyio
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.acceptance.agent import Agent
from tests.benchmarks.harness import Place, Row, print_table, serve, workplace
from trt_agent_tools.cli.demo_models import transformer
from trt_agent_tools.model.events import Heartbeat
from trt_agent_tools.model.snapshot import Progress, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import BuildEvent, StateChanged
from trt_agent_tools.progress.estimate import estimate
from trt_agent_tools.progress.expected import expected
from trt_agent_tools.progress.past import Past, Setting, Shape, Wanted
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.timeline import timeline
from trt_agent_tools.progress.view import BuildView

ROUNDS = 3
AT = 0.25
POLL_S = 0.2
MOST_WRONG_SAME = 15.0
MOST_WRONG_SIMILAR = 50.0
LEAST_WITHIN = 80.0
CHANNELS = 64
REBUILD = {"reuse": "off"}
SAME = "2nd and 3rd build of a model"
SIMILAR = "unseen size of a seen family"
SETTING = Setting("tensorrt_rtx", "", "cpu")


@dataclass(frozen=True)
class Sized:
    """A model of a family, `size` blocks deep."""

    family: str
    size: int
    write: Callable[[Path], None] = field(compare=False)

    @property
    def name(self) -> str:
        """Return its file's name."""
        return f"{self.family}{self.size}.onnx"


@dataclass(frozen=True)
class Built:
    """A build that succeeded: how long it held its device, and what was shown meanwhile."""

    model: Sized
    total_s: float
    shown: list[Snapshot]
    events: list[BuildEvent] = field(repr=False)
    shape: Shape


@dataclass(frozen=True)
class Told:
    """What was foretold at a quarter of a build, and how much was left."""

    what: str
    progress: Progress
    left_s: float

    @property
    def wrong(self) -> float:
        """Return by how many percent of what was left the foretold is off."""
        assert self.progress.eta_s is not None
        return 100 * abs(self.progress.eta_s - self.left_s) / self.left_s

    @property
    def within(self) -> bool:
        """Return whether the end came within the bounds."""
        low, high = self.progress.eta_low_s, self.progress.eta_high_s
        assert low is not None
        assert high is not None
        return low <= self.left_s <= high


def convolutions(path: Path, *, blocks: int) -> None:
    """Write a chain of `blocks` residual blocks, each of two convolutions."""
    random = np.random.default_rng(blocks)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    x = "x"
    for number in range(blocks):
        y = x
        for part in "ab":
            name = f"block{number}/{part}"
            values = random.standard_normal((CHANNELS, CHANNELS, 3, 3), dtype=np.float32) * 0.05
            weights.append(numpy_helper.from_array(values.astype(np.float32), f"{name}/weight"))
            inputs = [y, f"{name}/weight"]
            nodes.append(helper.make_node("Conv", inputs, [f"{name}/conv"], pads=[1, 1, 1, 1]))
            nodes.append(helper.make_node("Relu", [f"{name}/conv"], [name]))
            y = name
        nodes.append(helper.make_node("Add", [x, y], [f"block{number}"]))
        x = f"block{number}"
    nodes.append(helper.make_node("Relu", [x], ["y"]))
    size = [1, CHANNELS, 32, 32]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name in "xy"]
    graph = helper.make_graph(nodes, "convolutions", ends[:1], ends[1:], weights)
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), path)


def models() -> list[Sized]:
    """Return the models in the order of their first builds."""
    return [
        sized
        for deep, many in ((12, 100), (36, 400), (24, 200))
        for sized in (
            Sized("transformer", deep, partial(transformer, blocks=deep)),
            Sized("convolutions", many, partial(convolutions, blocks=many)),
        )
    ]


async def build(place: Place, agent: Agent, model: Sized) -> Built:
    """Build a model and look at it as it goes."""
    path = place.root / model.name
    if not path.exists():
        model.write(path)
    shown = [await agent.snapshot("start_build", model=model.name, options=REBUILD)]
    build_id = shown[0].build_id
    while not shown[-1].ended:
        await anyio.sleep(POLL_S)
        shown.append(await agent.snapshot("get_progress", build_id=build_id))
    last = shown.pop()
    assert last.state is State.SUCCEEDED, last.error
    assert last.gpu_s is not None
    for suffix in (".engine", ".engine.json"):
        path.with_suffix(suffix).unlink()
    print(f"{model.name}: {last.gpu_s:.1f} s", file=sys.stderr)
    events: list[BuildEvent] = [StateChanged(0.0, State.STARTING, device="cpu")]
    events += place.events(build_id).all
    return Built(model, last.gpu_s, shown, events, shape(path))


def shape(path: Path) -> Shape:
    """Count what is in a model."""
    graph = onnx.load(path).graph
    return Shape(
        nodes=len(graph.node),
        weight_bytes=sum(4 * prod(weight.dims) for weight in graph.initializer),
        operators=Counter(node.op_type for node in graph.node),
    )


def kind(before: Sequence[Built], built: Built) -> str | None:
    """Return for what the estimate of a build stands; None for a family's first model."""
    if any(each.model == built.model for each in before):
        return SAME
    return SIMILAR if any(each.model.family == built.model.family for each in before) else None


def shown(built: Built) -> tuple[Progress, float] | None:
    """Return what the server said at a quarter of a build, if it foretold anything, and what was left."""
    at = min(built.shown, key=lambda each: abs((each.gpu_s or 0.0) - AT * built.total_s))
    if at.progress is None or at.progress.eta_s is None or at.gpu_s is None:
        return None
    return at.progress, built.total_s - at.gpu_s


def computed(before: Sequence[Built], built: Built) -> tuple[Progress, float] | None:
    """Return what is foretold at a quarter of a build by the times in its events, and what was left."""
    newest_first = [(each.model, past(each)) for each in reversed(before)]
    found = estimate(
        Wanted(SETTING, built.model.name, "", built.shape),
        [each for model, each in newest_first if model == built.model],
        [each for _, each in newest_first],
    )
    if found is None:
        return None
    now = AT * built.total_s
    return expected(found, viewed(built, now), now, 0.0), built.total_s - now


def on_processor_time(built: Built) -> Built:
    """Return a build as if its process had had a core for itself."""
    beats = [(0.0, 0.0)]
    beats += [
        (event.at, event.cpu_s)
        for event in built.events
        if isinstance(event, Heartbeat) and event.cpu_s is not None and event.at > beats[-1][0]
    ]
    wall, used = zip(*beats, strict=True)
    rest_s = built.events[-1].at - wall[-1]

    def moved(at: float) -> float:
        # After the last heartbeat the core is taken for its own.
        return float(np.interp(at, [*wall, wall[-1] + rest_s + 1], [*used, used[-1] + rest_s + 1]))

    events = [replace(event, at=moved(event.at)) for event in built.events]
    return replace(built, events=events, total_s=events[-1].at)


def past(built: Built) -> Past:
    """Return a build as what a later one learns from."""
    spans = timeline(viewed(built, built.total_s))
    return Past(SETTING, built.model.name, "", built.shape, built.total_s, spans)


def viewed(built: Built, until: float) -> BuildView:
    """Return what was known of a build at a moment."""
    view = BuildView()
    for event in built.events:
        if event.at <= until:
            view = fold(view, event)
    return view


def rows(how: str, all_told: Sequence[Told]) -> Iterator[Row]:
    """Return the figures by kind of build."""
    for what, most in ((SAME, MOST_WRONG_SAME), (SIMILAR, MOST_WRONG_SIMILAR)):
        wrong = [each.wrong for each in all_told if each.what == what]
        if wrong:
            remark = f"n={len(wrong)}, {min(wrong):.0f} to {max(wrong):.0f}"
            yield Row(f"{how}, {what}: off by, median", median(wrong), "%", most, 1, remark)
    if all_told:
        share = 100 * sum(each.within for each in all_told) / len(all_told)
        verdict = "met" if share >= LEAST_WITHIN else "MISSED"
        remark = f"target >= {LEAST_WITHIN:g} %: {verdict}, n={len(all_told)}"
        yield Row(f"{how}: ends within the bounds", share, "%", digits=0, remark=remark)


async def main() -> None:
    """Build, and print the table."""
    with workplace() as place:
        async with serve(place) as (agent, _):
            builds = [await build(place, agent, model) for model in ROUNDS * models()]
    at_rest = [on_processor_time(built) for built in builds]
    told: dict[str, list[Told]] = {"as shown": [], "on processor time": []}
    for number, built in enumerate(builds):
        what = kind(builds[:number], built)
        found = (shown(built), computed(at_rest[:number], at_rest[number]))
        for how, foretold in zip(told, found, strict=True):
            if what is not None and foretold is not None:
                told[how].append(Told(what, *foretold))
    table = [row for how, some in told.items() for row in rows(how, some)]
    print_table("What a quarter of a build foretells of the rest", table)


if __name__ == "__main__":
    anyio.run(main)
