"""Reads the end of a build's log for a reader who must not trust it."""

from pathlib import Path

from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.log_lines import at_least, split_line
from trt_agent_tools.model.snapshot import BuildLog, LogEntry
from trt_agent_tools.model.untrusted import one_line

_READ_BYTES = 2 * 1024 * 1024
"""Only so much of the end is read, whatever the log's size."""


def read_log(path: Path, build_id: str, *, tail: int, min_severity: Severity | None) -> BuildLog:
    """Return the last `tail` lines that are severe enough, cleaned and bounded.

    Raises:
        OSError: the log is there and cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _READ_BYTES))
            data = file.read(_READ_BYTES)
    except FileNotFoundError:
        return BuildLog(build_id=build_id, lines=[])
    lines = data.decode("utf-8", "replace").splitlines()
    if size > _READ_BYTES and len(lines) > 1:
        lines = lines[1:]
    entries = [
        LogEntry(text=text, severity=severity)
        for severity, text in map(split_line, map(one_line, lines))
        if text and (min_severity is None or at_least(severity, min_severity))
    ]
    left_out = -1 if size > _READ_BYTES else max(0, len(entries) - tail)
    return BuildLog(build_id=build_id, lines=entries[-tail:], left_out=left_out)
