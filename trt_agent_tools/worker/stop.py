"""The flag by which an order to cancel reaches the build."""

import threading


class Stop:
    """Set by the control thread; read by `step_complete` and between the worker's own phases."""

    __slots__ = ("_set", "asked", "reason")

    def __init__(self) -> None:
        self.asked = False
        self.reason = ""
        self._set = threading.Event()

    def ask(self, reason: str) -> None:
        """Ask the build to end. Asking again keeps the first reason."""
        if not self.asked:
            self.reason = reason
            self.asked = True
            self._set.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for an order to cancel, `timeout_s` at most. Return whether there is one."""
        return self._set.wait(timeout_s)
