"""What the command's exit status means: the one place."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit statuses of every command."""

    OK = 0
    """It succeeded: for `build` the engine is written, verified and named in the output."""
    FAILED = 1
    """The build failed, or (`doctor`) no backend works."""
    USAGE = 2
    """The command line is wrong, or the request was refused; nothing was started."""
    STOPPED_BY_POLICY = 3
    """A rule of the policy ended the build."""
    INTERNAL = 4
    """A fault of this program."""
    HANGUP = 129
    """Cancelled because the terminal went away (SIGHUP)."""
    CANCELLED = 130
    """Cancelled by the user (Ctrl-C, SIGINT)."""
    OUTPUT_CLOSED = 141
    """Whoever read the output went away, so the build was ended."""
    TERMINATED = 143
    """Cancelled because the command was asked to end (SIGTERM)."""


EPILOG = (
    "Exit status: 0 succeeded; 1 the build failed; 2 wrong usage or refused, nothing was started; "
    "3 ended by a policy; 4 internal fault; 129, 130, 143 cancelled by SIGHUP, Ctrl-C, SIGTERM; "
    "141 the output's reader went away."
)
"""The same, for `--help`."""
