"""The one rule for reading a line of a build's log file.

TensorRT's own logger prints ``[11/29/2026-12:33:53] [TRT] [W] text``; parts of the library and other
native code print past it, without a severity.
"""

import re

from trt_agent_tools.model.events import Severity

_PREFIX = re.compile(r"(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?\[TRT\] \[([FEWIV])\] ?")
_LETTERS = {
    "F": Severity.INTERNAL_ERROR,
    "E": Severity.ERROR,
    "W": Severity.WARNING,
    "I": Severity.INFO,
    "V": Severity.VERBOSE,
}
_RANK = {severity: rank for rank, severity in enumerate(Severity)}


def split_line(line: str) -> tuple[Severity | None, str]:
    """Return the severity that a line was logged with, if it has one, and its text."""
    match = _PREFIX.match(line)
    if not match:
        return None, line
    return _LETTERS[match[1]], line[match.end() :]


def at_least(severity: Severity | None, minimum: Severity) -> bool:
    """Whether a line is as severe as `minimum`. What bypassed the logger may be, and counts so."""
    return severity is None or _RANK[severity] <= _RANK[minimum]
