"""The log of a supervisor's process: what it and its libraries write to their standard streams."""

import os
from pathlib import Path

from trt_agent_tools.api.place import LOG
from trt_agent_tools.model.untrusted import one_line

MAX_LOG_BYTES = 5 * 1024 * 1024
"""A larger log is set aside when a supervisor starts."""

OLD = ".1"
_TAIL_BYTES = 8192
_TAIL_LINES = 10


def open_log(state_dir: Path) -> int:
    """Return a descriptor that appends to the log.

    Raises:
        OSError: it cannot be opened.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(state_dir / LOG, flags, 0o600)


def log_here(state_dir: Path) -> None:
    """Let this process's standard output and error go to the log, a new one if it is too long.

    Raises:
        OSError: it cannot be opened.
    """
    path = state_dir / LOG
    if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
        path.replace(path.with_name(LOG + OLD))
    log = open_log(state_dir)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def log_size(state_dir: Path) -> int:
    """Return how long the log is."""
    path = state_dir / LOG
    return path.stat().st_size if path.exists() else 0


def log_tail(state_dir: Path, since: int) -> list[str]:
    """Return the last lines that came after the log was `since` bytes long."""
    try:
        with (state_dir / LOG).open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            # A shorter one was begun meanwhile.
            start = since if since <= end else 0
            file.seek(max(start, end - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        # No log, no lines: what they would explain is told without them.
        return []
    return [one_line(line, 300) for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
