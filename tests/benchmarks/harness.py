"""What the benchmarks share: a server and its client, recorded events, percentiles, a table.

Each benchmark runs as `python -m tests.benchmarks.NAME` in a checkout. It prints figures beside their
targets and judges nothing: its exit status is 0 whatever they are.
"""

import math
import os
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import psutil
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.acceptance.agent import Agent
from tests.hosts import stop_host
from trt_agent_tools.cli.demo_models import transformer
from trt_agent_tools.model.event_lines import WORKER_EVENT
from trt_agent_tools.model.events import (
    Hello,
    Origin,
    PhaseFinished,
    PhaseStarted,
    WorkerEvent,
    encode_event,
)

POLL_BOUND_S = 120.0


@dataclass(frozen=True)
class Place:
    """A root and a state folder of a benchmark's own."""

    root: Path
    state: Path

    def model(self, blocks: int) -> str:
        """Make a transformer and return its name in the root."""
        name = f"transformer{blocks}.onnx"
        if not (self.root / name).exists():
            transformer(self.root / name, blocks=blocks)
        return name

    def recording(self, name: str, settings: str, events: Sequence[WorkerEvent]) -> str:
        """Write an event file for the replay backend and return its name in the root."""
        lines = [settings.encode() + b"\n", *map(encode_event, events)]
        (self.root / name).write_bytes(b"".join(lines))
        return name

    def events(self, build_id: str) -> "Events":
        """Return what the worker of a build has said so far."""
        recorded = (self.state / "builds" / build_id / "events.jsonl").read_bytes()
        whole_lines = recorded[: recorded.rfind(b"\n") + 1].splitlines()
        return Events([WORKER_EVENT.validate_json(line) for line in whole_lines])


class Events:
    """A worker's events. Times are those of `time.monotonic` in any process of this host."""

    def __init__(self, events: list[WorkerEvent]) -> None:
        self.all = events
        hello = events[0]
        assert isinstance(hello, Hello)
        assert hello.monotonic is not None
        self.pid = hello.pid
        self.origin = hello.monotonic

    def started(self, name: str) -> float:
        """Return when the first phase of this name began."""
        return self.origin + self._start(lambda event: event.name == name).at

    def finished(self, name: str) -> float:
        """Return when the first phase of this name ended."""
        instance = self._start(lambda event: event.name == name).instance
        return self.origin + next(
            event.at
            for event in self.all
            if isinstance(event, PhaseFinished) and event.instance == instance
        )

    def first_tensorrt_phase(self) -> float:
        """Return when TensorRT's first phase began."""
        return self.origin + self._start(lambda event: event.origin is Origin.TENSORRT).at

    def end(self) -> float:
        """Return when the last event was emitted."""
        return self.origin + self.all[-1].at

    def _start(self, matches: Callable[[PhaseStarted], bool]) -> PhaseStarted:
        return next(e for e in self.all if isinstance(e, PhaseStarted) and matches(e))


@contextmanager
def workplace() -> Iterator[Place]:
    """Give a folder to work in that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="trt-agent-tools-benchmark-") as folder:
        place = Place(Path(folder).resolve() / "root", Path(folder).resolve() / "state")
        place.root.mkdir()
        yield place


@asynccontextmanager
async def serve(
    place: Place, *, embedded: bool = True
) -> AsyncIterator[tuple[Agent, psutil.Process]]:
    """Start the server on stdio and give its client and its process.

    Without `embedded` it is a front end of a supervisor in a process of its own, ended here too.
    """
    where = "--embedded" if embedded else "--no-embedded"
    # One model is built again and again, and each build is measured: none is to be reused.
    options = ("--enable-replay", "--engine-cache-size", "0")
    command = ("-m", "trt_agent_tools", "serve", where, *options)
    folders = ("--root", str(place.root), "--state-dir", str(place.state))
    try:
        async with stdio_server(*command, *folders) as (client, process):
            yield Agent(client), process
    finally:
        if not embedded:
            stop_host(place.state)


@asynccontextmanager
async def stdio_server(*arguments: str) -> AsyncIterator[tuple[Client, psutil.Process]]:
    """Run this Python with `arguments` as an MCP server and give its client and its process."""
    parameters = StdioServerParameters(
        command=sys.executable, args=[*arguments], env=dict(os.environ)
    )
    before = set(psutil.Process().children())
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(stdio_client(parameters)))
        (process,) = set(psutil.Process().children()) - before
        yield client, process


@dataclass(frozen=True)
class Row:
    """A measured figure, and the target beside it; without one the figure is for information."""

    what: str
    measured: float
    unit: str
    most: float | None = None
    digits: int = 2
    remark: str = ""


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print the rows, aligned, under a line that tells on what they were measured."""
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    print(title)
    print(
        f"Python {platform.python_version()}, tensorrt-rtx {_installed('tensorrt-rtx')}, "
        f"mcp {_installed('mcp')}, {os.cpu_count()} cores, load {load}"
    )
    cells = [("", "measured", "target", "")]
    for row in rows:
        target = "" if row.most is None else f"<= {row.most:g} {row.unit}".rstrip()
        verdict = "" if row.most is None else "met" if row.measured <= row.most else "MISSED"
        remark = ", ".join(part for part in (verdict, row.remark) if part)
        figure = f"{row.measured:,.{row.digits}f} {row.unit}".rstrip()
        cells.append((row.what, figure, target, remark))
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    for what, figure, target, remark in cells:
        line = f"  {what:{widths[0]}}  {figure:>{widths[1]}}  {target:>{widths[2]}}  {remark}"
        print(line.rstrip())
    print(flush=True)


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> str:
    """Return the number of values, the least and the greatest, as a remark."""
    return f"n={len(values)}, {min(values):.2f} to {max(values):.2f}"


def middle(what: str, values: Sequence[float], unit: str, most: float | None = None) -> Row:
    """Return a row with the median of the values and their spread."""
    return Row(what, median(values), unit, most, remark=spread(values))
