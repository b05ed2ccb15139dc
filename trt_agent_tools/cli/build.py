"""Starts one build and shows it until its end is proven."""

import errno
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from signal import Signals

import anyio

from trt_agent_tools.cli.display import Display, print_error
from trt_agent_tools.cli.ending_signals import BY_SIGNAL, ending_signals
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.cli.service import open_service
from trt_agent_tools.cli.wording import stop_text
from trt_agent_tools.model.errors import ErrorCode, Refusal
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.config import SupervisorConfig

LOOK_S = 0.15
"""How often the build is looked at: smooth for the eye, and nothing beside a build's own load."""

READER_GONE = frozenset({errno.EPIPE, errno.EIO})
"""What a write fails with when a pipe is closed or a terminal gone."""

LOG_LINES = 10
"""So much of a failed build's log is told, from warnings up."""


class Brake:
    """What the signals that came so far have asked for."""

    def __init__(self, service: BuildService, display: Display) -> None:
        self.first: Signals | None = None
        self._service = service
        self._display = display
        self._at_once = False

    async def pull(self, number: Signals, build_id: str) -> bool:
        """Ask at the first signal, kill at the next Ctrl-C; return False, to leave, at the one after.

        Only Ctrl-C goes on to kill: whoever sends SIGTERM may well send it twice.
        """
        if self.first is None:
            self.first = number
            self._display.say(f"{number.name}: cancelling; Ctrl-C again kills the build at once")
            await self._service.cancel(build_id, reason=number.name)
        elif number is not Signals.SIGINT:
            return True
        elif not self._at_once:
            self._at_once = True
            self._display.say("SIGINT again: killing; Ctrl-C again leaves without waiting")
            await self._service.cancel(build_id, reason=number.name, at_once=True)
        else:
            return False
        return True


async def run_build(
    request: StartRequest, config: SupervisorConfig, display: Display, *, embedded: bool
) -> ExitCode:
    """Build, show it, and return the exit status once every process of the build is gone.

    A command that is killed leaves a build that is not embedded to its supervisor and its policy.

    Raises:
        Refusal: the service cannot be opened.
    """
    build_id = ""
    with closing(display), anyio.open_signal_receiver(*ending_signals()) as signals:
        async with open_service(config, embedded=embedded) as service:
            brake = Brake(service, display)
            try:
                build_id = (await service.start(request)).build_id
                final = await follow(service, build_id, display, signals, brake.pull)
            except Refusal as refusal:
                display.close()
                print_error(refusal.info)
                return ExitCode.INTERNAL if build_id else ExitCode.USAGE
            except OSError as error:
                if error.errno not in READER_GONE:
                    raise
                with suppress(Refusal):  # there is nobody left to tell
                    await service.cancel(build_id, reason="the output's reader is gone")
                return BY_SIGNAL[brake.first] if brake.first else ExitCode.OUTPUT_CLOSED
    return tell_end(final, brake.first)


async def follow(
    service: BuildService,
    build_id: str,
    display: Display,
    signals: AsyncIterator[Signals],
    pull: Callable[[Signals, str], Awaitable[bool]],
) -> Snapshot:
    """Show a build until its end, or until `pull`, called at each signal, returns False.

    Returns:
        Its last snapshot, in full.

    Raises:
        Refusal: there is no such build, or its supervisor is gone and none can be started.
        OSError: the output's reader is gone.
    """
    stay = True
    snapshot = await look(service, build_id, Detail.TREE)
    while stay and not snapshot.ended:
        display.update(snapshot)
        number = None
        with anyio.move_on_after(LOOK_S):
            number = await anext(signals)
        if number is not None:
            stay = await pull(number, build_id)
        snapshot = await look(service, build_id, Detail.TREE)
    final = await look(service, build_id, Detail.FULL)
    display.finish(final)
    if final.state is State.FAILED:
        await _tell_log(service, build_id)
    return final


async def look(service: BuildService, build_id: str, detail: Detail) -> Snapshot:
    """Return the build's snapshot, from another supervisor if the one that was asked is gone.

    Raises:
        Refusal: there is no such build, or no other supervisor could be started.
    """
    try:
        return await service.progress(build_id, detail=detail)
    except Refusal as refusal:
        if refusal.info.code is not ErrorCode.SUPERVISOR_GONE:
            raise
    return await service.progress(build_id, detail=detail)


def tell_end(final: Snapshot, asked: Signals | None) -> ExitCode:
    """Tell on standard error why a build ended, and return its exit status; see `exit_code`."""
    if final.error:
        print_error(final.error)
    code = exit_code(final, asked)
    if code is ExitCode.STOPPED_BY_POLICY:
        print(one_line(stop_text(final)), file=sys.stderr)
    return code


async def _tell_log(service: BuildService, build_id: str) -> None:
    log = await service.log(build_id, tail=LOG_LINES, min_severity=Severity.WARNING)
    for entry in log.lines:
        print(f"log: {one_line(entry.text)}", file=sys.stderr)


def exit_code(final: Snapshot, asked: Signals | None) -> ExitCode:
    """Return the status for a build that ended as `final`, after the signal `asked` if any.

    The state decides: an engine that was complete before the signal came is a success.
    """
    if final.state is State.SUCCEEDED:
        return ExitCode.OK
    if final.state is State.FAILED:
        return ExitCode.FAILED
    if final.state is State.CANCELLED and final.reason not in {
        Reason.USER_REQUEST,
        Reason.SERVER_SHUTDOWN,
    }:
        return ExitCode.STOPPED_BY_POLICY
    if asked:
        return BY_SIGNAL[asked]
    return ExitCode.CANCELLED if final.state is State.CANCELLED else ExitCode.INTERNAL
