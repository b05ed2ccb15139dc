"""Reads the build's own log back: warnings become events, the last errors explain a failure.

The library's C++ logger writes the file itself. A Python logger would be called for every verbose
line too, tens of thousands a build, and each call takes Python's lock from a thread of the builder.
"""

import os
import threading
from collections import deque

from trt_agent_tools.model.events import LogLine, Severity
from trt_agent_tools.model.log_lines import at_least, split_line
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.worker.channel import Channel

_READ_BYTES = 256 * 1024
_KEPT = 20

_NO_GPU = "catchCudaError"
"""In a line that TensorRT-RTX logs after every error where there is no GPU: never the cause."""


class LogTail:
    """Follows the file behind fd 2. Where fd 2 is no file that can be read, it finds nothing."""

    def __init__(self, channel: Channel, descriptor: int = 2) -> None:
        self._channel = channel
        self._descriptor = descriptor
        self._offset = 0
        self._rest = b""
        self._errors: deque[str] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()

    def poll(self) -> None:
        """Read what was appended since the last time, at most 256 KiB of it."""
        with self._lock:
            self._read()

    def _read(self) -> bool:
        try:
            data = os.pread(self._descriptor, _READ_BYTES, self._offset)
        except OSError:
            # A terminal or a pipe, when the worker is started by hand: there is nothing to follow.
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            self._take(raw)
        # A line's first part is all that is ever told of it.
        self._rest = self._rest[:_READ_BYTES]
        return bool(data)

    def _take(self, raw: bytes) -> None:
        severity, text = split_line(one_line(raw.decode("utf-8", "replace")))
        if not text:
            return
        if severity is not None and at_least(severity, Severity.WARNING):
            self._channel.emit(LogLine(self._channel.now(), severity, text))
        if severity is not None and at_least(severity, Severity.ERROR) and _NO_GPU not in text:
            self._errors.append(text)

    def errors(self) -> list[str]:
        """Return the library's last error lines, oldest first."""
        with self._lock:
            while self._read():
                pass
            return list(self._errors)

    def last_error(self) -> str | None:
        """Return the library's last error line, if there is one."""
        errors = self.errors()
        return errors[-1] if errors else None
