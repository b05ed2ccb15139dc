"""What the worker is told: the first order, later ones, and the end of file that means stop."""

import os
import threading
from collections.abc import Callable

from pydantic import ValidationError

from trt_agent_tools.model.request import FIRST_ORDER, CancelOrder, FirstOrder
from trt_agent_tools.worker.stop import Stop

MAX_ORDER_BYTES = 4 * 1024 * 1024
"""A first line longer than this is refused."""


class OrderError(Exception):
    """The first line is no order of this protocol."""


class Control:
    """Reads orders from a descriptor, one JSON object a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""

    def first_order(self) -> FirstOrder:
        """Wait for the first line and return what it orders.

        Raises:
            OrderError: the line is not valid.
            EOFError: the supervisor is gone before it said anything.
        """
        line = self._line()
        if line is None:
            raise EOFError
        try:
            return FIRST_ORDER.validate_json(line)
        except ValidationError as error:
            raise OrderError(str(error)) from error

    def watch(self, stop: Stop, gone: Callable[[], None]) -> None:
        """From now on obey orders in a thread of its own; call `gone` there at end of file."""
        threading.Thread(target=self._watch, args=(stop, gone), name="orders", daemon=True).start()

    def _watch(self, stop: Stop, gone: Callable[[], None]) -> None:
        while True:
            try:
                line = self._line()
                if line is None:
                    break
                stop.ask(CancelOrder.model_validate_json(line).reason)
            except ValidationError:
                # An order of a later protocol: unknown ones are ignored, like unknown events.
                continue
            except OrderError:
                # Too long to be one of ours: what was read of it goes, and the rest is no order.
                self._buffer = b""
        gone()

    def _line(self) -> bytes | None:
        """Return the next line without its newline, or None at the end of file."""
        while b"\n" not in self._buffer:
            if len(self._buffer) > MAX_ORDER_BYTES:
                raise OrderError(f"an order is at most {MAX_ORDER_BYTES} bytes")
            try:
                data = os.read(self._descriptor, 65536)
            except OSError:
                # The descriptor failed: nobody can give orders any more, as at end of file.
                return None
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
