"""A channel over a real pipe, and what came out at its other end."""

import os
import threading
import time
from pathlib import Path
from types import TracebackType

from typing_extensions import Self

from trt_agent_tools.model.event_lines import WORKER_EVENT
from trt_agent_tools.model.events import Hello, Ready, WorkerEvent
from trt_agent_tools.worker.channel import Channel
from trt_agent_tools.worker.recorder import PhaseRecorder
from trt_agent_tools.worker.stop import Stop

TIMEOUT_S = 30.0


class Wire:
    """Use as ``with Wire() as wire``; nobody reads until `read` or the end of the block.

    Then everything that was emitted is in `data` and `events`.
    """

    def __init__(self, record: Path | None = None) -> None:
        self._reader, self._writer = os.pipe()
        self.lost = threading.Event()
        self.channel = Channel(
            self._writer, started=time.monotonic(), lost=self.lost.set, record=record
        )
        self.stop = Stop()
        self.data = b""
        self._arrived = threading.Condition()
        self._thread: threading.Thread | None = None

    def recorder(self) -> PhaseRecorder:
        """Attach a recorder to the channel."""
        return PhaseRecorder(self.channel, self.stop)

    def read(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_for(self, text: bytes, timeout_s: float = TIMEOUT_S) -> bool:
        """Wait until `text` was read; return whether it was in time."""
        with self._arrived:
            return self._arrived.wait_for(lambda: text in self.data, timeout_s)

    def hang_up(self) -> None:
        """Close the reader's end."""
        os.close(self._reader)
        self._reader = -1

    @property
    def events(self) -> list[WorkerEvent]:
        """What was read, line by line."""
        return [WORKER_EVENT.validate_json(line) for line in self.data.splitlines()]

    def of_instance(self, instance: int) -> list[WorkerEvent]:
        """Return the events of one phase, in the order in which they were read."""
        return [
            event
            for event in self.events
            if not isinstance(event, Hello | Ready) and getattr(event, "instance", 0) == instance
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is None and self._reader >= 0:
            self.read()
        closed = self.channel.close(TIMEOUT_S)
        os.close(self._writer)
        if self._thread:
            self._thread.join(TIMEOUT_S)
        if self._reader >= 0:
            os.close(self._reader)
        assert closed, "the writer did not end"

    def _read(self) -> None:
        while data := os.read(self._reader, 65536):
            with self._arrived:
                self.data += data
                self._arrived.notify_all()
