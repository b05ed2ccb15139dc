"""Reads the end of what a build wrote, its log and its events, for a reader who must not trust it."""

from dataclasses import dataclass
from pathlib import Path

from trt_agent_tools.model.events import Severity
from trt_agent_tools.model.log_lines import at_least, split_line
from trt_agent_tools.model.snapshot import BuildLog, LogEntry
from trt_agent_tools.model.untrusted import one_line

_READ_BYTES = 2 * 1024 * 1024
"""Only so much of the end is read, whatever the file's size."""


@dataclass(frozen=True, slots=True)
class FileEnd:
    """The last lines of a file; not `is_whole` if there are so many that the first were not read."""

    lines: list[str]
    is_whole: bool

    def left_out(self, matching: int, tail: int) -> int:
        """Return how many of the `matching` lines come before the last `tail`; -1 if nobody counted."""
        return max(0, matching - tail) if self.is_whole else -1


def read_end(path: Path, most_bytes: int = _READ_BYTES) -> FileEnd:
    """Return the last lines of a file, none if it is not there; no more than `most_bytes` are read.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most_bytes))
            data = file.read(most_bytes)
    except FileNotFoundError:
        return FileEnd([], is_whole=True)
    lines = data.decode("utf-8", "replace").splitlines()
    is_whole = size <= most_bytes
    if not is_whole and len(lines) > 1:
        # The first is the rest of one.
        lines = lines[1:]
    return FileEnd(lines, is_whole)


def read_log(path: Path, build_id: str, *, tail: int, min_severity: Severity | None) -> BuildLog:
    """Return the last `tail` lines that are severe enough, cleaned and bounded.

    Raises:
        OSError: the log is there and cannot be read.
    """
    end = read_end(path)
    entries = [
        LogEntry(text=text, severity=severity)
        for severity, text in map(split_line, map(one_line, end.lines))
        if text and (min_severity is None or at_least(severity, min_severity))
    ]
    left_out = end.left_out(len(entries), tail)
    return BuildLog(build_id=build_id, lines=entries[-tail:], left_out=left_out)
