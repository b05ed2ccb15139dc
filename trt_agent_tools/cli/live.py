"""The live view of a build on a terminal: nested bars, redrawn from each snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trt_agent_tools.cli.changes import new_entries
from trt_agent_tools.cli.display import Display, outcome_lines
from trt_agent_tools.cli.wording import limit_text
from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.snapshot import Phase, PhaseStatus, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.model.verdict import Level

QUIET_S = 2.0
"""From here on the time since the last callback is shown beside the running phase."""

_FINISHED_SHOWN = 4
_LINES_BESIDE_PHASES = 4
_FEWEST_ROWS = 4
_LIMITS_SHOWN = 3
_BAR_WIDTH = 20
_MARKS = {PhaseStatus.RUNNING: "▸", PhaseStatus.FINISHED: "✓", PhaseStatus.STOPPED: "■"}
_LEVEL_STYLES = {Level.WARNED: "yellow", Level.EXCEEDED: "red"}
_STATE_STYLES = {State.SUCCEEDED: "green", State.FAILED: "red", State.CANCELLED: "yellow"}


@dataclass(frozen=True, slots=True)
class _Row:
    """A phase, or (without one) how many finished phases stand behind the line."""

    depth: int
    phase: Phase | None
    hidden: int = 0

    @property
    def unfinished(self) -> bool:
        return self.phase is not None and self.phase.status is not PhaseStatus.FINISHED


class LiveView(Display):
    """Draws a build in place. The last drawing stays on the screen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._notes: list[str] = []

    def update(self, snapshot: Snapshot) -> None:
        """Draw `snapshot` over the drawing before."""
        if not self._live.is_started:
            self._live.start()
        notes = snapshot.notes or []
        for note in new_entries(self._notes, notes):
            self.say(note)
        self._notes = notes
        self._live.update(render(snapshot, self._console.height), refresh=True)

    def say(self, text: str) -> None:
        """Print `text` above the drawing."""
        self._console.print(Text(one_line(text)))

    def finish(self, final: Snapshot) -> None:
        """Draw for the last time and print the outcome below."""
        self.update(final)
        self._live.stop()
        style = _STATE_STYLES.get(final.state, "")
        for line in outcome_lines(final):
            self._console.print(Text(one_line(line), style=style), soft_wrap=True)
            style = ""

    def close(self) -> None:
        """Show the cursor again and leave the last drawing."""
        with suppress(OSError):  # the terminal may be gone: then there is nothing to give back
            self._live.stop()


def render(snapshot: Snapshot, height: int) -> RenderableType:
    """Return the drawing of `snapshot` for a terminal of `height` lines."""
    rows = list(_rows(snapshot.phases or [], 0))
    limits = list(_limits(snapshot))
    room = max(height - _LINES_BESIDE_PHASES - len(limits), _FEWEST_ROWS)
    if len(rows) > room:
        rows = [row for row in rows if row.unfinished][-room:]
    innermost = max((i for i, row in enumerate(rows) if row.unfinished), default=None)
    # The first and the last column give way on a narrow terminal: rich shrinks those that may wrap.
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(width=_BAR_WIDTH)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for index, row in enumerate(rows):
        table.add_row(*_cells(row), _quiet(snapshot) if index == innermost else Text())
    return Group(_header(snapshot), *limits, table)


def _limits(snapshot: Snapshot) -> Iterator[Text]:
    """Yield a line for each limit that is near its end or past it, those past it first."""
    near = [use for use in snapshot.limits or [] if use.level is not Level.OK]
    near.sort(key=lambda use: use.level is not Level.EXCEEDED)
    for use in near[:_LIMITS_SHOWN]:
        yield _short(one_line(f"! {use.level.value}: {limit_text(use)}"), _LEVEL_STYLES[use.level])


def _rows(phases: Sequence[Phase], depth: int) -> Iterator[_Row]:
    finished = sum(phase.status is PhaseStatus.FINISHED for phase in phases)
    hidden = max(finished - _FINISHED_SHOWN, 0)
    if hidden:
        yield _Row(depth, None, hidden)
    for phase in phases:
        if phase.status is not PhaseStatus.FINISHED:
            yield _Row(depth, phase)
            yield from _rows(phase.children, depth + 1)
        elif hidden:
            hidden -= 1
        else:
            yield _Row(depth, phase)


def _header(snapshot: Snapshot) -> Text:
    parts = [snapshot.state.value, format_duration(snapshot.elapsed_s)]
    if snapshot.reason and not snapshot.ended:
        parts[0] += f" ({snapshot.reason.value})"
    if snapshot.progress and snapshot.progress.fraction is not None and not snapshot.ended:
        parts.append(f"{snapshot.progress.fraction:.0%} by {snapshot.progress.basis.value}")
        if snapshot.progress.eta_s is not None:
            parts.append(f"{format_duration(snapshot.progress.eta_s)} to go")
    name = snapshot.label or (snapshot.model or "").rpartition("/")[2] or snapshot.build_id
    style = _STATE_STYLES.get(snapshot.state, "cyan")
    return _short(one_line(name), "bold").append("  " + "  ".join(parts), style=style)


def _cells(row: _Row) -> tuple[Text, RenderableType, str, str]:
    indent = "  " * row.depth
    if row.phase is None:
        return _short(f"{indent}✓ {row.hidden} more", "dim"), "", "", ""
    phase = row.phase
    name = f"{indent}{_MARKS[phase.status]} {one_line(phase.name)}"
    took = format_duration(phase.elapsed_s)
    if phase.status is PhaseStatus.FINISHED:
        return _short(name, "dim"), "", "", took
    bar = ProgressBar(phase.steps_total, min(phase.steps_done, phase.steps_total), _BAR_WIDTH)
    return _short(name), bar, f"{phase.steps_done}/{phase.steps_total}", took


def _quiet(snapshot: Snapshot) -> Text:
    if snapshot.ended or snapshot.quiet_s is None or snapshot.quiet_s < QUIET_S:
        return Text()
    text = f"quiet {format_duration(snapshot.quiet_s)}"
    if snapshot.activity:
        text += f", CPU {snapshot.activity.cpu_percent:.0f} %"
    return _short(text, "yellow")


def _short(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
