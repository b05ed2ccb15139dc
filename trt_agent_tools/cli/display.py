"""How a build is shown while it runs: a live view, plain lines, or lines of JSON.

Each is made from snapshots alone; none of them touches the build.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TextIO

from trt_agent_tools.cli.changes import new_entries, phase_changes
from trt_agent_tools.cli.wording import hint, verdict_text, without_tools
from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.snapshot import Phase, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.model.verdict import Action, Verdict

STILL_THERE_S = 60.0
"""Plain output says at least this often that the build goes on, for readers that give up on silence."""


class Display(ABC):
    """Shows one build. Every method may raise `OSError` if the reader is gone."""

    @abstractmethod
    def update(self, snapshot: Snapshot) -> None:
        """Show `snapshot`, taken with detail `tree` or `full`."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Show a sentence of the command's own."""

    @abstractmethod
    def finish(self, final: Snapshot) -> None:
        """Show the build's last snapshot, taken with detail `full`."""

    @abstractmethod
    def close(self) -> None:
        """Give the terminal back. May be called more than once."""


def choose_display(*, as_json: bool) -> Display:
    """Return the display that suits standard output: JSON if asked for, live on a terminal, else lines."""
    if as_json:
        return JsonLines(sys.stdout)
    from rich.console import Console  # noqa: PLC0415  (0.1 s that other ways to show do without)

    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        from trt_agent_tools.cli.live import LiveView  # noqa: PLC0415  (likewise)

        return LiveView(console)
    return PlainLines(sys.stdout)


def print_error(error: ErrorInfo) -> None:
    """Tell `error` on standard error, in one line and one for the hint."""
    print(f"error: {error.code.value}: {one_line(error.message)}", file=sys.stderr)
    if told := hint(error):
        print(f"hint: {one_line(told)}", file=sys.stderr)


def outcome_lines(final: Snapshot) -> Iterator[str]:
    """Yield how a build ended, as a few lines for a person."""
    how = final.state.value
    if final.state is not State.SUCCEEDED:
        how += f" ({final.reason.value})" if final.reason else ""
        how += f", ended by {final.ended_by.value}" if final.ended_by else ""
    yield f"{how} after {format_duration(final.elapsed_s)}"
    if final.result:
        yield f"engine    {final.result.engine}"
        yield f"bytes     {final.result.bytes}"
        yield f"sha256    {final.result.sha256}"
        yield f"manifest  {final.result.manifest}"
    for proposal in final.proposals or []:
        yield f"try       {proposal.change.text}: {proposal.why}"


class _Lines(Display):
    """What the two displays made of lines have in common."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def close(self) -> None:
        """Do nothing: a stream needs no putting back."""


class PlainLines(_Lines):
    """One line per change, without control characters: for files, pipes and CI logs."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._phases: list[Phase] = []
        self._state: State | None = None
        self._notes: list[str] = []
        self._verdicts: list[Verdict] = []
        self._brief = 0
        self._last_line_s = 0.0

    def update(self, snapshot: Snapshot) -> None:
        """Print what changed since the last look."""
        lines = list(self._changes(snapshot))
        late = snapshot.elapsed_s - self._last_line_s >= STILL_THERE_S and not snapshot.ended
        if late and not lines:
            lines = [without_tools(snapshot.summary)]
        if lines:
            self._last_line_s = snapshot.elapsed_s
        at = format_duration(snapshot.elapsed_s)
        for line in lines:
            print(f"{at:>8}  {one_line(line)}", file=self._stream, flush=True)

    def say(self, text: str) -> None:
        """Print `text` as one line."""
        print(one_line(text), file=self._stream, flush=True)

    def finish(self, final: Snapshot) -> None:
        """Print the last changes and the outcome."""
        self.update(final)
        for line in outcome_lines(final):
            self.say(line)

    def _changes(self, snapshot: Snapshot) -> Iterator[str]:
        # First: a verdict is why the state changed.
        verdicts = snapshot.verdicts or []
        for verdict in new_entries(self._verdicts, verdicts):
            kind = "warning " if verdict.action is Action.WARNED else "exceeded"
            yield f"{kind}  {verdict_text(verdict)}"
        self._verdicts = verdicts
        if snapshot.state is not self._state and not snapshot.ended:
            self._state = snapshot.state
            yield snapshot.state.value + (f" ({snapshot.reason.value})" if snapshot.reason else "")
        phases = snapshot.phases or []
        changes, brief = phase_changes(self._phases, phases)
        self._phases = phases
        self._brief += brief
        # Brief phases alone are worth no line: there can be some at every look.
        if self._brief and changes:
            yield f"finished  {self._brief} brief phase{'s' if self._brief > 1 else ''}"
            self._brief = 0
        for change in changes:
            if change.finished_in_s is None:
                yield f"started   {change.path}"
            else:
                yield f"finished  {change.path}  ({format_duration(change.finished_in_s)})"
        notes = snapshot.notes or []
        for note in new_entries(self._notes, notes):
            yield f"note      {note}"
        self._notes = notes


class JsonLines(_Lines):
    """One JSON object a line: a snapshot per change, the last one with every detail."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._seq: int | None = None

    def update(self, snapshot: Snapshot) -> None:
        """Print `snapshot` if anything changed."""
        if snapshot.seq != self._seq:
            self._seq = snapshot.seq
            self._write(snapshot)

    def say(self, text: str) -> None:
        """Print `text` on standard error: standard output is for JSON alone."""
        print(text, file=sys.stderr, flush=True)

    def finish(self, final: Snapshot) -> None:
        """Print `final`, whatever was printed before."""
        self._write(final)

    def _write(self, snapshot: Snapshot) -> None:
        print(snapshot.model_dump_json(exclude_none=True), file=self._stream, flush=True)
