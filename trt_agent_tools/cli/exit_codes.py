"""What the command's exit status means: the one place."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit statuses of every command."""

    OK = 0
    """It succeeded: for `build` the engine is written, verified and named in the output."""
    FAILED = 1
    """The build failed; (`doctor`) no backend works, or the policy in use or the journal is bad; (`verify`)
    a file is not what it was; (`stop`) the supervisor has not ended."""
    USAGE = 2
    """The command line is wrong, or the request was refused; nothing was started."""
    STOPPED_BY_POLICY = 3
    """A rule of the policy ended the build."""
    INTERNAL = 4
    """A fault of this program; (`build`, `watch`) the build is lost, its supervisor died under it."""
    HANGUP = 129
    """Cancelled because the terminal went away (SIGHUP)."""
    CANCELLED = 130
    """Cancelled by a user or an agent (Ctrl-C, SIGINT, `cancel`). `watch` only left."""
    OUTPUT_CLOSED = 141
    """Whoever read the output went away, so `build` asked for the build's end. `watch` only left."""
    TERMINATED = 143
    """Cancelled because the command was asked to end (SIGTERM)."""


EPILOG = (
    "Exit status: 0 succeeded; 1 the build failed, or a file was found changed; 2 wrong usage or refused, "
    "nothing was started; 3 ended by a policy; 4 internal fault, or the build is lost; 129, 130, 143 "
    "cancelled by SIGHUP, Ctrl-C, SIGTERM (watch only leaves); 141 the output's reader went away."
)
"""The same, for `--help`."""
