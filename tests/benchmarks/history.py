"""What estimating costs: lookups among 10,000 past builds, the estimate itself, and a snapshot with one.

Then what counting a model costs its build: the phase "Parsing the model", with and without.
"""

import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from statistics import median

import anyio

from tests.benchmarks.harness import Row, print_table, spread
from trt_agent_tools.cli.demo_models import transformer
from trt_agent_tools.model.events import Origin
from trt_agent_tools.model.snapshot import Detail
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import StateChanged
from trt_agent_tools.progress.estimate import estimate
from trt_agent_tools.progress.past import Estimate, Past, Setting, Shape, Span, Wanted
from trt_agent_tools.progress.phases import start
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.render import snapshot
from trt_agent_tools.progress.view import BuildFacts, BuildView
from trt_agent_tools.store import history
from trt_agent_tools.store.history import KEEP_ROWS, Learned
from trt_agent_tools.store.journal import FILE_NAME, Journal
from trt_agent_tools.store.schema import connect
from trt_agent_tools.supervisor.estimates.history import OTHERS
from trt_agent_tools.supervisor.estimates.outlook import SPANS
from trt_agent_tools.worker.counting import Counts, ModelCounts, count
from trt_agent_tools.worker.library import load_library
from trt_agent_tools.worker.opened import OpenedModel

SETTING = Setting("tensorrt_rtx", "1.7.1.116", "cpu")
MODELS = 2_000
KINDS = 25
TURNS = 50
BLOCKS = (2, 64, 300)

Call = Callable[[], Awaitable[object]]


def past(number: int) -> Past:
    """Return a build of one of `MODELS` models: all of one family, of very different sizes."""
    model = number % MODELS
    spread_of = random.Random(model)  # noqa: S311  (no secret)
    nodes = 50 + 10 * model
    operators = {f"Operator{kind}": 1 + nodes // (kind + 2) for kind in range(KINDS)}
    total = 0.02 * nodes * spread_of.uniform(0.8, 1.2)
    spans = tuple(
        Span(
            f"Building > Building engine > Building engine from subgraph > Phase {place}",
            total * place / (SPANS + 1),
            total * (place + 1) / (SPANS + 1),
        )
        for place in range(SPANS)
    )
    shape = Shape(nodes, nodes * 50_000, operators, 0, 3)
    return Past(SETTING, f"{model:064x}", "0" * 64, shape, total, spans)


async def clocked(call: Call) -> list[float]:
    """Return milliseconds of each turn."""
    took = []
    for _ in range(TURNS):
        before = time.perf_counter()
        await call()
        took.append(1000 * (time.perf_counter() - before))
    return took


def timed(call: Callable[[], object], turns: int = TURNS) -> list[float]:
    """Return milliseconds of each turn."""
    took = []
    for _ in range(turns):
        before = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - before))
    return took


def row(what: str, took: list[float], target: float | None = None) -> Row:
    """Return the table's line of it."""
    return Row(what, median(took), "ms", target, 2, spread(took))


async def lookups() -> list[Row]:
    """Fill a journal and ask it."""
    with tempfile.TemporaryDirectory(prefix="trt-agent-tools-benchmark-") as name:
        folder = Path(name)
        journal = await Journal.open(folder)
        connection = connect(folder / FILE_NAME)
        connection.execute("BEGIN")
        for number in range(KEEP_ROWS):
            learned = Learned(past(number), stamp=f"1-{number % MODELS}-3-4")
            history.add(connection, f"b_{number}", float(number), learned)
        connection.execute("COMMIT")
        connection.close()
        known = past(77)
        same = partial(journal.same, SETTING, known.model, known.options)
        others = partial(journal.others, SETTING, OTHERS)
        like = await others()
        wanted = Wanted(SETTING, known.model, known.options, known.shape)
        again = await same()
        rows = [
            row("by_stamp()", await clocked(partial(journal.by_stamp, "1-77-3-4"))),
            row("latest_version()", await clocked(partial(journal.latest_version, *ASKED))),
            row(f"same(), {len(again)} of them", await clocked(same)),
            row(f"others(), {len(like)} of them", await clocked(others)),
            row("estimate() by the same model", timed(lambda: estimate(wanted, again, ()))),
            row(f"estimate() by {len(like)} others", timed(lambda: estimate(wanted, (), like))),
            row("prune()", [(await clocked(journal.prune))[0]]),
        ]
        await journal.aclose()
    return rows


ASKED = (SETTING.backend, SETTING.device)


def snapshots() -> list[Row]:
    """Render one, without an estimate and with one."""
    facts = BuildFacts("b_1", None, "default", "tensorrt_rtx", "/m.onnx", "/m.engine", "")
    view = fold(BuildView(), StateChanged(0.1, State.STARTING))
    tree = view.phases
    for place in range(4):
        tree = start(
            *(tree, place),
            at=0.2 + place,
            name=f"Phase {place}",
            steps=5,
            parent=place - 1 if place else None,
            origin=Origin.TENSORRT,
        )
    view = BuildView(phases=tree, life=view.life)
    known = past(77)
    expected = estimate(Wanted(SETTING, known.model, known.options, None), (known,), ())

    def render(by: Estimate | None) -> object:
        return snapshot(facts, view, 9.0, Detail.SUMMARY, (), by, 0.1)

    return [
        row("snapshot without an estimate", timed(lambda: render(None), 500)),
        row("snapshot with one", timed(lambda: render(expected), 500), 1.0),
    ]


def counting() -> list[Row]:
    """Count models, alone and beside their parsing."""
    trt = load_library("tensorrt_rtx").module

    def parse(model: Path) -> None:
        logger = trt.Logger(trt.Logger.ERROR)
        network = trt.Builder(logger).create_network()
        if network is None or not trt.OnnxParser(network, logger).parse_from_file(str(model)):
            raise RuntimeError(f"{model} was not parsed")

    def both(model: Path) -> None:
        with OpenedModel(model, [model.parent]) as opened:
            counts = ModelCounts(opened.file)
            parse(model)
            counts.take(10.0)

    def counted(model: Path) -> Counts:
        with OpenedModel(model, [model.parent]) as opened:
            return count(opened.file)

    rows = []
    with tempfile.TemporaryDirectory(prefix="trt-agent-tools-benchmark-") as name:
        for blocks in BLOCKS:
            model = Path(name).resolve() / f"{blocks}.onnx"
            transformer(model, blocks=blocks)
            nodes = counted(model).nodes
            rows += [
                row(f"count(), {nodes} nodes", timed(partial(counted, model), 5)),
                row(f"parsing, {nodes} nodes", timed(partial(parse, model), 5)),
                row(f"parsing and counting, {nodes} nodes", timed(partial(both, model), 5)),
            ]
    return rows


async def main() -> None:
    """Print the tables."""
    print_table(f"Estimates: {KEEP_ROWS:,} past builds of {MODELS:,} models", await lookups())
    print_table("Estimates: a snapshot", snapshots())
    print_table("Estimates: counting a model beside its parsing", counting())


if __name__ == "__main__":
    anyio.run(main)
