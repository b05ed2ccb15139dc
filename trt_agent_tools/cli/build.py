"""Runs one build in this process and shows it until its end is proven."""

import errno
import signal
import sys
from contextlib import closing
from signal import Signals

import anyio

from trt_agent_tools.cli.display import Display, print_error
from trt_agent_tools.cli.exit_codes import ExitCode
from trt_agent_tools.model.errors import Refusal
from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.request import StartRequest
from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor

LOOK_S = 0.15
"""How often the build is looked at: smooth for the eye, and nothing beside a build's own load."""

LOG_LINES = 10
"""So much of a failed build's log is told, from warnings up."""

_BY_SIGNAL = {
    Signals.SIGINT: ExitCode.CANCELLED,
    Signals.SIGTERM: ExitCode.TERMINATED,
    Signals.SIGHUP: ExitCode.HANGUP,
}


class Brake:
    """What the signals that came so far have asked for."""

    def __init__(self, service: BuildService, display: Display) -> None:
        self.first: Signals | None = None
        self.left = False
        self._service = service
        self._display = display
        self._at_once = False

    async def pull(self, number: Signals, build_id: str) -> None:
        """Ask at the first signal, kill at the next Ctrl-C, leave at the one after.

        Only Ctrl-C goes on to kill: whoever sends SIGTERM may well send it twice.
        """
        if self.first is None:
            self.first = number
            self._display.say(f"{number.name}: cancelling; Ctrl-C again kills the build at once")
            await self._service.cancel(build_id, reason=number.name)
        elif number is not Signals.SIGINT:
            return
        elif not self._at_once:
            self._at_once = True
            self._display.say("SIGINT again: killing; Ctrl-C again leaves without waiting")
            await self._service.cancel(build_id, reason=number.name, at_once=True)
        else:
            self.left = True


async def run_build(request: StartRequest, config: SupervisorConfig, display: Display) -> ExitCode:
    """Build, show it, and return the exit status once every process of the build is gone."""
    # A terminal that goes away ends the build, unless it was started to outlive it (nohup).
    hangup = {Signals.SIGHUP} if signal.getsignal(Signals.SIGHUP) is not signal.SIG_IGN else set()
    with (
        closing(display),
        anyio.open_signal_receiver(Signals.SIGINT, Signals.SIGTERM, *hangup) as signals,
    ):
        async with Supervisor(config) as service:
            brake = Brake(service, display)
            try:
                snapshot = await service.start(request)
                while not snapshot.ended and not brake.left:
                    display.update(snapshot)
                    number = None
                    with anyio.move_on_after(LOOK_S):
                        number = await anext(signals)
                    if number is not None:
                        await brake.pull(number, snapshot.build_id)
                    snapshot = await service.progress(snapshot.build_id, detail=Detail.TREE)
                final = await service.progress(snapshot.build_id, detail=Detail.FULL)
                display.finish(final)
                if final.state is State.FAILED:
                    await _tell_log(service, final.build_id)
            except Refusal as refusal:
                display.close()
                print_error(refusal.info)
                return ExitCode.USAGE
            except OSError as error:
                if error.errno not in {errno.EPIPE, errno.EIO}:  # a closed pipe, a terminal gone
                    raise
                # Leaving the supervisor's block ends the build.
                return _BY_SIGNAL[brake.first] if brake.first else ExitCode.OUTPUT_CLOSED
    if final.error:
        print_error(final.error)
    return exit_code(final, brake.first)


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
    return _BY_SIGNAL[asked] if asked else ExitCode.INTERNAL
