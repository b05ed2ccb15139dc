"""The signals that ask a command to end, and the exit status that each means."""

import signal
from signal import Signals

from trt_agent_tools.cli.exit_codes import ExitCode

BY_SIGNAL = {
    Signals.SIGINT: ExitCode.CANCELLED,
    Signals.SIGTERM: ExitCode.TERMINATED,
    Signals.SIGHUP: ExitCode.HANGUP,
}


def ending_signals() -> list[Signals]:
    """Return the signals to end on: not the hang-up, where the command is to outlive its terminal."""
    outlives = signal.getsignal(Signals.SIGHUP) is signal.SIG_IGN  # nohup
    return [number for number in BY_SIGNAL if number is not Signals.SIGHUP or not outlives]
