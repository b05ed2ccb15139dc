"""What the commands do with builds that are there already."""

import sys
from contextlib import closing
from signal import Signals

import anyio

from trt_agent_tools.cli.build import READER_GONE, follow, tell_end
from trt_agent_tools.cli.display import Display
from trt_agent_tools.cli.ending_signals import BY_SIGNAL, ending_signals
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.cli.wording import without_tools
from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.request import MAX_WAIT_S
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import BuildSummary, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.untrusted import one_line

LOOKED_THROUGH = 500
"""A beginning of an id is looked for among so many builds, the newest."""

_NAMED = 5


async def whole_id(service: BuildService, text: str) -> str:
    """Return the id that begins with `text`; `text` itself if no build's does.

    Raises:
        Refusal: several do.
    """
    listed = await service.list_builds(limit=LOOKED_THROUGH)
    found = [build.build_id for build in listed.builds if build.build_id.startswith(text)]
    if len(found) > 1 and text not in found:
        raise Refusal(
            ErrorCode.INVALID_ARGUMENT,
            f"{len(found)} builds begin with {one_line(text, 60)!r}: "
            + ", ".join(found[:_NAMED] + ["..."] * (len(found) > _NAMED)),
            "Give more of the id.",
        )
    return found[0] if len(found) == 1 else text


async def show_list(
    service: BuildService, session: str | None, state: State | None, limit: int, *, as_json: bool
) -> ExitCode:
    """Print a line for each build, or one JSON object."""
    listed = await service.list_builds(session_id=session, state=state, limit=limit)
    if as_json:
        print(listed.model_dump_json(exclude_none=True))
        return ExitCode.OK
    for build in listed.builds:
        print(_line(build))
    if listed.left_out:
        print(f"and {listed.left_out} older: --limit shows more", file=sys.stderr)
    return ExitCode.OK


def _line(build: BuildSummary) -> str:
    how = build.state.value + (f" ({build.reason.value})" if build.reason else "")
    took = format_duration(build.elapsed_s)
    name = one_line(f"{build.label}: {build.model}" if build.label else build.model)
    return f"{build.build_id}  {build.created_at}  {took:>7}  {how:<26}  {name}"


async def watch_build(service: BuildService, build_id: str, display: Display) -> ExitCode:
    """Show a build until its end or a signal; it goes on in any case."""
    left: list[Signals] = []

    async def leave(number: Signals, _: str) -> bool:
        left.append(number)
        return False

    with closing(display), anyio.open_signal_receiver(*ending_signals()) as signals:
        try:
            whole = await whole_id(service, build_id)
            final = await follow(service, whole, display, signals, leave)
        except OSError as error:
            if error.errno not in READER_GONE:
                raise
            return ExitCode.OUTPUT_CLOSED
    if not final.ended and left:
        print(f"{whole} goes on", file=sys.stderr)
        return BY_SIGNAL[left[0]]
    return tell_end(final, None)


async def cancel_build(
    service: BuildService, build_id: str, reason: str | None, *, at_once: bool, wait: bool
) -> ExitCode:
    """Ask for a build's end, and wait until it is proven if `wait` is set; print how it stands."""
    whole = await whole_id(service, build_id)
    snapshot: Snapshot | None = None
    while snapshot is None or (wait and not snapshot.ended):
        snapshot = await service.cancel(
            whole, reason=reason, wait_s=MAX_WAIT_S if wait else 0.0, at_once=at_once
        )
    print(one_line(without_tools(snapshot.summary)))
    return ExitCode.OK


async def show_log(
    service: BuildService, build_id: str, tail: int, min_severity: Severity | None
) -> ExitCode:
    """Print the end of a build's log."""
    whole = await whole_id(service, build_id)
    found = await service.log(whole, tail=tail, min_severity=min_severity)
    if found.left_out:
        before = "more" if found.left_out < 0 else str(found.left_out)
        print(f"{before} lines before these: --tail shows more", file=sys.stderr)
    for entry in found.lines:
        severity = entry.severity.value if entry.severity else ""
        print(f"{severity:<14}  {one_line(entry.text)}".rstrip())
    return ExitCode.OK
